//! `brobust contend`. tests/test_contend.py has more; `-- --ignored` runs this, which needs root.

use std::ffi::CString;
use std::fs::{self, File};
use std::io::Read;
use std::os::fd::{AsRawFd, FromRawFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::{Command, Output};

/// Ends the command with which competitors hold a process of ours for a moment, where `out` is to have what it got.
/// `run` is for sessions.
fn held(mut command: Command, run: &Path, out: &Path) -> Output {
    let mut process = Command::new("sleep").arg("60").spawn().unwrap();
    let pid = process.id().to_string();
    command.args(["contend", "--pid", &pid, "--threads", &pid, "--driver", "competitor", "--competitors", "1"]);
    let held = command.args(["--for", "200ms", "--out"]).arg(out).env("BROBUST_RUNTIME", run).output().unwrap();
    process.kill().and_then(|()| process.wait()).unwrap();
    held
}

fn program() -> Command {
    Command::new(env!("CARGO_BIN_EXE_brobust-host"))
}

#[test]
#[ignore = "needs root"]
fn a_file_that_cannot_be_written_is_refused_before_anything_is_held() {
    let scratch = tempfile::tempdir().unwrap();
    let out = scratch.path().join("trace.parquet");
    symlink("/dev/null", &out).unwrap();
    let held = held(program(), &scratch.path().join("run"), &out);
    let said = String::from_utf8_lossy(&held.stderr);
    assert!(said.contains("trace.parquet cannot be written (this name belongs to something other"), "{said}");
    let shown = String::from_utf8_lossy(&held.stdout);
    assert!(held.status.code() == Some(2) && !shown.contains("of its CPU"), "{shown}");
    assert!(!scratch.path().join("run").exists(), "no session has begun");
}

/// Returns the next names that inotify reports of the directories that it watches.
fn changed(inotify: &mut File) -> Vec<String> {
    let mut events = [0; 4096];
    let length = inotify.read(&mut events).unwrap();
    let (mut rest, mut names) = (&events[..length], Vec::new());
    while let Some((head, after)) = rest.split_at_checked(size_of::<libc::inotify_event>()) {
        let (name, next) = after.split_at(u32::from_ne_bytes(head[12..].try_into().unwrap()) as usize);
        names.push(String::from_utf8_lossy(name).trim_end_matches('\0').to_owned());
        rest = next;
    }
    names
}

#[test]
#[ignore = "needs root"]
fn the_contention_has_ended_when_what_the_threads_got_is_written() {
    let scratch = tempfile::tempdir().unwrap();
    let (run, out) = (scratch.path().join("run"), scratch.path().join("out"));
    fs::create_dir(&run).and_then(|()| fs::create_dir(&out)).unwrap();
    // SAFETY: a new descriptor, which nobody else has.
    let mut inotify = unsafe { File::from_raw_fd(libc::inotify_init1(libc::IN_CLOEXEC)) };
    for (directory, events) in [(&run, libc::IN_DELETE), (&out, libc::IN_MOVED_TO)] {
        let name = CString::new(directory.as_os_str().as_bytes()).unwrap();
        // SAFETY: the name lives as long as the call.
        assert!(unsafe { libc::inotify_add_watch(inotify.as_raw_fd(), name.as_ptr(), events) } >= 0);
    }
    let held = held(program(), &run, &out.join("trace.parquet"));
    assert!(held.status.success(), "{}", String::from_utf8_lossy(&held.stderr));
    let seen = changed(&mut inotify);
    // The session's directory, PID-START, goes when everything is undone.
    assert!(seen.len() == 2 && seen[0].contains('-') && seen[1] == "trace.parquet", "{seen:?}");
}

#[test]
#[ignore = "needs root"]
fn what_the_threads_got_is_said_although_the_disk_is_full() {
    let scratch = tempfile::tempdir().unwrap();
    let disk = scratch.path().join("disk");
    fs::create_dir(&disk).unwrap();
    let on_full_disk = "mount -t tmpfs -o size=4k none \"$0\" && head -c 4096 /dev/zero >\"$0/all\" && exec \"$@\"";
    let mut there = Command::new("unshare");
    there.args(["--mount", "sh", "-c", on_full_disk]).arg(&disk).arg(program().get_program());
    let held = held(there, &scratch.path().join("run"), &disk.join("trace.parquet"));
    let (shown, said) = (String::from_utf8_lossy(&held.stdout), String::from_utf8_lossy(&held.stderr));
    assert!(said.contains("trace.parquet cannot be written: no room is left on"), "{said}");
    assert!(shown.contains(", seen by ") && held.status.code() == Some(1), "{:?}\n{shown}", held.status);
}
