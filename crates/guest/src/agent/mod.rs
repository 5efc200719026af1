//! The agent runs commands for brobust, which asks from the host over a virtio-serial port, or by ssh.
//!
//! Requests and replies are JSON objects, one per line. Every request gets exactly one reply, which has its `id`.
//! Replies come in the order in which requests finish: one that waits never delays another.

mod child;
mod collect;
mod jobs;
mod port;
mod protocol;

use std::path::Path;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use anyhow::Result;
use serde_json::Value;

use jobs::Jobs;
use port::{Port, Session};
use protocol::{Action, Answer, Reply, Request};

pub use protocol::Change;

/// Writes down how a change is undone, or says why it cannot.
type Record<'a> = &'a dyn Fn(Change) -> std::result::Result<(), String>;

/// Serves who asks over our standard input and output, until that ends or says nothing for `silence`. `alive` is called
/// for every request. Then all commands that still run are killed.
pub fn serve_standard(silence: Duration, record: Record<'_>, alive: &dyn Fn()) -> Result<()> {
    let jobs = Jobs::start(true);
    let mut port = Port::standard(silence)?;
    let session = port.next_session()?;
    while let Some(line) = port.next_line()? {
        alive();
        serve_line(&line, &jobs, &session, record);
    }
    session.end();
    jobs.close();
    Ok(())
}

/// Serves the port until the process is killed. Returns only if the port cannot be opened.
pub fn serve(path: &Path) -> Result<()> {
    let jobs = Jobs::start(false);
    let refuse = |_: Change| Err("this machine is thrown away, so nothing is recorded".to_owned());
    let mut port = Port::open(path)?;
    loop {
        let session = port.next_session()?;
        while let Some(line) = port.next_line()? {
            if line.iter().all(u8::is_ascii_whitespace) {
                continue;
            }
            serve_line(&line, &jobs, &session, &refuse);
        }
        // The next host numbers its requests from the start again, so it must not get replies meant for this one.
        session.end();
    }
}

/// Answers a request that needs no waiting at once, and any other in a thread of its own.
fn serve_line(line: &[u8], jobs: &Arc<Jobs>, session: &Arc<Session>, record: Record<'_>) {
    let Request { id, action } = match protocol::parse(line) {
        Ok(request) => request,
        Err(bad) => return session.send(&Reply::new(bad.id, Err(bad.reason))),
    };
    let jobs = Arc::clone(jobs);
    let at_once = |answer| session.send(&Reply::new(id.clone(), answer));
    match action {
        Action::Ping => at_once(Ok(Answer::Pong { pong: true })),
        Action::Record(change) => at_once(record(change).map(|()| Answer::Recorded { recorded: true })),
        Action::Kill { pid } => at_once(jobs.kill(pid, libc::SIGTERM).map(|killed| Answer::Killed { killed })),
        Action::Run(command) => in_thread(session, id, move |send| {
            send(jobs.spawn(&command).map(|child| Answer::Finished(jobs.collect(child, &command))));
        }),
        Action::Spawn(command) => in_thread(session, id, move |send| match jobs.spawn(&command) {
            Ok(child) => {
                send(Ok(Answer::Spawned { pid: child.pid() }));
                jobs.collect_in_background(child, command);
            }
            Err(error) => send(Err(error)),
        }),
        Action::Wait { pid, timeout } => {
            in_thread(session, id, move |send| send(jobs.wait(pid, timeout).map(Answer::Finished)));
        }
    }
}

/// Does work that takes time, and gives it what sends its answer. If no thread can be started, that is the answer.
fn in_thread(
    session: &Arc<Session>,
    id: Value,
    work: impl FnOnce(&dyn Fn(std::result::Result<Answer, String>)) + Send + 'static,
) {
    let (its_session, its_id) = (Arc::clone(session), id.clone());
    let begin = move || work(&|answer| its_session.send(&Reply::new(its_id.clone(), answer)));
    // Small stacks: a guest has 128 MB or so, and dozens of requests may wait at a time.
    if let Err(error) = thread::Builder::new().stack_size(256 * 1024).spawn(begin) {
        session.send(&Reply::new(id, Err(format!("cannot start a thread: {error}"))));
    }
}
