//! `listens`: waits until sockets listen, which it reads in /proc/net.
use std::fs::read_to_string;
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};

/// The states of sockets in /proc/net (include/net/tcp_states.h): TCP_LISTEN, and TCP_CLOSE, which is that of a UDP
/// socket that is not connected.
const TABLES: [(&str, &str); 4] = [("tcp", "0A"), ("tcp6", "0A"), ("udp", "07"), ("udp6", "07")];
const SHORTEST_PAUSE: Duration = Duration::from_millis(1);

/// Waits until every port of these is listened at; without ports, until any is.
pub fn wait_for(ports: &[u16]) -> Result<()> {
    let begun = Instant::now();
    loop {
        let mut open = Vec::new();
        for (table, state) in TABLES {
            match read_to_string(format!("/proc/net/{table}")) {
                Ok(text) => open.extend(text.lines().filter_map(|line| port_of(line, state))),
                Err(_) if table.ends_with('6') => {} // a kernel without IPv6
                Err(error) => return Err(error).with_context(|| format!("/proc/net/{table}")),
            }
        }
        if !open.is_empty() && ports.iter().all(|port| open.contains(port)) {
            return Ok(());
        }
        // Who has not listened for long is looked at more seldom: every look costs the host time.
        sleep((begun.elapsed() / 10).max(SHORTEST_PAUSE));
    }
}

/// Returns the port of a line's socket, if that has the state and others than this kernel's own can reach it.
fn port_of(line: &str, state: &str) -> Option<u16> {
    let mut words = line.split_whitespace();
    let (address, port) = words.nth(1)?.split_once(':')?;
    let loopback = address.len() == 8 && address.ends_with("7F") || address == "00000000000000000000000001000000";
    if words.nth(1)? != state || loopback {
        return None;
    }
    u16::from_str_radix(port, 16).ok()
}

#[cfg(test)]
mod tests {
    use super::port_of;

    #[test]
    fn only_what_others_can_reach_listens() {
        let line =
            |local: &str, state: &str| format!("   0: {local} 00000000:0000 {state} 00000000:00000000 00:00000000");
        assert_eq!(port_of(&line("00000000:1451", "0A"), "0A"), Some(5201));
        assert_eq!(port_of(&line("0100000A:0050", "0A"), "0A"), Some(80));
        assert_eq!(port_of(&line("0100007F:1451", "0A"), "0A"), None);
        assert_eq!(port_of(&line("00000000000000000000000000000000:1451", "0A"), "0A"), Some(5201));
        assert_eq!(port_of(&line("00000000000000000000000001000000:1451", "0A"), "0A"), None);
        assert_eq!(port_of(&line("00000000:1451", "01"), "0A"), None);
        assert_eq!(port_of("  sl  local_address rem_address   st tx_queue", "0A"), None);
    }
}
