//! iperf3 in the kernels' user space, in place of their own source and sink: one server and one client for each flow.
//!
//! Flow n's server listens on SERVER_PORT + n, and its data comes from FIRST_PORT + n as any flow's does. iperf3 has a
//! second connection to the same server, over which it agrees on the test and hands over results.
use crate::ports::{FIRST_PORT, SERVER_PORT};
use crate::scenario::{Flow, Scenario};
use crate::topology::Topology;

/// Time that iperf3 may need beyond the run's duration, to connect and to exchange results, ns: as much as in the
/// testbed.
pub const GRACE: u64 = 45_000_000_000;
/// Path of the program on the RAM disk.
const PROGRAM: &str = "/bin/iperf3";
/// iperf3's shortest interval, s.
const INTERVAL: &str = "0.1";

/// A program that a node runs.
pub struct Program {
    /// Start in ns since the run's start. None: before the run.
    pub start: Option<u64>,
    pub command: String,
    /// Number of the flow whose end it is.
    pub flow: usize,
}

/// Returns the programs that a node has to run.
pub fn programs(scenario: &Scenario, topology: Topology, node: usize) -> Vec<Program> {
    if scenario.iperf3.is_none() {
        return Vec::new();
    }
    let flows = scenario.flows.iter().enumerate();
    if node == topology.receiver() {
        return flows.map(|(number, _)| Program { start: None, command: server(number), flow: number }).collect();
    }
    let receiver = std::net::Ipv4Addr::from(topology.address(topology.receiver())).to_string();
    let sent = flows.filter(|(_, flow)| flow.sender == node);
    sent.map(|(number, flow)| Program {
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
        flow.whole_seconds(duration).unwrap_or(1),
    )
}

/// Splits a kernel's console into what each of `count` programs printed and what the kernel itself did. Programs'
/// output stands there in pieces, each behind a line with the program's number and the piece's length (programs.c).
pub fn split_console(console: &[u8], count: usize) -> (Vec<String>, String) {
    let mut texts = vec![Vec::new(); count];
    let mut kernel = Vec::new();
    let mut rest = console;
    while !rest.is_empty() {
        let end = rest.iter().position(|&byte| byte == b'\n').map_or(rest.len(), |end| end + 1);
        let (line, after) = rest.split_at(end);
        rest = after;
        let Some((number, size)) = heading(line.strip_suffix(b"\n").unwrap_or(line)) else {
            kernel.extend_from_slice(line);
            continue;
        };
        let (text, after) = after.split_at(size.min(after.len()));
        if let Some(own) = texts.get_mut(number) {
            own.extend_from_slice(text);
        }
        rest = after;
    }
    let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
    (texts.into_iter().map(text).collect(), text(kernel))
}

/// Reads the line before a piece: the program's number, and the length of the piece in bytes.
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
        let (programs, kernel) = split_console(console, 2);
        assert_eq!(programs, ["abcd", "{\n\n1}"]);
        assert_eq!(kernel.split_whitespace().collect::<Vec<_>>(), ["Linux", "[", "1.0]", "kernel"]);
    }

    proptest! {
        #[test]
        fn no_console_is_believed(bytes in "(\nbrobust program [0-9]{1,30}: [0-9]{1,30} bytes\n[a-z\n]{0,9}){0,5}") {
            let _ = split_console(bytes.as_bytes(), 3);
        }
    }
}
