//! Files that are kept: each is either whole or absent, whenever the writing process or its machine dies.

use std::fmt::Display;
use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::OpenOptionsExt;
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

/// Returns what the system says about an error, without its number: `permission denied`.
pub fn reason(error: &io::Error) -> String {
    let text = error.to_string();
    text.split(" (os error").next().unwrap_or_default().to_lowercase()
}
