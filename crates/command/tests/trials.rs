//! What commands find of trials whose commands were killed, and in other namespaces. `-- --ignored` runs this, which needs
//! root.

use std::fs;
use std::io::Read;
use std::process::{Child, Command, Output, Stdio};
use std::time::Duration;

use brobust_host::eventually;
use serde_json::Value;

const PROGRAM: &str = env!("CARGO_BIN_EXE_brobust-host");

/// Starts a process in a new network namespace, which waits.
fn elsewhere() -> Child {
    let mut process = Command::new("unshare");
    process.args(["--net", "sh", "-c", "echo begun; read end"]).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut process = process.spawn().unwrap();
    process.stdout.as_mut().unwrap().read_exact(&mut [0; 6]).unwrap();
    process
}

/// As if the trials of these controls were abandoned and both were still loaded: in a place where /run, and what the kernel
/// says of its controls, are ours. Ends with the names of the journals that are left.
const PLACE: &str = r#"
    mount -t tmpfs none /run && mkdir -m 755 /run/brobust-cc || exit 9
    # One was killed before it had pinned anything.
    mount -t tmpfs none /sys/fs/bpf && mkdir /sys/fs/bpf/brobust || exit 9
    for name in brb_cubic brb_reno; do
        journal="{\"name\": \"$name\", \"pinned\": false, \"owner\": \"4194305-1\", \"defaults\": {}}"
        echo "$journal" >/run/brobust-cc/$name.json
    done
    echo reno cubic brb_reno >/run/controls
    mount --bind /run/controls /proc/sys/net/ipv4/tcp_available_congestion_control || exit 9
    setpriv --bounding-set=-all --inh-caps=-all -- "$@" >/run/said
    echo "status $?"
    grep ^removed /run/said
    ls /run/brobust-cc /sys/fs/bpf | grep -v '^/\|^$'
"#;

fn without_capabilities(arguments: &[&str]) -> Output {
    let mut command = Command::new("unshare");
    command.args(["--mount", "sh", "-c", PLACE, "sh", PROGRAM]).args(arguments).output().unwrap()
}

#[test]
#[ignore = "needs root"]
fn who_cannot_unload_a_control_keeps_its_journal_and_goes_on() {
    let listed = without_capabilities(&["cc", "list"]);
    let (out, said) = (String::from_utf8_lossy(&listed.stdout), String::from_utf8_lossy(&listed.stderr));
    // One is not loaded any more, so nothing of it is left.
    assert_eq!(out.lines().collect::<Vec<_>>(), ["status 0", "brb_reno.json", "lock"], "{said}");
    assert!(said.contains("unloaded brb_cubic, left by a trial"), "{said}");
    assert!(said.contains("not undone: brb_reno (loading a congestion control takes CAP_SYS_ADMIN"), "{said}");
    let cleaned = without_capabilities(&["doctor", "--clean"]);
    let (out, said) = (String::from_utf8_lossy(&cleaned.stdout), String::from_utf8_lossy(&cleaned.stderr));
    let removed = "removed congestion control brb_cubic";
    assert_eq!(out.lines().collect::<Vec<_>>(), ["status 2", removed, "brb_reno.json", "lock"], "{said}");
    assert!(said.contains("these could not be removed: brb_reno ("), "{said}");
}

#[test]
#[ignore = "needs root"]
fn namespaces_for_which_there_are_no_files_cost_those_that_are_read_nothing() {
    let elsewhere: Vec<_> = (0..30).map(|_| elsewhere()).collect();
    let watched = Command::new("prlimit")
        .args(["--nofile=32:32", PROGRAM, "watch", "--netns", "all", "--json", "--count", "4"])
        .args(["--interval", "50ms", "--window", "1s"])
        .output()
        .unwrap();
    for mut process in elsewhere {
        process.kill().and_then(|()| process.wait()).unwrap();
    }
    let sweeps: Vec<Value> =
        String::from_utf8_lossy(&watched.stdout).lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(sweeps.len(), 4, "{}", String::from_utf8_lossy(&watched.stderr));
    for sweep in sweeps {
        let unread: Vec<&str> = sweep["unread"].as_array().unwrap().iter().map(|why| why.as_str().unwrap()).collect();
        let left_out = unread.iter().filter(|why| why.ends_with("raise ulimit -n")).count();
        assert!(left_out >= 10 && !unread.iter().any(|why| why.contains("open files")), "{unread:?}");
    }
}

#[test]
#[ignore = "needs root"]
fn of_a_namespace_that_goes_it_is_unknown_whether_a_socket_is_short_of_cpu() {
    let name = format!("brobust-once-{}", std::process::id());
    let ip = |verb: &str| Command::new("ip").args(["netns", verb, &name]).status().is_ok_and(|status| status.success());
    assert!(ip("add"), "`ip netns add {name}` failed");
    let once = || {
        let mut watch = Command::new(PROGRAM);
        watch.args(["watch", "--once", "--netns", &name, "--filter", "sport 1"]);
        watch.args(["--interval", "500ms", "--window", "2s"]);
        watch.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
    };
    let read = once().wait_with_output().unwrap();
    let watched = once();
    let has_begun = || {
        let files = fs::read_dir(format!("/proc/{}/fd", watched.id())).unwrap().flatten();
        files.filter_map(|file| fs::read_link(file.path()).ok()).any(|to| to.to_string_lossy().starts_with("socket:"))
    };
    eventually(Duration::from_secs(30), has_begun);
    // On a busy machine it might be over before the namespace goes.
    let signal = |number| unsafe { libc::kill(watched.id() as i32, number) }; // SAFETY: plain numbers.
    assert_eq!(signal(libc::SIGSTOP), 0);
    assert!(ip("delete"));
    assert_eq!(signal(libc::SIGCONT), 0);
    let gone = watched.wait_with_output().unwrap();
    assert_eq!(read.status.code(), Some(0), "{}", String::from_utf8_lossy(&read.stderr));
    let said = String::from_utf8_lossy(&gone.stderr);
    assert_eq!((gone.status.code(), said.lines().count()), (Some(2), 1), "{said}");
    assert!(said.contains("whether one is short of CPU is unknown"), "{said}");
}

#[test]
#[ignore = "needs root"]
fn a_namespace_that_has_ended_goes_although_the_next_sweep_is_far() {
    let name = format!("brobust-far-{}", std::process::id());
    let device = format!("brt{}", std::process::id());
    let ip = |words: &str| Command::new("ip").args(words.split(' ')).status().is_ok_and(|status| status.success());
    assert!(ip(&format!("netns add {name}")));
    assert!(ip(&format!("link add {device} type veth peer name inside netns {name}")));
    let mut watched = Command::new(PROGRAM)
        .args(["watch", "--netns", &name, "--interval", "600s", "--window", "2400s", "--serve", "127.0.0.1:0"])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    // It says where it serves when it has found the namespace.
    watched.stdout.as_mut().unwrap().read_exact(&mut [0; 8]).unwrap();
    assert!(ip(&format!("netns delete {name}")));
    let place = format!("/sys/class/net/{device}");
    let has_gone = eventually(Duration::from_secs(200), || !fs::exists(&place).unwrap());
    watched.kill().and_then(|()| watched.wait()).unwrap();
    assert!(has_gone, "the watch keeps it");
}

#[test]
#[ignore = "needs root"]
fn who_can_start_no_thread_is_told_so_in_one_line() {
    let mut elsewhere = elsewhere();
    let pid = elsewhere.id().to_string();
    for (words, why) in [
        (["--netns", &pid], "no thread can be started to enter it (resource temporarily unavailable)"),
        (["--serve", "127.0.0.1:0"], "cannot serve at 127.0.0.1:0: resource temporarily unavailable\n"),
    ] {
        let mut watch = Command::new(PROGRAM);
        // No thread gets a stack of so many bytes.
        let watched = watch.arg("watch").args(words).env("RUST_MIN_STACK", (1_u64 << 62).to_string()).output().unwrap();
        let said = String::from_utf8_lossy(&watched.stderr);
        assert_eq!((watched.status.code(), said.lines().count()), (Some(2), 1), "{said}");
        assert!(said.contains(why), "{said}");
    }
    elsewhere.kill().and_then(|()| elsewhere.wait()).unwrap();
}
