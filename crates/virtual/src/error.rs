//! Why a run was not measured.
use std::io;
use std::path::PathBuf;

#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The run cannot be measured as it was asked for.
    #[error("{0}")]
    Refused(String),
    /// A kernel has ended; `console` is the end of what it printed.
    #[error("the {node} kernel died: {console}")]
    Died { node: String, console: String },
    /// A kernel reported a mistake of its own, such as a warning; what it measured is not to be trusted.
    #[error("the {node} kernel reported: {report}")]
    Reported { node: String, report: String },
    /// A kernel has not answered for `seconds`, and is given up.
    #[error("the {node} kernel did not answer for {seconds} s: {console}")]
    Hung { node: String, seconds: u64, console: String },
    /// A kernel left something in the shared memory that the protocol does not allow.
    #[error("the {node} kernel broke the protocol: {what}")]
    Protocol { node: String, what: String },
    #[error("interrupted")]
    Interrupted,
    #[error("{what}: {source}")]
    Io { what: String, source: io::Error },
    /// A file that was asked for cannot be written.
    #[error("{}: {source}", file.display())]
    Write { file: PathBuf, source: io::Error },
}

pub type Result<T> = std::result::Result<T, Error>;

pub(crate) fn io(what: impl Into<String>) -> impl FnOnce(io::Error) -> Error {
    let what = what.into();
    move |source| Error::Io { what, source }
}
