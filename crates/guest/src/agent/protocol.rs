//! The agent's protocol: what a request may contain and how a reply looks.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::Value;

/// Time limit of a request that does not give one.
const DEFAULT_TIMEOUT: Duration = Duration::from_secs(30);
/// Longest time limit, a year: more is a mistake, and would overflow the arithmetic on deadlines.
const MAX_TIMEOUT_S: f64 = 366.0 * 86_400.0;

pub struct Request {
    pub id: Value,
    pub action: Action,
}

pub enum Action {
    /// Start a command, and answer when it has ended.
    Run(Command),
    /// Start a command, and answer with its process id.
    Spawn(Command),
    /// Wait for a spawned command to end, and answer with its outcome.
    Wait {
        pid: i32,
        timeout: Duration,
    },
    /// Tell a command and all its children to end.
    Kill {
        pid: i32,
    },
    /// Write down how a change is undone, before it is made.
    Record(Change),
    Ping,
}

/// A change of this machine that is about to be made, and the command that undoes it.
#[derive(Debug, PartialEq, Eq)]
pub struct Change {
    /// What is changed, for people.
    pub what: String,
    pub undo: Vec<String>,
}

pub struct Command {
    pub argv: Vec<String>,
    /// Time limit. None: no limit; a spawned command is ended by `kill`.
    pub timeout: Option<Duration>,
}

/// Why a line was not understood, and the id for the answer, which is null if the line has none.
pub struct BadRequest {
    pub id: Value,
    pub reason: String,
}

/// The fields as they stand on the line. An unknown name is an error, so that no typing error goes unnoticed.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Fields {
    id: Value,
    argv: Option<Vec<String>>,
    timeout_s: Option<f64>,
    #[serde(default)]
    spawn: bool,
    wait: Option<i32>,
    kill: Option<i32>,
    change: Option<String>,
    undo: Option<Vec<String>>,
    #[serde(default)]
    ping: bool,
}

pub fn parse(line: &[u8]) -> Result<Request, BadRequest> {
    let value: Value = serde_json::from_slice(line)
        .map_err(|error| BadRequest { id: Value::Null, reason: format!("not a JSON object on one line: {error}") })?;
    let id = value.get("id").cloned().unwrap_or(Value::Null);
    let bad = |reason: String| BadRequest { id: id.clone(), reason };
    let mut fields: Fields = serde_json::from_value(value).map_err(|error| bad(error.to_string()))?;
    let id = fields.id.take();
    let action = action(fields).map_err(bad)?;
    Ok(Request { id, action })
}

fn action(fields: Fields) -> Result<Action, String> {
    let timeout = fields.timeout_s.map(duration).transpose()?;
    if let (Some(what), Some(undo), None, None, None, false) =
        (&fields.change, &fields.undo, &fields.argv, fields.wait, fields.kill, fields.ping)
    {
        return match undo.is_empty() {
            false => Ok(Action::Record(Change { what: what.clone(), undo: undo.clone() })),
            true => Err("undo is empty: it must name a program".into()),
        };
    }
    if fields.change.is_some() || fields.undo.is_some() {
        return Err("a change comes with undo, and with nothing else".into());
    }
    match (fields.argv, fields.wait, fields.kill, fields.ping) {
        (Some(argv), None, None, false) => {
            if argv.is_empty() {
                return Err("argv is empty: it must name a program".into());
            }
            Ok(if fields.spawn {
                Action::Spawn(Command { argv, timeout })
            } else {
                Action::Run(Command { argv, timeout: Some(timeout.unwrap_or(DEFAULT_TIMEOUT)) })
            })
        }
        (None, Some(pid), None, false) => Ok(Action::Wait { pid, timeout: timeout.unwrap_or(DEFAULT_TIMEOUT) }),
        (None, None, Some(pid), false) => Ok(Action::Kill { pid }),
        (None, None, None, true) => Ok(Action::Ping),
        _ => Err("a request has exactly one of argv, wait, kill, change, ping".into()),
    }
}

fn duration(seconds: f64) -> Result<Duration, String> {
    if (0.0..=MAX_TIMEOUT_S).contains(&seconds) {
        Ok(Duration::from_secs_f64(seconds))
    } else {
        Err(format!("timeout_s {seconds} is not in 0..{MAX_TIMEOUT_S}"))
    }
}

/// How a command ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Outcome {
    /// Exit status, or minus the number of the signal that ended it.
    pub status: i32,
    pub stdout: String,
    pub stderr: String,
    /// Whether we ended the command because its time was up.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub timed_out: bool,
    /// Whether output beyond the limit was dropped.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub truncated: bool,
}

#[derive(Serialize)]
pub struct Reply {
    id: Value,
    #[serde(flatten)]
    answer: Answer,
}

#[derive(Serialize)]
#[serde(untagged)]
pub enum Answer {
    Finished(Outcome),
    Spawned {
        pid: i32,
    },
    /// False if the command had ended already, which is no error.
    Killed {
        killed: bool,
    },
    Pong {
        pong: bool,
    },
    Recorded {
        recorded: bool,
    },
    Error {
        error: String,
    },
}

impl Reply {
    pub fn new(id: Value, answer: Result<Answer, String>) -> Self {
        Reply { id, answer: answer.unwrap_or_else(|error| Answer::Error { error }) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reason(line: &str) -> (Value, String) {
        match parse(line.as_bytes()) {
            Ok(_) => panic!("{line} was accepted"),
            Err(bad) => (bad.id, bad.reason),
        }
    }

    #[test]
    fn a_request_with_argv_runs_a_command() {
        let request = parse(br#"{"id":1,"argv":["tc","-j"],"timeout_s":2.5}"#).ok().unwrap();
        let Action::Run(command) = request.action else { panic!("not a run") };
        assert_eq!(command.argv, ["tc", "-j"]);
        assert_eq!(command.timeout, Some(Duration::from_millis(2500)));
    }

    #[test]
    fn a_spawned_command_has_no_time_limit_of_its_own() {
        let request = parse(br#"{"id":"a","spawn":true,"argv":["iperf3","-s"]}"#).ok().unwrap();
        assert_eq!(request.id, "a");
        assert!(matches!(request.action, Action::Spawn(Command { timeout: None, .. })));
    }

    #[test]
    fn a_change_comes_with_the_command_that_undoes_it() {
        let request = parse(br#"{"id":1,"change":"qdisc of eth1","undo":["tc","qdisc"]}"#).ok().unwrap();
        let Action::Record(change) = request.action else { panic!("not a change") };
        assert_eq!((change.what.as_str(), change.undo), ("qdisc of eth1", vec!["tc".into(), "qdisc".into()]));
        assert_eq!(reason(r#"{"id":2,"change":"x","undo":[]}"#).0, 2);
        assert_eq!(reason(r#"{"id":3,"change":"x"}"#).0, 3);
        assert_eq!(reason(r#"{"id":4,"change":"x","undo":["tc"],"ping":true}"#).0, 4);
    }

    #[test]
    fn a_bad_request_keeps_its_id() {
        assert_eq!(reason(r#"{"id":7,"argv":[]}"#).0, 7);
        assert_eq!(reason(r#"{"id":8,"argvv":["x"]}"#).0, 8);
        assert_eq!(reason(r#"{"id":9,"ping":true,"wait":3}"#).0, 9);
        assert_eq!(reason(r#"{"id":10,"wait":3,"timeout_s":-1}"#).0, 10);
        assert_eq!(reason(r#"{"id":11,"wait":3,"timeout_s":1e300}"#).0, 11);
        assert_eq!(reason("{oops").0, Value::Null);
        assert_eq!(reason("[]").0, Value::Null);
    }

    #[test]
    fn replies_are_flat_objects() {
        let outcome =
            Outcome { status: 0, stdout: "x".into(), stderr: String::new(), timed_out: false, truncated: false };
        let text = serde_json::to_string(&Reply::new(1.into(), Ok(Answer::Finished(outcome)))).unwrap();
        assert_eq!(text, r#"{"id":1,"status":0,"stdout":"x","stderr":""}"#);
        let text = serde_json::to_string(&Reply::new(Value::Null, Err("no".into()))).unwrap();
        assert_eq!(text, r#"{"id":null,"error":"no"}"#);
    }
}
