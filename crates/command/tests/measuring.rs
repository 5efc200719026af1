//! What `brobust lab` runs on the machine of a sender or a receiver, beside its agent.

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::os::unix::process::CommandExt;
use std::process::{Command, Output, Stdio};
use std::thread;
use std::time::Duration;

use brobust_host::{eventually, Stat};
use serde_json::Value;

const PROGRAM: &str = env!("CARGO_BIN_EXE_brobust-host");

fn run(arguments: &[&str]) -> Output {
    Command::new(PROGRAM).arg("lab").args(arguments).output().unwrap()
}

/// A flow between two sockets of this host, which ends when this is dropped.
struct Flow {
    port: u16,
    socket: TcpStream,
    sender: Option<thread::JoinHandle<()>>,
}

impl Flow {
    fn start() -> Flow {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let mut client = TcpStream::connect(("127.0.0.1", port)).unwrap();
        let (mut server, _) = listener.accept().unwrap();
        let socket = client.try_clone().unwrap();
        let sender = thread::spawn(move || {
            let mut buffer = [0; 4096];
            while client.write_all(&buffer).and_then(|()| server.read_exact(&mut buffer)).is_ok() {
                thread::sleep(Duration::from_millis(5));
            }
        });
        Flow { port, socket, sender: Some(sender) }
    }
}

impl Drop for Flow {
    fn drop(&mut self) {
        let _ = self.socket.shutdown(Shutdown::Both);
        let _ = self.sender.take().map(thread::JoinHandle::join);
    }
}

/// Returns the lines of a recording. None: this kernel has no tcp_diag.
fn sampled(output: &Output) -> Option<Vec<Value>> {
    if !output.status.success() {
        let message = String::from_utf8_lossy(&output.stderr);
        assert!(message.contains("tcp_diag"), "{}: {message}", output.status);
        println!("skipped: {message}");
        return None;
    }
    Some(String::from_utf8_lossy(&output.stdout).lines().map(|line| serde_json::from_str(line).unwrap()).collect())
}

#[test]
fn samples_lie_on_a_grid_and_have_all_columns() {
    let flow = Flow::start();
    let output = run(&["sample", "--port", &flow.port.to_string(), "--interval-us", "10000", "--duration-s", "3"]);
    let Some(lines) = sampled(&output) else { return };
    let [head, rows @ .., tail] = &lines[..] else { panic!("{lines:?}") };
    let columns: Vec<&str> = head["columns"].as_array().unwrap().iter().map(|name| name.as_str().unwrap()).collect();
    let column = |row: &Value, name: &str| row[columns.iter().position(|known| *known == name).unwrap()].clone();
    assert!(rows.iter().all(|row| row.as_array().unwrap().len() == columns.len()));
    assert!(column(&rows[0], "cwnd_packets").as_u64().unwrap() > 0);
    let delivered = [&rows[0], rows.last().unwrap()].map(|row| column(row, "delivered_packets").as_u64());
    assert!(delivered[1] > delivered[0], "{delivered:?}");
    let (ticks, missed) = (tail["ticks"].as_u64().unwrap(), tail["missed_ticks"].as_u64().unwrap());
    // Also on a busy machine, since a tick that comes late moves no other one.
    assert_eq!(ticks + missed, 300, "{missed} were missed");
    assert_eq!(rows.len() as u64, ticks);
    assert_eq!(tail["sockets"][0]["remote"], format!("127.0.0.1:{}", flow.port));
}

#[test]
fn sampling_ends_with_its_results_on_sigterm() {
    let flow = Flow::start();
    let port = flow.port.to_string();
    let sampler = Command::new(PROGRAM)
        .args(["lab", "sample", "--port", &port, "--interval-us", "10000", "--duration-s", "600"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let catches_it = || {
        let status = fs::read_to_string(format!("/proc/{}/status", sampler.id())).unwrap();
        let mask = status.lines().find_map(|line| line.strip_prefix("SigCgt:\t")).unwrap();
        u64::from_str_radix(mask, 16).unwrap() >> (libc::SIGTERM - 1) & 1 == 1
    };
    eventually(Duration::from_secs(30), catches_it);
    // SAFETY: it is our child, and has not been waited for.
    unsafe { libc::kill(sampler.id() as i32, libc::SIGTERM) };
    let Some(lines) = sampled(&sampler.wait_with_output().unwrap()) else { return };
    assert!(lines.last().unwrap()["ticks"].is_u64(), "{lines:?}");
}

#[test]
fn bad_arguments_are_refused_in_one_line() {
    for arguments in [
        &["sample", "--port", "1", "--duration-s", "nan"][..],
        &["sample", "--port", "1", "--duration-s", "-1"],
        &["sample", "--port", "1", "--duration-s", "1", "--interval-us", "0"],
        &["sample", "--port", "70000", "--duration-s", "1"],
        &["cc", "load", "bbr_rubust"],
        &["agent", "/no/such/directory/socket"],
    ] {
        let output = run(arguments);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}");
        assert!(output.stdout.is_empty() && !output.stderr.is_empty(), "{arguments:?}");
    }
}

#[test]
fn loading_without_privilege_is_refused_with_the_remedy() {
    let mut command = Command::new(PROGRAM);
    command.args(["lab", "cc", "load", "bbr_robust"]);
    // SAFETY: this is one system call. It makes exec give root no capabilities; other users have none, and it fails for
    // them.
    unsafe {
        command.pre_exec(|| {
            libc::prctl(libc::PR_SET_SECUREBITS, libc::SECBIT_NOROOT);
            Ok(())
        });
    }
    let output = command.output().unwrap();
    let message = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(2));
    assert!(message.contains("sudo") && message.lines().count() == 1, "{message}");
}

#[test]
fn the_spinner_gives_way_and_dies_with_its_parent() {
    let script = format!("{PROGRAM} lab spin & echo $!; read end");
    let mut parent = Command::new("sh");
    parent.args(["-c", &script]).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut parent = parent.spawn().unwrap();
    let mut spinner = String::new();
    BufReader::new(parent.stdout.take().unwrap()).read_line(&mut spinner).unwrap();
    let spinner = spinner.trim().parse().unwrap();
    assert!(eventually(Duration::from_secs(60), || gives_way(spinner)), "the spinner does not give way");
    assert!(Stat::of_living(spinner).is_some());
    drop(parent.stdin.take());
    parent.wait().unwrap();
    // It has to run once more to end, and on a busy machine it gives way for long.
    assert!(
        eventually(Duration::from_secs(120), || Stat::of_living(spinner).is_none()),
        "the spinner outlives its parent"
    );
}

/// Whether its scheduling policy is SCHED_IDLE, which is when it is tied to its parent.
fn gives_way(pid: i32) -> bool {
    // SAFETY: plain numbers.
    unsafe { libc::sched_getscheduler(pid) == libc::SCHED_IDLE }
}
