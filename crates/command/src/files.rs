//! Files that a user names are read within bounds; files that are kept are either whole or absent, whenever the writing
//! process or its machine dies.

use std::fmt::Display;
use std::fs::{self, File, Metadata, OpenOptions};
use std::io::{self, Read};
use std::os::unix::fs::{FileTypeExt, OpenOptionsExt};
use std::path::Path;

use crate::random::drawn;

/// Writes a new file and gives it this name. It is written in the same directory under a name that nobody can guess, and
/// no link is followed, since root may write to directories in which other users can create links. The error says why not.
pub fn replace<E: Display>(
    file: &Path,
    write: impl FnOnce(&mut File) -> std::result::Result<(), E>,
) -> std::result::Result<(), String> {
    if fs::symlink_metadata(file).is_ok_and(|found| !found.is_file()) {
        // A rename would replace even /dev/null by a file.
        return Err("this name belongs to something other than a regular file".into());
    }
    let why = |error: io::Error| reason(&error);
    let directory = file.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let scratch = directory.join(format!(".brobust-{:016x}.new", drawn()));
    let mut options = OpenOptions::new();
    options.read(true).write(true).create_new(true).mode(0o666).custom_flags(libc::O_NOFOLLOW);
    let mut out = options.open(&scratch).map_err(why)?;
    let written = write(&mut out).map_err(|error| error.to_string());
    let named = written.and_then(|()| {
        out.sync_all().map_err(why)?;
        fs::rename(&scratch, file).map_err(why)
    });
    if named.is_err() {
        let _ = fs::remove_file(&scratch);
    }
    named.and_then(|()| File::open(directory).and_then(|opened| opened.sync_all()).map_err(why))
}

/// Opens a regular file of at most so many bytes. The error says why not. python/brobust/files.py does the same.
pub fn open(file: &Path, at_most: u64) -> std::result::Result<File, String> {
    let why = |error: io::Error| format!("cannot be read ({})", reason(&error));
    // Before it is opened: opening a device may do something, and opening a pipe waits for a writer.
    check(&fs::metadata(file).map_err(why)?, at_most)?;
    let flags = libc::O_NONBLOCK | libc::O_NOCTTY;
    let opened = OpenOptions::new().read(true).custom_flags(flags).open(file).map_err(why)?;
    check(&opened.metadata().map_err(why)?, at_most)?;
    Ok(opened)
}

/// Returns the content of such a file. A file of the kernel may have more than its size says.
pub fn read(file: &Path, at_most: u64) -> std::result::Result<Vec<u8>, String> {
    let mut content = Vec::new();
    let read = open(file, at_most)?.take(at_most + 1).read_to_end(&mut content);
    read.map_err(|error| format!("cannot be read ({})", reason(&error)))?;
    if content.len() as u64 > at_most {
        return Err(format!("does not end after {at_most} bytes; give a smaller file"));
    }
    Ok(content)
}

fn check(found: &Metadata, at_most: u64) -> std::result::Result<(), String> {
    let kind = found.file_type();
    if !kind.is_file() {
        let kinds = [
            (kind.is_dir(), "a directory"),
            (kind.is_fifo(), "a named pipe"),
            (kind.is_socket(), "a socket"),
            (kind.is_char_device(), "a character device"),
            (kind.is_block_device(), "a block device"),
        ];
        let what = kinds.iter().find(|(is_it, _)| *is_it).map_or("no file", |(_, what)| what);
        return Err(format!("is {what}; give a regular file"));
    }
    match found.len() {
        size if size > at_most => Err(format!("has {size} bytes; give a file of at most {at_most} bytes")),
        _ => Ok(()),
    }
}

/// Returns what the system says about an error, without its number: `permission denied`.
pub fn reason(error: &io::Error) -> String {
    let text = error.to_string();
    text.split(" (os error").next().unwrap_or_default().to_lowercase()
}
