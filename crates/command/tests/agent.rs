//! The agent as the host sees it, over a unix socket and over a tty.

use std::fs;
use std::io::{self, BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command};
use std::thread;
use std::time::{Duration, Instant};

use brobust_host::{eventually, Stat};
use serde_json::{json, Value};
use tempfile::TempDir;

struct Agent {
    process: Child,
    /// Where its socket is.
    scratch: TempDir,
}

impl Agent {
    fn start() -> (Agent, Host) {
        Agent::start_after(|| Ok(()))
    }

    /// `prepare` is called in the process that becomes the agent.
    fn start_after(prepare: fn() -> io::Result<()>) -> (Agent, Host) {
        let scratch = tempfile::tempdir().unwrap();
        let mut command = Command::new(env!("CARGO_BIN_EXE_brobust-host"));
        // SAFETY: what is prepared takes system calls alone.
        unsafe { command.pre_exec(prepare) };
        let process = command.args(["lab", "agent"]).arg(scratch.path().join("agent")).spawn().unwrap();
        let agent = Agent { process, scratch };
        let host = agent.connect();
        (agent, host)
    }

    fn connect(&self) -> Host {
        let (socket, mut stream) = (self.scratch.path().join("agent"), None);
        let has_connected = || {
            stream = UnixStream::connect(&socket).ok();
            stream.is_some()
        };
        assert!(eventually(Duration::from_secs(30), has_connected), "the agent does not listen");
        let requests = stream.unwrap();
        Host { replies: BufReader::new(requests.try_clone().unwrap()), requests }
    }

    /// Returns the CPU time that the agent has used, in clock ticks.
    fn cpu_ticks(&self) -> u64 {
        Stat::read(self.process.id() as i32).unwrap().cpu_ticks
    }

    fn children(&self) -> Vec<String> {
        let tasks = fs::read_dir(format!("/proc/{}/task", self.process.id())).unwrap();
        tasks
            .flatten()
            .filter_map(|task| fs::read_to_string(task.path().join("children")).ok())
            .flat_map(|line| line.split_whitespace().map(str::to_owned).collect::<Vec<_>>())
            .collect()
    }
}

impl Drop for Agent {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

struct Host {
    requests: UnixStream,
    replies: BufReader<UnixStream>,
}

impl Host {
    fn send(&mut self, request: Value) {
        writeln!(self.requests, "{request}").unwrap();
    }

    fn reply(&mut self) -> Value {
        let mut line = String::new();
        self.replies.read_line(&mut line).unwrap();
        serde_json::from_str(&line).unwrap()
    }

    fn ask(&mut self, request: Value) -> Value {
        self.send(request);
        self.reply()
    }
}

#[test]
fn a_command_is_run_and_its_end_reported() {
    let (_agent, mut host) = Agent::start();
    let reply = host.ask(json!({"id": 1, "argv": ["sh", "-c", "echo yes; echo no >&2; exit 3"]}));
    assert_eq!(reply, json!({"id": 1, "status": 3, "stdout": "yes\n", "stderr": "no\n"}));
    let reply = host.ask(json!({"id": 2, "argv": ["/no/such/program"]}));
    assert!(reply["error"].as_str().unwrap().contains("/no/such/program"), "{reply}");
    assert_eq!(host.ask(json!({"id": 3, "ping": true})), json!({"id": 3, "pong": true}));
}

#[test]
fn a_waiting_request_does_not_block_others() {
    let (_agent, mut host) = Agent::start();
    let gate = Gate::new();
    host.send(json!({"id": 1, "argv": ["cat", gate.path()]}));
    host.send(json!({"id": 2, "ping": true}));
    assert_eq!(host.reply()["id"], 2);
    gate.open();
    assert_eq!(host.reply()["id"], 1);
}

#[test]
fn a_spawned_command_can_be_killed_and_waited_for_once() {
    let (_agent, mut host) = Agent::start();
    let gate = Gate::new();
    let script = format!("echo up; cat {}; sleep 100 & wait", gate.path());
    let pid = host.ask(json!({"id": 1, "spawn": true, "argv": ["sh", "-c", script]}))["pid"].clone();
    gate.open();
    let reply = host.ask(json!({"id": 2, "wait": pid, "timeout_s": 1}));
    assert!(reply["error"].as_str().unwrap().contains("still running"), "{reply}");
    assert_eq!(host.ask(json!({"id": 3, "kill": pid})), json!({"id": 3, "killed": true}));
    let reply = host.ask(json!({"id": 4, "wait": pid}));
    assert_eq!(reply, json!({"id": 4, "status": -15, "stdout": "up\n", "stderr": ""}));
    assert!(host.ask(json!({"id": 5, "wait": pid}))["error"].is_string());
    assert!(host.ask(json!({"id": 6, "kill": 1}))["error"].is_string());
}

#[test]
fn a_command_whose_time_is_up_is_ended_with_its_children() {
    let (_agent, mut host) = Agent::start();
    let started = Instant::now();
    let reply = host.ask(json!({"id": 1, "argv": ["sh", "-c", "echo part; sleep 100"], "timeout_s": 3}));
    assert_eq!(reply, json!({"id": 1, "status": -15, "stdout": "part\n", "stderr": "", "timed_out": true}));
    let stubborn = "trap '' TERM; while :; do sleep 0.05; done";
    let reply = host.ask(json!({"id": 2, "argv": ["sh", "-c", stubborn], "timeout_s": 3}));
    assert_eq!(reply["status"], -9);
    assert!(started.elapsed() < Duration::from_secs(50));
}

#[test]
fn a_command_that_a_real_time_signal_ends_is_reported_and_the_next_one_served() {
    let (_agent, mut host) = Agent::start();
    host.requests.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    let number = libc::SIGRTMIN();
    let reply = host.ask(json!({"id": 1, "argv": ["sh", "-c", format!("kill -{number} $$")]}));
    assert_eq!(reply, json!({"id": 1, "status": -number, "stdout": "", "stderr": ""}));
    assert_eq!(host.ask(json!({"id": 2, "argv": ["true"]}))["status"], 0);
}

/// A named pipe: what opens it to read waits until the test opens it to write.
struct Gate {
    scratch: TempDir,
}

impl Gate {
    fn new() -> Gate {
        let gate = Gate { scratch: tempfile::tempdir().unwrap() };
        nix::unistd::mkfifo(gate.path().as_str(), nix::sys::stat::Mode::S_IRWXU).unwrap();
        gate
    }

    fn path(&self) -> String {
        self.scratch.path().join("gate").to_str().unwrap().to_owned()
    }

    /// Lets go who waits; this waits until somebody does.
    fn open(&self) {
        fs::OpenOptions::new().write(true).open(self.path()).unwrap();
    }
}

/// Makes pidfd_open(2) fail in this process, as a container's rules for system calls may.
fn refuse_pidfds() -> io::Result<()> {
    let step = |code: u32, jt, jf, k| libc::sock_filter { code: code as u16, jt, jf, k };
    let mut steps = [
        step(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 0, 0, 0), // the number of the call
        step(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K, 0, 1, libc::SYS_pidfd_open as u32),
        step(libc::BPF_RET | libc::BPF_K, 0, 0, libc::SECCOMP_RET_ERRNO | libc::EMFILE as u32),
        step(libc::BPF_RET | libc::BPF_K, 0, 0, libc::SECCOMP_RET_ALLOW),
    ];
    let program = libc::sock_fprog { len: steps.len() as u16, filter: steps.as_mut_ptr() };
    // SAFETY: the program lives as long as the calls.
    let refused = unsafe {
        libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0
            || libc::prctl(libc::PR_SET_SECCOMP, libc::SECCOMP_MODE_FILTER, &raw const program) != 0
    };
    if refused {
        Err(io::Error::last_os_error())
    } else {
        Ok(())
    }
}

#[test]
fn a_command_that_cannot_be_watched_is_ended_with_its_children_and_not_left_to_run() {
    let (agent, mut host) = Agent::start_after(refuse_pidfds);
    for (id, spawn) in [(1, false), (2, true)] {
        let reply = host.ask(json!({"id": id, "spawn": spawn, "argv": ["sh", "-c", "sleep 100 & wait"]}));
        assert!(reply["error"].as_str().unwrap().contains("cannot watch sh"), "{reply}");
        assert_eq!(agent.children(), Vec::<String>::new());
    }
}

#[test]
fn a_request_for_which_there_is_no_thread_is_answered_too() {
    let (agent, mut host) = Agent::start();
    host.requests.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    host.ask(json!({"id": 0, "ping": true}));
    // Less than a thread's stack is left.
    let pid = agent.process.id();
    let pages: u64 =
        fs::read_to_string(format!("/proc/{pid}/statm")).unwrap().split(' ').next().unwrap().parse().unwrap();
    let limit = pages * 4096 + 128 * 1024;
    let limits = libc::rlimit { rlim_cur: limit, rlim_max: limit };
    // SAFETY: numbers that live as long as the call.
    assert_eq!(unsafe { libc::prlimit(pid as i32, libc::RLIMIT_AS, &limits, std::ptr::null_mut()) }, 0);
    for request in [json!({"id": 1, "argv": ["true"]}), json!({"id": 1, "wait": 1})] {
        let reply = host.ask(request);
        assert!(reply["error"].as_str().unwrap().contains("cannot start a thread"), "{reply}");
    }
    assert_eq!(host.ask(json!({"id": 2, "kill": 1}))["id"], 2);
}

#[test]
fn a_daemon_left_behind_does_not_hold_up_the_reply() {
    let (_agent, mut host) = Agent::start();
    let started = Instant::now();
    let reply = host.ask(json!({"id": 1, "argv": ["sh", "-c", "sleep 20 & echo started"]}));
    assert_eq!(reply["stdout"], "started\n");
    assert!(started.elapsed() < Duration::from_secs(10));
}

#[test]
fn a_bad_request_is_answered_and_the_next_one_served() {
    let (_agent, mut host) = Agent::start();
    host.requests.write_all(b"\xff{{{\n\n{\"id\":4,\"frobnicate\":1}\n").unwrap();
    assert_eq!(host.reply()["id"], Value::Null);
    let reply = host.reply();
    assert_eq!(reply["id"], 4);
    assert!(reply["error"].as_str().unwrap().contains("frobnicate"), "{reply}");
    assert_eq!(host.ask(json!({"id": 5, "argv": ["true"]}))["status"], 0);
}

#[test]
fn the_next_host_is_served_and_does_not_get_replies_to_the_last() {
    let (agent, mut first) = Agent::start();
    let gate = Gate::new();
    first.send(json!({"id": 1, "argv": ["cat", gate.path()]}));
    let pid = first.ask(json!({"id": 2, "spawn": true, "argv": ["sh", "-c", "sleep 0.5; echo kept"]}))["pid"].clone();
    drop(first);
    let mut second = agent.connect();
    assert_eq!(second.ask(json!({"id": 0, "ping": true}))["id"], 0);
    gate.open();
    let reply = second.ask(json!({"id": 1, "wait": pid, "timeout_s": 60}));
    assert_eq!(reply["stdout"], "kept\n");
}

#[test]
fn a_tty_serves_as_a_port_too() {
    let pty = nix::pty::openpty(None, None).unwrap();
    let path = nix::unistd::ttyname(&pty.slave).unwrap();
    let mut agent = Command::new(env!("CARGO_BIN_EXE_brobust-host")).args(["lab", "agent"]).arg(&path).spawn().unwrap();
    let mut master = fs::File::from(pty.master);
    let mut replies = BufReader::new(master.try_clone().unwrap());
    // Once the agent answers, the tty is raw and does not echo.
    let mut line = String::new();
    while !line.contains(r#""id":1,"pong""#) {
        line.clear();
        writeln!(master, r#"{{"id":1,"ping":true}}"#).unwrap();
        replies.read_line(&mut line).unwrap();
    }
    // This is longer than a line of a tty that is not raw.
    let text = "x".repeat(10_000);
    writeln!(master, "{}", json!({"id": 2, "argv": ["printf", "%s", text]})).unwrap();
    while !line.contains(r#""id":2"#) {
        line.clear();
        replies.read_line(&mut line).unwrap();
    }
    let reply: Value = serde_json::from_str(&line).unwrap();
    assert_eq!(reply["stdout"].as_str().unwrap().len(), text.len());
    agent.kill().unwrap();
    agent.wait().unwrap();
}

#[test]
fn an_idle_agent_uses_no_cpu_and_leaves_no_zombies() {
    let (agent, mut host) = Agent::start();
    for id in 0..50 {
        host.send(json!({"id": id, "argv": ["true"]}));
    }
    for _ in 0..50 {
        assert_eq!(host.reply()["status"], 0);
    }
    assert_eq!(agent.children(), Vec::<String>::new());
    // On a busy machine the threads of the requests may still have to end.
    let is_idle = || {
        let before = agent.cpu_ticks();
        thread::sleep(Duration::from_millis(500));
        agent.cpu_ticks() - before <= 1
    };
    assert!((0..20).any(|_| is_idle()));
}
