//! Why a run was not measured.
use std::io;

#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Cannot be measured as asked.
    #[error("{0}")]
    Refused(String),
    /// A kernel is gone; its last words are kept.
    #[error("the {node} kernel died: {words}")]
    Died { node: String, words: String },
    /// A kernel has not been heard of for so long that it never will.
    #[error("the {node} kernel did not answer for {seconds} s: {words}")]
    Hung { node: String, seconds: u64, words: String },
    /// A kernel said something that makes no sense.
    #[error("the {node} kernel left {what}")]
    Nonsense { node: String, what: String },
    #[error("interrupted")]
    Interrupted,
    #[error("{what}: {source}")]
    Io { what: String, source: io::Error },
}

pub type Result<T> = std::result::Result<T, Error>;

pub(crate) fn io(what: impl Into<String>) -> impl FnOnce(io::Error) -> Error {
    let what = what.into();
    move |source| Error::Io { what, source }
}
