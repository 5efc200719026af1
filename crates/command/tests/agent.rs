//! The agent as the host sees it, over a unix socket and over a tty.

use std::fs;
use std::io::{self, BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, Command};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::{json, Value};

struct Agent {
    process: Child,
    socket: PathBuf,
}

impl Agent {
    fn start(name: &str) -> Agent {
        Agent::start_after(name, || Ok(()))
    }

    /// `prepare` is called in the process that becomes the agent.
    fn start_after(name: &str, prepare: fn() -> io::Result<()>) -> Agent {
        let socket = std::env::temp_dir().join(format!("brobust-agent-{}-{name}", std::process::id()));
        let mut command = Command::new(env!("CARGO_BIN_EXE_brobust-host"));
        // SAFETY: what is prepared takes system calls alone.
        unsafe { command.pre_exec(prepare) };
        Agent { process: command.args(["lab", "agent"]).arg(&socket).spawn().unwrap(), socket }
    }

    fn connect(&self) -> Host {
        let deadline = Instant::now() + Duration::from_secs(30);
        loop {
            match UnixStream::connect(&self.socket) {
                Ok(stream) => return Host { replies: BufReader::new(stream.try_clone().unwrap()), requests: stream },
                Err(_) if Instant::now() < deadline => thread::sleep(Duration::from_millis(10)),
                Err(error) => panic!("the agent does not listen: {error}"),
            }
        }
    }

    /// Returns the CPU time that the agent has used, in clock ticks.
    fn cpu_ticks(&self) -> u64 {
        let stat = fs::read_to_string(format!("/proc/{}/stat", self.process.id())).unwrap();
        let fields: Vec<&str> = stat.rsplit(") ").next().unwrap().split(' ').collect();
        fields[11].parse::<u64>().unwrap() + fields[12].parse::<u64>().unwrap()
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
        let _ = fs::remove_file(&self.socket);
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
    let agent = Agent::start("run");
    let mut host = agent.connect();
    let reply = host.ask(json!({"id": 1, "argv": ["sh", "-c", "echo yes; echo no >&2; exit 3"]}));
    assert_eq!(reply, json!({"id": 1, "status": 3, "stdout": "yes\n", "stderr": "no\n"}));
    let reply = host.ask(json!({"id": 2, "argv": ["/no/such/program"]}));
    assert!(reply["error"].as_str().unwrap().contains("/no/such/program"), "{reply}");
    assert_eq!(host.ask(json!({"id": 3, "ping": true})), json!({"id": 3, "pong": true}));
}

#[test]
fn a_waiting_request_does_not_block_others() {
    let agent = Agent::start("concurrent");
    let mut host = agent.connect();
    let gate = Gate::new();
    host.send(json!({"id": 1, "argv": ["cat", gate.path()]}));
    host.send(json!({"id": 2, "ping": true}));
    assert_eq!(host.reply()["id"], 2);
    gate.open();
    assert_eq!(host.reply()["id"], 1);
}

#[test]
fn a_spawned_command_can_be_killed_and_waited_for_once() {
    let agent = Agent::start("spawn");
    let mut host = agent.connect();
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
    let agent = Agent::start("timeout");
    let mut host = agent.connect();
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
    let agent = Agent::start("real-time");
    let mut host = agent.connect();
    host.requests.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    let number = libc::SIGRTMIN();
    let reply = host.ask(json!({"id": 1, "argv": ["sh", "-c", format!("kill -{number} $$")]}));
    assert_eq!(reply, json!({"id": 1, "status": -number, "stdout": "", "stderr": ""}));
    assert_eq!(host.ask(json!({"id": 2, "argv": ["true"]}))["status"], 0);
}

/// A named pipe: what opens it to read waits until the test opens it to write.
struct Gate {
    scratch: tempfile::TempDir,
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
    let agent = Agent::start_after("unwatched", refuse_pidfds);
    let mut host = agent.connect();
    for (id, spawn) in [(1, false), (2, true)] {
        let reply = host.ask(json!({"id": id, "spawn": spawn, "argv": ["sh", "-c", "sleep 100 & wait"]}));
        assert!(reply["error"].as_str().unwrap().contains("cannot watch sh"), "{reply}");
        assert_eq!(agent.children(), Vec::<String>::new());
    }
}

#[test]
fn a_request_for_which_there_is_no_thread_is_answered_too() {
    let agent = Agent::start("threads");
    let mut host = agent.connect();
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
    let agent = Agent::start("daemon");
    let mut host = agent.connect();
    let started = Instant::now();
    let reply = host.ask(json!({"id": 1, "argv": ["sh", "-c", "sleep 20 & echo started"]}));
    assert_eq!(reply["stdout"], "started\n");
    assert!(started.elapsed() < Duration::from_secs(10));
}

#[test]
fn large_outputs_pass() {
    let agent = Agent::start("large");
    let mut host = agent.connect();
    let reply = host.ask(json!({"id": 1, "argv": ["sh", "-c", "head -c 3145728 /dev/zero | tr '\\0' x"]}));
    assert_eq!(reply["stdout"].as_str().unwrap().len(), 3 << 20);
}

#[test]
fn a_bad_request_is_answered_and_the_next_one_served() {
    let agent = Agent::start("bad");
    let mut host = agent.connect();
    host.requests.write_all(b"\xff{{{\n\n{\"id\":4,\"frobnicate\":1}\n").unwrap();
    assert_eq!(host.reply()["id"], Value::Null);
    let reply = host.reply();
    assert_eq!(reply["id"], 4);
    assert!(reply["error"].as_str().unwrap().contains("frobnicate"), "{reply}");
    assert_eq!(host.ask(json!({"id": 5, "argv": ["true"]}))["status"], 0);
}

#[test]
fn the_next_host_is_served_and_does_not_get_replies_to_the_last() {
    let agent = Agent::start("reconnect");
    let mut first = agent.connect();
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
    let agent = Agent::start("idle");
    let mut host = agent.connect();
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
