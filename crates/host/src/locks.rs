//! Lock files, so that one process at a time does something, and directories in which nobody else can write.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, FileExt, MetadataExt, OpenOptionsExt};
use std::path::Path;
use std::thread::sleep;
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::fcntl::{Flock, FlockArg};

use crate::refusal::{as_root, reason};
use crate::{Refusal, Result};

const POLL: Duration = Duration::from_millis(10);

/// Makes the directory if it is missing, and refuses it as [`refuse_foreign`] does.
pub fn private_directory(path: &Path) -> Result<()> {
    // A link or a file with this name is refused below, with a message that says so.
    if let Err(error) = DirBuilder::new().recursive(true).mode(0o755).create(path) {
        if path.symlink_metadata().is_err() {
            let text = format!("{} cannot be created ({}){}", path.display(), reason(&error), as_root(&error));
            return Err(Refusal::missing_support(text));
        }
    }
    refuse_foreign(path)
}

/// Refuses a directory in which another user could put files or links: root acts on what it reads there.
pub fn refuse_foreign(path: &Path) -> Result<()> {
    let name = path.display();
    let refuse = |text: String| Err(Refusal::missing_support(text));
    let found = match path.symlink_metadata() {
        Ok(found) => found,
        Err(error) => return refuse(format!("{name}: {}", reason(&error))),
    };
    if !found.is_dir() {
        return refuse(format!("{name} is not a directory; remove it"));
    }
    if found.uid() != 0 && found.uid() != nix::unistd::geteuid().as_raw() {
        return refuse(format!("{name} belongs to user {}, who could put anything there; remove it", found.uid()));
    }
    if found.mode() & 0o022 != 0 {
        return refuse(format!(
            "{name} may be written by others than its owner; run `chmod go-w {name}`, or remove it"
        ));
    }
    Ok(())
}

/// A lock that is held until this is dropped, or until the process ends, however it ends.
pub type Lock = Flock<File>;

/// Locks a file, which is created if it is missing, for this process. Waits at most `limit`; the refusal names the
/// process that holds the lock.
///
/// The holder may remove the file; processes that wait for it then create a new one. A second lock on the same file in
/// one process waits as well.
pub fn lock(file: &Path, limit: Duration) -> Result<Lock> {
    lock_while(file, limit, || ())
}

/// Locks a file as [`lock`] does, and calls `waiting` again and again while another process has it.
pub(crate) fn lock_while(file: &Path, limit: Duration, mut waiting: impl FnMut()) -> Result<Lock> {
    let begun = Instant::now();
    let cannot = |error: io::Error| {
        Refusal::missing_support(format!("{} cannot be locked ({})", file.display(), reason(&error)))
    };
    let held = loop {
        match Flock::lock(open(file).map_err(cannot)?, FlockArg::LockExclusiveNonblock) {
            Ok(held) if has_name(&held, file) => break held,
            Ok(_) => {} // of a file that was removed meanwhile
            Err((other, Errno::EAGAIN)) if begun.elapsed() >= limit => {
                let (name, holder) = (file.display(), holder(&other));
                let text = format!("{name} is locked by {holder}; wait until that process has ended");
                return Err(Refusal::missing_support(text));
            }
            Err((_, Errno::EAGAIN)) => {
                waiting();
                sleep(POLL);
            }
            Err((_, error)) => return Err(cannot(error.into())),
        }
    };
    // For whoever has to wait. On a full disk it is missing, and what was changed has to be undone all the same.
    let own = std::process::id().to_string();
    let _ = held.set_len(0).and_then(|()| held.write_all_at(own.as_bytes(), 0));
    Ok(held)
}

fn open(file: &Path) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.read(true).write(true).create(true).truncate(false).mode(0o600).custom_flags(libc::O_NOFOLLOW).open(file)
}

fn has_name(held: &File, file: &Path) -> bool {
    let both = (held.metadata(), fs::symlink_metadata(file));
    matches!(both, (Ok(held), Ok(named)) if (held.dev(), held.ino()) == (named.dev(), named.ino()))
}

fn holder(held: &File) -> String {
    let mut text = [0; 20];
    let length = held.read_at(&mut text, 0).unwrap_or(0);
    match std::str::from_utf8(&text[..length]) {
        Ok(pid) if !pid.is_empty() && pid.bytes().all(|byte| byte.is_ascii_digit()) => format!("process {pid}"),
        _ => "another process".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::{lock, private_directory};
    use nix::mount::{mount, MsFlags};
    use nix::sched::{unshare, CloneFlags};
    use std::fs;
    use std::os::unix::fs::{symlink, PermissionsExt};
    use std::time::Duration;

    #[test]
    fn one_holder_at_a_time() {
        let scratch = tempfile::tempdir().expect("made");
        let file = scratch.path().join("lock");
        let first = lock(&file, Duration::ZERO).expect("nobody has it");
        let refused = lock(&file, Duration::from_millis(30)).unwrap_err().to_string();
        assert!(refused.contains(&format!("locked by process {}", std::process::id())), "{refused}");
        let of_a_child = first.try_clone().expect("duplicated");
        drop(first);
        lock(&file, Duration::ZERO).expect("it is free again");
        drop(of_a_child);
    }

    #[test]
    #[ignore = "needs root"]
    fn turns_are_taken_on_a_full_disk_too() {
        let scratch = tempfile::tempdir().expect("made");
        let directory = scratch.path().to_owned();
        // A thread has the mounts to itself.
        let on_full_disk = move || {
            unshare(CloneFlags::CLONE_NEWNS).expect("we are root");
            let nothing = None::<&str>;
            mount(nothing, "/", nothing, MsFlags::MS_REC | MsFlags::MS_PRIVATE, nothing).expect("ours alone");
            mount(nothing, &directory, Some("tmpfs"), MsFlags::empty(), Some("size=4k")).expect("mounted");
            fs::write(directory.join("all"), [0; 4096]).expect("there was so much room");
            let held = lock(&directory.join("lock"), Duration::ZERO).expect("nobody has it");
            let refused = lock(&directory.join("lock"), Duration::ZERO).unwrap_err().text;
            assert!(refused.contains("is locked by another process"), "{refused}");
            drop(held);
        };
        std::thread::spawn(on_full_disk).join().expect("as asserted");
    }

    #[test]
    fn a_directory_for_everybody_is_refused() {
        let scratch = tempfile::tempdir().expect("made");
        let directory = scratch.path();
        fs::write(directory.join("file"), "").expect("written");
        let refused = private_directory(&directory.join("file/below")).unwrap_err().text;
        assert!(
            refused.ends_with("file/below cannot be created (not a directory)"),
            "root could not either: {refused}"
        );
        let shared = directory.join("shared");
        private_directory(&shared).expect("it is made");
        fs::set_permissions(&shared, fs::Permissions::from_mode(0o777)).expect("changed");
        assert!(private_directory(&shared).unwrap_err().text.contains("chmod go-w"));
        symlink(directory, directory.join("link")).expect("linked");
        assert!(private_directory(&directory.join("link")).unwrap_err().text.contains("is not a directory"));
    }
}
