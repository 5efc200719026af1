//! Reads the sockets of one network namespace, unless it is known without a dump that it has none.
//!
//! The kernel has one hash table of connections for all namespaces, and walks the whole table for a dump of any one
//! (inet_diag_dump_icsk). Reading counters takes a small part of that. Each namespace counts its connections while they
//! are in the table as being opened: in ActiveOpens (tcp_connect) or PassiveOpens (tcp_create_openreq_child, after which
//! the socket takes its request's place in the table). Both only grow, and no socket changes its namespace. So where a
//! dump has found no connection, not even one that is being opened, there is none as long as both counters are what they
//! were before the dump.

use std::fs::File;
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileExt;
use std::sync::Arc;

use brobust_sockdiag::{Filter, Result, SockDiag, Socket};

/// Of the namespace in which the thread that opens it is, also when another thread reads it (proc_pid_net(5)).
const COUNTERS: &str = "/proc/thread-self/net/snmp";

/// After so many sweeps in which it was known to be empty, up to twice as many, a namespace is dumped all the same.
/// Connections that are restored (TCP_REPAIR) are not counted as opened, and those of SYN cookies and TCP Fast Open have
/// no request in the table. Until then these are missed only if no sweep finds them established (CurrEstab).
const SKIPPED: usize = 10;

/// Files that a reader has open.
pub const FILES: usize = 2;

/// ActiveOpens and PassiveOpens.
type Opened = [u64; 2];

/// What reads a namespace. Its files stay with the namespace in which they were opened.
pub struct Reader {
    sockets: SockDiag,
    /// None: it cannot be opened, and every sweep takes a dump.
    counters: Option<File>,
    /// The counters before the last dump if that found nothing, and how many sweeps may still rely on it.
    empty: Option<(Opened, usize)>,
}

impl Reader {
    pub fn open() -> Result<Reader> {
        Ok(Reader { sockets: SockDiag::open()?, counters: File::open(COUNTERS).ok(), empty: None })
    }

    /// Calls `found` for each socket as [`SockDiag::dump_each`] does. `state_maps` as in [`SockDiag::set_state_maps`].
    /// `place` is the namespace's among all: by it those that are empty are dumped in different sweeps.
    pub fn read(
        &mut self,
        filter: &Filter,
        state_maps: &Arc<[OwnedFd]>,
        place: usize,
        mut found: impl FnMut(Socket),
    ) -> Result<()> {
        let opened = self.opened();
        match (&mut self.empty, opened) {
            (Some((then, sweeps)), Some(now)) if *then == now && *sweeps > 0 => {
                *sweeps -= 1;
                return Ok(());
            }
            _ => self.empty = None,
        }
        let mut is_empty = true;
        let found = |socket: Socket| {
            is_empty = false;
            if !socket.is_opening() {
                found(socket);
            }
        };
        self.sockets.set_state_maps(Arc::clone(state_maps));
        let read = self.sockets.dump_each(&Filter { opening: opened.is_some(), ..*filter }, found);
        // Kept until the next sweep, which looks for maps that exist, they would be found, and kept, for ever.
        self.sockets.set_state_maps(Arc::default());
        read?;
        self.empty = opened.filter(|_| is_empty).map(|opened| (opened, SKIPPED + place % SKIPPED));
        Ok(())
    }

    /// Returns how many connections were opened. None: some are established, so that it takes a dump, or it is unknown.
    fn opened(&self) -> Option<Opened> {
        // These counters come first, and what is cut off is not found.
        let mut text = [0; 4096];
        let length = self.counters.as_ref()?.read_at(&mut text, 0).ok()?;
        opened(std::str::from_utf8(&text[..length]).ok()?)
    }
}

/// Reads the two lines of proc_net_snmp(5) that begin with Tcp: the counters' names, and their values.
fn opened(text: &str) -> Option<Opened> {
    let mut lines = text.lines().filter_map(|line| line.strip_prefix("Tcp: "));
    let (names, values) = (lines.next()?, lines.next()?);
    let value = |name| names.split(' ').zip(values.split(' ')).find(|(its, _)| *its == name)?.1.parse().ok();
    (value("CurrEstab")? == 0).then_some([value("ActiveOpens")?, value("PassiveOpens")?])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connections_that_were_opened_are_counted_where_none_is_open() {
        let text = |open| {
            format!(
                "Ip: Forwarding\nIp: 2\nTcp: MaxConn ActiveOpens PassiveOpens AttemptFails CurrEstab\n\
                 Tcp: -1 53 2 7 {open}\nUdp: InDatagrams\nUdp: 110\n"
            )
        };
        assert_eq!(opened(&text(0)), Some([53, 2]));
        for unknown in [&text(1), "", "Tcp: ActiveOpens\n", "Tcp: ActiveOpens PassiveOpens CurrEstab\nTcp: 1 2\n"] {
            assert_eq!(opened(unknown), None, "{unknown}");
        }
    }
}
