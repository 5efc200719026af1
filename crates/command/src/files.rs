//! Files that a user names are read within bounds; files that are kept are either whole or absent, whenever the writing
//! process or its machine dies.

use std::fs::{self, File, Metadata, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::Path;

use brobust_host::{reason, Refusal};
use nix::sys::resource::{getrlimit, setrlimit, Resource};
use nix::sys::statvfs::statvfs;
use tempfile::NamedTempFile;

/// Of a recording, bytes: as in python/brobust/files.py. A host's disk is not filled either.
pub const MAX_RECORDING: u64 = 1_000_000_000;

/// What each command needs: `cc load` has this many open, and the others begin with fewer.
const MIN_OPEN: u64 = 32;
/// What is asked for: `watch` takes two for each network namespace. Whoever may make these decides how many there
/// are, and each takes memory, too.
const MAX_OPEN: u64 = 16384;

/// Lets this process have as many open files as a command needs, and refuses if it may not: what could not be opened would
/// count as not there, or the kernel would be said to refuse a control. It is called when the user's words have been
/// checked.
pub fn allow_open() -> brobust_host::Result<()> {
    let Ok((soft, hard)) = getrlimit(Resource::RLIMIT_NOFILE) else { return Ok(()) };
    if hard < MIN_OPEN {
        return Err(Refusal::missing_support(format!(
            "no more than {hard} files may be open at a time (ulimit -n), and up to {MIN_OPEN} are needed; raise this limit"
        )));
    }
    let _ = setrlimit(Resource::RLIMIT_NOFILE, soft.max(hard.min(MAX_OPEN)), hard);
    Ok(())
}

/// Writes a new file and gives it this name. It is written in the same directory under a name that is new there, and no
/// link is followed, since root may write to directories in which other users can create links.
pub fn replace(file: &Path, content: &[u8]) -> brobust_host::Result<()> {
    let why = |error: io::Error| not_written("--out", file, &error);
    let mut scratch = scratch_of(file)?;
    // The error is looked at while the disk is still full.
    let out = scratch.as_file_mut();
    out.write_all(content).and_then(|()| out.sync_all()).map_err(why)?;
    scratch.persist(file).map_err(|kept| why(kept.error))?;
    sync_directory(directory_of(file)).map_err(why)
}

/// Waits until a directory's names are on the disk. Some file systems, such as CIFS, do this for files only, and whoever
/// may write to a directory may not be allowed to read it: the file is there all the same.
fn sync_directory(directory: &Path) -> io::Result<()> {
    let cannot = |error: &io::Error| {
        let number = error.raw_os_error();
        [libc::EINVAL, libc::ENOSYS, libc::EOPNOTSUPP, libc::EACCES].into_iter().any(|known| number == Some(known))
    };
    match File::open(directory).and_then(|opened| opened.sync_all()) {
        Err(error) if cannot(&error) => Ok(()),
        synced => synced,
    }
}

/// Refuses a file that `replace` could not write now, and leaves what is there as it is.
pub fn refuse_unwritable(file: &Path) -> brobust_host::Result<()> {
    scratch_of(file).map(drop)
}

/// Makes the file that becomes this one, and goes if it does not.
fn scratch_of(file: &Path) -> brobust_host::Result<NamedTempFile> {
    if fs::symlink_metadata(file).is_ok_and(|found| !found.is_file()) {
        // A rename would replace even /dev/null by a file.
        let why = "this name belongs to something other than a regular file";
        return Err(Refusal::bad_input(format!("--out: {} cannot be written ({why})", file.display())));
    }
    let mut options = OpenOptions::new();
    options.write(true).create_new(true);
    let mut named = tempfile::Builder::new();
    let named = named.prefix(".brobust-").suffix(".new");
    named.make_in(directory_of(file), |name| options.open(name)).map_err(|error| not_written("--out", file, &error))
}

/// Returns the refusal for the file of an option that cannot be written. It names the file system, or the limit, that is
/// to blame.
pub fn not_written(option: &str, file: &Path, error: &io::Error) -> Refusal {
    let place = directory_of(file).canonicalize().unwrap_or_else(|_| "/".into());
    let mount = mount_of(&place);
    let (why, remedy) = match error.raw_os_error() {
        Some(libc::ENOSPC) => (room(mount), "make room"),
        Some(libc::EDQUOT) => (format!("your quota on {} is used up", mount.display()), "make room"),
        Some(libc::EIO) => (format!("{} reports input/output errors", mount.display()), "check the disk (dmesg)"),
        Some(libc::EFBIG) => {
            let limit = getrlimit(Resource::RLIMIT_FSIZE).map_or(0, |(soft, _)| soft);
            (format!("no file may have more than {limit} bytes (ulimit -f)"), "raise this limit")
        }
        _ => return Refusal::bad_input(format!("{option}: {} cannot be written ({})", file.display(), reason(error))),
    };
    Refusal::not_written(format!("{} cannot be written: {why}; {remedy}, then repeat the command", file.display()))
}

fn room(mount: &Path) -> String {
    let room = statvfs(mount).map(|found| {
        let size = found.fragment_size();
        format!(", where {} kB of {} kB are free", kb(found.blocks_available(), size), kb(found.blocks(), size))
    });
    format!("no room is left on {}{}", mount.display(), room.unwrap_or_default())
}

/// File systems without a size of their own, such as those over an object store, say that they have 2^64 blocks.
fn kb(blocks: u64, block_bytes: u64) -> u128 {
    u128::from(blocks) * u128::from(block_bytes) / 1000
}

/// Returns the mount point of the file system that holds a directory.
fn mount_of(place: &Path) -> &Path {
    let device = |path: &Path| fs::metadata(path).map(|found| found.dev()).ok();
    place.ancestors().take_while(|above| device(above) == device(place)).last().unwrap_or(place)
}

pub fn directory_of(file: &Path) -> &Path {
    file.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."))
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

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::{kb, mount_of, sync_directory};

    #[test]
    fn a_directory_that_cannot_be_synchronised_is_no_error() {
        sync_directory(Path::new("/proc/self")).expect("the file in it would be there");
        sync_directory(Path::new("/no/such/directory")).expect_err("it is not there");
    }

    #[test]
    fn the_size_of_a_file_system_without_bounds_can_be_said() {
        assert_eq!(kb(3, 4096), 12);
        assert_eq!(kb(u64::MAX, 4096), 75_557_863_725_914_323_415);
    }

    #[test]
    fn the_file_system_of_a_directory_is_the_one_mounted_nearest_above_it() {
        assert_eq!(mount_of(Path::new("/proc/self/task")), Path::new("/proc"));
    }
}
