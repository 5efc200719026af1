//! On the running kernel: namespaces that do not exist, are not allowed, fail, or are empty.
//! `-- --ignored` runs what needs root.

use std::fs::{self, File};
use std::io::Write;
use std::net::{TcpListener, TcpStream};
use std::os::fd::OwnedFd;
use std::process::{Child, Command, Stdio};
use std::time::Duration;
use std::{panic, thread};

use brobust_host::eventually;
use brobust_sockdiag::Filter;
use brobust_watch::{Namespaces, Settings, SweepReport, Watch};
use nix::libc;
use nix::sched::{unshare, CloneFlags};
use nix::unistd::gettid;

const NOBODY: u32 = 65534;

/// Returns both ends of a connection, and the filter that finds its first end.
fn connection() -> (TcpStream, TcpStream, Filter) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let (server, address) = listener.accept().unwrap();
    (client, server, Filter { local_port: Some(address.port()), ..Filter::default() })
}

fn settings(namespaces: Namespaces, filter: Filter) -> Settings {
    Settings { namespaces, filter, window: Duration::from_secs(10), host_root: "/".into() }
}

fn sweep(watch: &mut Watch, state_maps: Vec<OwnedFd>) -> SweepReport {
    watch.sweep(state_maps, 10)
}

struct Ended(Child);

impl Drop for Ended {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Starts a process in a new network namespace.
fn elsewhere(uid: u32) -> Ended {
    let program =
        ["--net", "setpriv", "--reuid", &uid.to_string(), "--clear-groups", "sleep", "100"].map(str::to_owned);
    let child = Ended(Command::new("unshare").args(program).stdin(Stdio::null()).spawn().unwrap());
    let name = format!("/proc/{}/comm", child.0.id());
    let is_there = || fs::read_to_string(&name).is_ok_and(|name| name.trim() == "sleep");
    assert!(eventually(Duration::from_secs(60), is_there), "unshare and setpriv did not start sleep");
    child
}

/// Runs a test in a thread in a new network namespace, whose path it is given.
fn in_new_namespace(test: impl FnOnce(Namespaces) + Send) {
    let enter_and_test = || {
        unshare(CloneFlags::CLONE_NEWNET).unwrap();
        ip("link set lo up");
        test(Namespaces::Of(format!("/proc/self/task/{}/ns/net", gettid())));
    };
    thread::scope(|scope| scope.spawn(enter_and_test).join()).unwrap_or_else(|panic| panic::resume_unwind(panic));
}

fn ip(words: &str) {
    let done = Command::new("ip").args(words.split(' ')).status();
    assert!(done.is_ok_and(|status| status.success()), "`ip {words}` failed");
}

/// Returns what is no BPF map, so that the kernel refuses each dump.
fn no_map() -> Vec<OwnedFd> {
    vec![File::open("/dev/null").unwrap().into()]
}

#[test]
fn a_reader_that_fails_is_reported_and_opened_again() {
    let (_client, _server, filter) = connection();
    let mut watch = Watch::new(settings(Namespaces::Own, filter)).unwrap();
    assert_eq!(sweep(&mut watch, vec![]).sockets, 1);
    let report = sweep(&mut watch, no_map());
    assert_eq!(report.sockets, 0);
    assert!(matches!(&report.unread[..], [reason] if reason.contains("refused")), "{:?}", report.unread);
    let report = sweep(&mut watch, vec![]);
    assert_eq!((report.sockets, report.unread.len(), report.flows[0].evidence.samples), (1, 0, 2));
}

#[test]
#[ignore = "needs root"]
fn without_privilege_the_own_namespace_is_read_and_the_others_are_reported() {
    let (_client, _server, filter) = connection();
    let (of_root, of_nobody) = (elsewhere(0), elsewhere(NOBODY));
    let privileged = sweep(&mut Watch::new(settings(Namespaces::All, filter)).unwrap(), vec![]);
    let unprivileged = thread::spawn(move || {
        // SAFETY: no memory is involved. The system call, unlike the function of libc, changes this thread alone.
        assert_eq!(unsafe { libc::syscall(libc::SYS_setresuid, NOBODY, NOBODY, NOBODY) }, 0);
        sweep(&mut Watch::new(settings(Namespaces::All, filter)).unwrap(), vec![])
    });
    let unprivileged = unprivileged.join().unwrap();
    let says = |report: &SweepReport, words: &str| report.unread.iter().any(|reason| reason.contains(words));

    let (pid_of_root, pid_of_nobody) = (format!("pid {}:", of_root.0.id()), format!("pid {}:", of_nobody.0.id()));
    let knows_all = [&pid_of_root, &pid_of_nobody].iter().all(|words| !says(&privileged, words));
    assert!(knows_all, "{:?}", privileged.unread);
    assert_eq!((privileged.sockets, unprivileged.sockets), (1, 1));
    let refused = unprivileged.unread.iter().find(|reason| reason.contains(&pid_of_nobody));
    assert!(refused.is_some_and(|reason| reason.contains("CAP_SYS_ADMIN")), "{:?}", unprivileged.unread);
    assert!(says(&unprivileged, "hidden from us"), "{:?}", unprivileged.unread);
}

#[test]
#[ignore = "needs root"]
fn a_namespace_that_goes_is_reported_and_one_that_comes_back_is_read() {
    let name = format!("brobust-test-{}", std::process::id());
    let ip = |verb: &str| Command::new("ip").args(["netns", verb, &name]).status().is_ok_and(|status| status.success());
    assert!(ip("add"), "`ip netns add {name}` failed");
    let named = || settings(Namespaces::Of(name.clone()), Filter::default());
    let mut watch = Watch::new(named()).unwrap();
    let there = sweep(&mut watch, vec![]);
    assert!(ip("delete"));
    let gone = sweep(&mut watch, vec![]);
    assert!(ip("add"));
    let back = sweep(&mut watch, vec![]);
    assert!(ip("delete"));

    assert!(there.unread.is_empty() && back.unread.is_empty());
    assert!(matches!(&gone.unread[..], [reason] if reason.contains("is not a network namespace")), "{:?}", gone.unread);
    assert!(Watch::new(named()).is_err());
}

#[test]
#[ignore = "needs root"]
fn a_namespace_without_connections_is_dumped_at_every_tenth_sweep_only() {
    in_new_namespace(|namespaces| {
        let _listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut watch = Watch::new(settings(namespaces, Filter::default())).unwrap();
        for _ in 0..3 {
            assert!(sweep(&mut watch, vec![]).unread.is_empty());
            let dumped = (1..50).find(|_| !sweep(&mut watch, no_map()).unread.is_empty());
            assert!(dumped.is_some_and(|sweeps| (10..=20).contains(&sweeps)), "{dumped:?}");
        }
    });
}

#[test]
#[ignore = "needs root"]
fn a_flow_that_begins_in_a_namespace_that_was_not_dumped_is_seen_at_the_next_sweep() {
    in_new_namespace(|namespaces| {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut watch = Watch::new(settings(namespaces, Filter::default())).unwrap();
        let not_dumped = |watch: &mut Watch| {
            assert_eq!(sweep(watch, vec![]).sockets, 0);
            assert!(sweep(watch, no_map()).unread.is_empty());
        };
        not_dumped(&mut watch);
        let connect = || (TcpStream::connect(listener.local_addr().unwrap()).unwrap(), listener.accept().unwrap());
        let ends = connect();
        assert_eq!(sweep(&mut watch, vec![]).sockets, 2);
        drop(ends);
        let (mut client, server) = connect();
        // Both ends still send when none is established any more.
        ip("link set lo down");
        client.write_all(b"more").unwrap();
        drop((client, server));
        assert_eq!(sweep(&mut watch, vec![]).sockets, 2);
    });
}

#[test]
#[ignore = "needs root"]
fn a_namespace_in_which_a_connection_is_being_opened_is_dumped_at_each_sweep() {
    in_new_namespace(|namespaces| {
        // Nobody has this address behind the device, so no SYN is answered.
        ip("link add end1 type veth peer name end2");
        ip("link set end1 up");
        ip("link set end2 up");
        ip("address add 192.0.2.1/24 dev end1");
        ip("neighbour add 192.0.2.2 lladdr 02:00:00:00:00:02 dev end1");
        thread::spawn(|| TcpStream::connect_timeout(&"192.0.2.2:9".parse().unwrap(), Duration::from_secs(60)));
        let is_opening = || fs::read_to_string("/proc/thread-self/net/tcp").is_ok_and(|all| all.contains(" 02 "));
        assert!(eventually(Duration::from_secs(30), is_opening), "no socket is in SYN_SENT");
        let mut watch = Watch::new(settings(namespaces, Filter::default())).unwrap();
        let report = sweep(&mut watch, vec![]);
        assert_eq!((report.sockets, report.unread.len()), (0, 0));
        assert_eq!(sweep(&mut watch, no_map()).unread.len(), 1);
    });
}
