//! A sysctl that is held at a value for a while.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::refusal::reason;
use crate::{eventually, Refusal, Result};

const BUSY: Duration = Duration::from_secs(if cfg!(test) { 0 } else { 2 });

/// A sysctl (a path below /proc/sys), its previous value, and the value at which we hold it. Journals of brobust 0.2
/// have the three as a list, which serde reads, too.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Sysctl {
    pub name: String,
    pub previous: String,
    pub held: String,
}

impl Sysctl {
    /// Returns its file. The name comes from a file, and must not lead out of /proc/sys (`root`).
    fn file(&self, root: &Path) -> Result<PathBuf> {
        let is_plain =
            |part: &str| !part.is_empty() && part.bytes().all(|byte| matches!(byte, b'a'..=b'z' | b'0'..=b'9' | b'_'));
        if !self.name.split('/').all(is_plain) {
            return Err(Refusal::missing_support(format!("'{}' is not the name of a sysctl", self.name)));
        }
        Ok(root.join(&self.name))
    }

    /// Returns whether it still has our value. If somebody has written another value since, that is left alone.
    pub fn is_held(&self, root: &Path) -> bool {
        let now = self.file(root).ok().and_then(|file| fs::read_to_string(file).ok());
        self.previous != self.held && now.is_some_and(|now| now.trim() == self.held)
    }

    pub fn restore(&self, root: &Path) -> Result<()> {
        self.write(root, &self.previous)
    }

    /// Writes a value, and tries again for a while on EBUSY. The kernel refuses to limit real-time threads while more
    /// bandwidth is admitted for DEADLINE threads, and counts a thread for a moment after it has left that policy.
    pub fn write(&self, root: &Path, value: &str) -> Result<()> {
        let (file, mut written) = (self.file(root)?, Ok(()));
        eventually(BUSY, || {
            written = write(&file, value);
            !written.as_ref().is_err_and(|error| error.raw_os_error() == Some(libc::EBUSY))
        });
        written.map_err(|error| {
            let text = format!("{} could not be set to {value} ({})", file.display(), reason(&error));
            Refusal::missing_support(text)
        })
    }
}

#[cfg(not(test))]
fn write(file: &Path, value: &str) -> std::io::Result<()> {
    fs::write(file, value)
}

/// In tests: a file beside it makes the kernel refuse to limit real-time threads again.
#[cfg(test)]
fn write(file: &Path, value: &str) -> std::io::Result<()> {
    if value != "-1" && file.with_extension("busy").exists() {
        return Err(std::io::Error::from_raw_os_error(libc::EBUSY));
    }
    fs::write(file, value)
}

#[cfg(test)]
mod tests {
    use super::Sysctl;

    #[test]
    fn a_journal_cannot_make_root_write_anywhere_but_to_a_sysctl() {
        for name in ["/etc/passwd", "../passwd", "kernel/../../passwd", "kernel/.hidden", "kernel/", ""] {
            let sysctl = Sysctl { name: name.into(), previous: "theirs".into(), held: "mine".into() };
            let refused = sysctl.restore(&std::env::temp_dir()).unwrap_err();
            assert!(refused.text.contains("not the name of a sysctl"), "{refused}");
        }
    }
}
