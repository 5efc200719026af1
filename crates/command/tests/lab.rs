//! The agent on a host of backend lab, which it changes. `-- --ignored` runs this, which needs root.

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use brobust_host::eventually;
use serde_json::{json, Value};

fn agent(scratch: &Path, more: &[&str]) -> Child {
    let mut agent = Command::new(env!("CARGO_BIN_EXE_brobust-host"));
    agent.args(["lab", "agent"]).args(more).env("BROBUST_RUNTIME", scratch.join("run"));
    agent.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
}

#[test]
#[ignore = "needs root"]
fn an_agent_whose_guardian_was_killed_changes_nothing_more() {
    let scratch = tempfile::tempdir().unwrap();
    let mut agent = agent(scratch.path(), &[]);
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
    eventually(Duration::from_secs(60), || fs::metadata(format!("/proc/{guardian}/fd/0")).is_err());
    writeln!(requests, "{}", change(2)).unwrap();
    let refused = next();
    drop(requests);
    assert!(agent.wait().unwrap().success());
    assert!(refused["error"].as_str().is_some_and(|why| why.contains("guardian")), "{refused}");
}

#[test]
#[ignore = "needs root"]
fn of_an_agent_that_is_stopped_what_it_changed_is_undone_and_that_is_said() {
    let scratch = tempfile::tempdir().unwrap();
    let undone = scratch.path().join("undone");
    // Longer than a busy machine keeps this test from its CPU: after so long the agent ends by itself.
    let mut agent = agent(scratch.path(), &["--silence", "5"]);
    let change = json!({"id": 1, "change": "a file", "undo": ["touch", undone]});
    writeln!(agent.stdin.as_mut().unwrap(), "{change}").unwrap();
    let mut replies = BufReader::new(agent.stdout.take().unwrap()).lines();
    assert!(replies.any(|line| line.unwrap().contains("recorded")));
    // SAFETY: plain numbers.
    assert_eq!(unsafe { libc::kill(agent.id() as i32, libc::SIGSTOP) }, 0);
    let pid = agent.id();
    let said = agent.wait_with_output().unwrap().stderr;
    let said = String::from_utf8_lossy(&said);
    let wanted = format!(
        "brobust: process {pid} was stopped or stuck for 10 s; it was killed, and what it had changed is undone\n"
    );
    assert_eq!(said, wanted);
    assert!(undone.exists());
}

#[test]
fn an_agent_removes_its_copy_and_nothing_beside_it() {
    let scratch = tempfile::tempdir().unwrap();
    for beside in [true, false] {
        let place = scratch.path().join(beside.to_string());
        fs::create_dir(&place).unwrap();
        let program = place.join("brobust-host");
        // Another process copies it: what a test beside this one starts meanwhile would have a copy of ours open for
        // writing until it is exec'ed, and then the program cannot be started (ETXTBSY).
        let copied = Command::new("cp").arg(env!("CARGO_BIN_EXE_brobust-host")).arg(&program).status().unwrap();
        assert!(copied.success());
        if beside {
            fs::write(place.join("theirs"), "").unwrap();
        }
        let mut agent = Command::new(&program);
        agent.args(["lab", "agent", "--remove"]).arg(&place).env("BROBUST_RUNTIME", scratch.path().join("run"));
        agent.stdin(Stdio::null()).output().unwrap();
        assert!(!program.exists());
        assert_eq!((place.join("theirs").exists(), place.exists()), (beside, beside));
    }
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
