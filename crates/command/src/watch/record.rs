//! `--record`: each sweep as a line of a file, which `brobust trace` and `brobust explore` show later.

use std::fs::{self, File, OpenOptions};
use std::io::{ErrorKind, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use brobust_host::{Refusal, Result};
use serde::Serialize;

use crate::files::{self, MAX_RECORDING};

/// A file that grows by a line with each sweep. It consists of whole lines, also after a full disk.
pub struct Record {
    file: PathBuf,
    out: File,
    bytes: u64,
}

impl Record {
    /// Begins a new file. One that exists is kept, and no link is followed: root may write where others make links.
    pub fn new(file: &Path) -> Result<Record> {
        let mut options = OpenOptions::new();
        let opened = options.write(true).create_new(true).custom_flags(libc::O_NOFOLLOW).open(file);
        let out = opened.map_err(|error| match error.kind() {
            ErrorKind::AlreadyExists => {
                Refusal::bad_input(format!("--record: {} is there already; give another name", file.display()))
            }
            _ => files::not_written("--record", file, &error),
        })?;
        Ok(Record { file: file.to_owned(), out, bytes: 0 })
    }

    pub fn add(&mut self, sweep: &impl Serialize) -> Result<()> {
        let text = serde_json::to_string(sweep).map_err(|error| Refusal::failed(error.to_string()))? + "\n";
        let bytes = self.bytes + text.len() as u64;
        if bytes > MAX_RECORDING {
            let file = self.file.display();
            let what = format!("--record: {file} is full: it may have {MAX_RECORDING} bytes; go on with another file");
            return Err(Refusal::not_written(what));
        }
        if let Err(error) = self.out.write_all(text.as_bytes()) {
            let refused = files::not_written("--record", &self.file, &error);
            let _ = self.out.set_len(self.bytes);
            return Err(refused);
        }
        self.bytes = bytes;
        Ok(())
    }
}

impl Drop for Record {
    fn drop(&mut self) {
        if self.bytes == 0 {
            // What begins only to be refused leaves no file, which would refuse the repeated command.
            let _ = fs::remove_file(&self.file);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_recording_is_a_line_for_each_sweep_and_what_is_there_is_kept() {
        let scratch = tempfile::tempdir().expect("made");
        let file = scratch.path().join("sweeps.jsonl");
        let mut record = Record::new(&file).expect("a new file");
        record.add(&[1, 2]).expect("there is room");
        record.add(&"three").expect("there is room");
        assert_eq!(fs::read_to_string(&file).expect("it is there"), "[1,2]\n\"three\"\n");
        record.bytes = MAX_RECORDING - 3;
        assert!(record.add(&"three").unwrap_err().text.contains("is full"));
        drop(record);
        let refused = Record::new(&file).err().expect("it exists").text;
        assert!(refused.contains("is there already"), "{refused}");
        assert_eq!(fs::read_to_string(&file).expect("it is there").lines().count(), 2);
        let unused = scratch.path().join("unused.jsonl");
        drop(Record::new(&unused).expect("a new file"));
        assert!(!unused.exists(), "the repeated command would be refused");
    }
}
