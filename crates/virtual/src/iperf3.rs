//! iperf3 in the kernels' user space, in place of their own source and sink: one server and one client for each flow.
//!
//! Flow n's server listens on SERVER_PORT + n, and its data comes from FIRST_PORT + n as any flow's does. iperf3 has a
//! second connection to the same server, over which it agrees on the test and hands over results.
use crate::network::{Places, FIRST_PORT};
use crate::scenario::{Flow, Pattern, Scenario};

pub const SERVER_PORT: u16 = 5201;
/// What it may need on top of its time, to connect and to hand over results, ns: as much as in the testbed.
pub const GRACE: u64 = 45_000_000_000;
const SECOND: u64 = 1_000_000_000;
/// Where the RAM disk has it.
const PROGRAM: &str = "/bin/iperf3";
/// Its shortest interval, s.
const INTERVAL: &str = "0.1";

/// What the two ends of a flow printed.
#[derive(Debug, Clone, Default)]
pub struct Said {
    pub sender: End,
    pub receiver: End,
}

#[derive(Debug, Clone, Default)]
pub struct End {
    pub program: String,
    /// The last words of the kernel that ran it.
    pub kernel: String,
}

/// A program of a node: when it starts, since the run's start (none: before the run), its command, and the flow it is of.
pub struct Program {
    pub start: Option<u64>,
    pub command: String,
    pub flow: usize,
}

pub fn check(flow: &Flow, duration: u64) -> Result<(), String> {
    if !matches!(flow.pattern, Pattern::Bulk) {
        return Err("flows.pattern: iperf3 sends in bulk only".into());
    }
    match seconds(flow, duration) {
        Some(_) => Ok(()),
        None => Err("duration: iperf3 sends for whole seconds, at least one".into()),
    }
}

fn seconds(flow: &Flow, duration: u64) -> Option<u64> {
    let ns = flow.stop.unwrap_or(duration).checked_sub(flow.start)?;
    (ns >= SECOND && ns % SECOND == 0).then_some(ns / SECOND)
}

/// What the node at `place` has to run.
pub fn programs(scenario: &Scenario, places: Places, place: usize) -> Vec<Program> {
    if scenario.iperf3.is_none() {
        return Vec::new();
    }
    let flows = scenario.flows.iter().enumerate();
    if place == places.receiver() {
        return flows.map(|(number, _)| Program { start: None, command: server(number), flow: number }).collect();
    }
    let receiver = std::net::Ipv4Addr::from(places.address(places.receiver())).to_string();
    let own = flows.filter(|(_, flow)| flow.sender == place);
    own.map(|(number, flow)| Program {
        start: Some(flow.start),
        command: client(&receiver, number, flow, scenario.duration),
        flow: number,
    })
    .collect()
}

fn server(number: usize) -> String {
    format!("{PROGRAM} -4 -s -1 -J -i {INTERVAL} -p {}", usize::from(SERVER_PORT) + number)
}

fn client(receiver: &str, number: usize, flow: &Flow, duration: u64) -> String {
    format!(
        "{PROGRAM} -4 -c {receiver} -p {} --cport {} -C {} -t {} -J -i {INTERVAL}",
        usize::from(SERVER_PORT) + number,
        usize::from(FIRST_PORT) + number,
        flow.cc,
        seconds(flow, duration).unwrap_or(1),
    )
}

/// What each of `count` programs printed, from a kernel's console: pieces behind lines of their own, see programs.c. And
/// what is between them: the kernel's own words.
pub fn printed(console: &[u8], count: usize) -> (Vec<String>, String) {
    let mut texts = vec![Vec::new(); count];
    let mut own_words = Vec::new();
    let mut rest = console;
    while !rest.is_empty() {
        let end = rest.iter().position(|&byte| byte == b'\n').map_or(rest.len(), |end| end + 1);
        let (line, after) = rest.split_at(end);
        rest = after;
        let Some((number, size)) = heading(line.strip_suffix(b"\n").unwrap_or(line)) else {
            own_words.extend_from_slice(line);
            continue;
        };
        let (text, after) = after.split_at(size.min(after.len()));
        if let Some(own) = texts.get_mut(number) {
            own.extend_from_slice(text);
        }
        rest = after;
    }
    let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
    (texts.into_iter().map(text).collect(), text(own_words))
}

fn heading(line: &[u8]) -> Option<(usize, usize)> {
    let line = std::str::from_utf8(line).ok()?.strip_prefix("brobust program ")?;
    let (number, size) = line.strip_suffix(" bytes")?.split_once(": ")?;
    Some((number.parse().ok()?, size.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn pieces_of_two_programs_are_put_together() {
        let console = b"Linux\n\nbrobust program 1: 4 bytes\n{\n\n1\nbrobust program 0: 2 bytes\nab[  1.0] kernel\n\
            \nbrobust program 1: 1 bytes\n}\nbrobust program 7: 1 bytes\nx\nbrobust program 0: 99 bytes\ncd";
        let (programs, kernel) = printed(console, 2);
        assert_eq!(programs, ["abcd", "{\n\n1}"]);
        assert_eq!(kernel.split_whitespace().collect::<Vec<_>>(), ["Linux", "[", "1.0]", "kernel"]);
    }

    proptest! {
        #[test]
        fn no_console_is_believed(bytes in "(\nbrobust program [0-9]{1,30}: [0-9]{1,30} bytes\n[a-z\n]{0,9}){0,5}") {
            let _ = printed(bytes.as_bytes(), 3);
        }
    }
}
