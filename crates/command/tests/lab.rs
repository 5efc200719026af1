//! The agent on a host of backend lab, which it changes. `-- --ignored` runs this, which needs root.

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::process::{Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use serde_json::{json, Value};

#[test]
#[ignore = "needs root"]
fn an_agent_whose_guardian_was_killed_changes_nothing_more() {
    let scratch = tempfile::tempdir().unwrap();
    let mut agent = Command::new(env!("CARGO_BIN_EXE_brobust-host"))
        .args(["lab", "agent"])
        .env("BROBUST_RUNTIME", scratch.path().join("run"))
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let (mut requests, mut replies) = (agent.stdin.take().unwrap(), BufReader::new(agent.stdout.take().unwrap()));
    let mut next = || {
        let mut line = String::new();
        replies.read_line(&mut line).unwrap();
        serde_json::from_str::<Value>(&line).unwrap()
    };
    assert!(next()["ready"].is_string());
    let change = |id: u32| json!({"id": id, "change": "nothing", "undo": ["true"]});
    writeln!(requests, "{}", change(1)).unwrap();
    assert_eq!(next(), json!({"id": 1, "recorded": true}));
    let children = fs::read_to_string(format!("/proc/{0}/task/{0}/children", agent.id())).unwrap();
    let guardian: i32 = children.split_whitespace().next().unwrap().parse().unwrap();
    assert!(fs::read_to_string(format!("/proc/{guardian}/cmdline")).unwrap().contains("guard"));
    // SAFETY: plain numbers.
    assert_eq!(unsafe { libc::kill(guardian, libc::SIGKILL) }, 0);
    let begun = Instant::now();
    while fs::metadata(format!("/proc/{guardian}/fd/0")).is_ok() && begun.elapsed() < Duration::from_secs(10) {
        sleep(Duration::from_millis(10));
    }
    writeln!(requests, "{}", change(2)).unwrap();
    let refused = next();
    drop(requests);
    assert!(agent.wait().unwrap().success());
    assert!(refused["error"].as_str().is_some_and(|why| why.contains("guardian")), "{refused}");
}

#[test]
fn a_silence_that_is_no_time_is_refused_in_one_line() {
    for silence in ["1e19", "nan", "-1", "x"] {
        let mut agent = Command::new(env!("CARGO_BIN_EXE_brobust-host"));
        let refused = agent.args(["lab", "agent", &format!("--silence={silence}")]).output().unwrap();
        let said = String::from_utf8_lossy(&refused.stderr);
        assert!(said.contains("'--silence <SILENCE>': give a number from 0 to 31622400"), "{said}");
        assert_eq!((refused.status.code(), said.lines().count()), (Some(2), 1), "{said}");
    }
}
