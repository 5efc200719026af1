//! `brobust contend`. tests/test_contend.py has more; `-- --ignored` runs this, which needs root.

use std::fs;
use std::os::unix::fs::symlink;
use std::process::Command;

#[test]
#[ignore = "needs root"]
fn a_file_that_cannot_be_written_is_refused_before_anything_is_held() {
    let scratch = tempfile::tempdir().unwrap();
    let out = scratch.path().join("trace.parquet");
    symlink("/dev/null", &out).unwrap();
    let mut process = Command::new("sleep").arg("60").spawn().unwrap();
    let pid = process.id().to_string();
    let held = Command::new(env!("CARGO_BIN_EXE_brobust-host"))
        .args(["contend", "--pid", &pid, "--threads", &pid, "--driver", "competitor", "--competitors", "1"])
        .args(["--for", "200ms", "--out"])
        .arg(&out)
        .env("BROBUST_RUNTIME", scratch.path().join("run"))
        .output()
        .unwrap();
    process.kill().and_then(|()| process.wait()).unwrap();
    let said = String::from_utf8_lossy(&held.stderr);
    assert!(said.contains("trace.parquet cannot be written (this name belongs to something other"), "{said}");
    let shown = String::from_utf8_lossy(&held.stdout);
    assert!(held.status.code() == Some(2) && !shown.contains("of its CPU"), "{shown}");
    assert!(!scratch.path().join("run").exists(), "no session has begun");
}

#[test]
#[ignore = "needs root"]
fn what_the_threads_got_is_said_although_the_disk_is_full() {
    let scratch = tempfile::tempdir().unwrap();
    let disk = scratch.path().join("disk");
    fs::create_dir(&disk).unwrap();
    let mut process = Command::new("sleep").arg("60").spawn().unwrap();
    let pid = process.id().to_string();
    let on_full_disk = "mount -t tmpfs -o size=4k none \"$0\" && head -c 4096 /dev/zero >\"$0/all\" && exec \"$@\"";
    let held = Command::new("unshare")
        .args(["--mount", "sh", "-c", on_full_disk])
        .arg(&disk)
        .arg(env!("CARGO_BIN_EXE_brobust-host"))
        .args(["contend", "--pid", &pid, "--threads", &pid, "--driver", "competitor", "--competitors", "1"])
        .args(["--for", "200ms", "--out"])
        .arg(disk.join("trace.parquet"))
        .env("BROBUST_RUNTIME", scratch.path().join("run"))
        .output()
        .unwrap();
    process.kill().and_then(|()| process.wait()).unwrap();
    let (shown, said) = (String::from_utf8_lossy(&held.stdout), String::from_utf8_lossy(&held.stderr));
    assert!(said.contains("trace.parquet cannot be written: no room is left on"), "{said}");
    assert!(shown.contains(", seen by ") && held.status.code() == Some(1), "{:?}\n{shown}", held.status);
}
