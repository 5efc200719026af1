//! The errors a user sees: one line each, exit status 2 unless their kind says another.

use std::io;
use std::path::Path;

/// What a refusal is about. Python has one exception for each (python/brobust/errors.py).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// A value given by the user cannot be used.
    BadInput,
    /// This machine lacks something that the request needs.
    MissingSupport,
    /// The work began and could not be finished.
    Failed,
    /// What was found cannot be written: a full disk, for example. Exit status 1.
    NotWritten,
}

/// A refusal. Its text is one sentence that names what is wrong, what was given, and how to mend it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{text}")]
pub struct Refusal {
    pub kind: Kind,
    pub text: String,
}

pub type Result<T> = std::result::Result<T, Refusal>;

impl Refusal {
    pub fn bad_input(text: impl Into<String>) -> Self {
        Self { kind: Kind::BadInput, text: text.into() }
    }

    pub fn missing_support(text: impl Into<String>) -> Self {
        Self { kind: Kind::MissingSupport, text: text.into() }
    }

    pub fn failed(text: impl Into<String>) -> Self {
        Self { kind: Kind::Failed, text: text.into() }
    }

    pub fn not_written(text: impl Into<String>) -> Self {
        Self { kind: Kind::NotWritten, text: text.into() }
    }
}

/// Returns what the system says about an error, without its number: `permission denied`.
pub fn reason(error: &io::Error) -> String {
    without_numbers(&error.to_string()).to_lowercase()
}

/// Returns a sentence without the numbers that Rust puts behind the system's words: ` (os error 11)`.
pub fn without_numbers(text: &str) -> String {
    let mut parts = text.split(" (os error ");
    let first = parts.next().unwrap_or_default().to_owned();
    parts.fold(first, |said, part| said + part.split_once(')').map_or("", |(_, after)| after))
}

/// Returns the end of a sentence about an error: that root may do it, where that is what is wrong.
pub fn as_root(error: &io::Error) -> &'static str {
    match error.kind() {
        io::ErrorKind::PermissionDenied => "; run this as root",
        _ => "",
    }
}

pub(crate) fn cannot_access(file: &Path, error: &io::Error) -> Refusal {
    Refusal::missing_support(format!("{}: {}", file.display(), reason(error)))
}

#[cfg(test)]
mod tests {
    use super::without_numbers;
    use std::io;

    #[test]
    fn what_the_system_says_stands_without_its_number() {
        let error = io::Error::from_raw_os_error(libc::EAGAIN);
        let said = without_numbers(&format!("starting a thread: {error} (twice: {error}); end others"));
        let words = "Resource temporarily unavailable";
        assert_eq!(said, format!("starting a thread: {words} (twice: {words}); end others"));
        assert_eq!(without_numbers("nothing (of it)"), "nothing (of it)");
    }
}
