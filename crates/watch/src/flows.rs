//! The sockets of one network namespace, from sweep to sweep.

use std::collections::hash_map::Entry;
use std::sync::Arc;

use brobust_sockdiag::{Socket, SocketKey};

use crate::cause::{judge, Cause, Cpu, MIN_SAMPLES};
use crate::groups::Groups;
use crate::history::History;
use crate::ids::ById;
use crate::owners::Owners;
use crate::sample::Sample;

/// A socket that is followed.
#[derive(Debug, Clone)]
pub struct Flow {
    pub history: History,
    pub congestion_control: Arc<str>,
    pub rate_bytes_per_s: f64,
    pub cause: Cause,
    /// Number of the sweep that saw it last.
    seen: u64,
    pub uid: u32,
    pub cgroup_id: Option<u64>,
    pub key: SocketKey,
}

/// What all flows of a sweep have in common.
#[derive(Debug, Clone, Copy)]
pub struct Moment {
    /// Number of the sweep, counted from 1.
    pub sweep: u64,
    pub window_ns: u64,
    /// Share of the window in which the CPU is known to have been taken away.
    pub away_share: f64,
}

/// What a flow takes in the map beside its history. Half of a map that has just grown is empty.
const BYTES: usize = 2 * size_of::<(u64, Flow)>();

/// The memory that is left for flows in a sweep, in bytes, and the number of sockets that would have taken more.
#[derive(Debug, Clone, Copy)]
pub struct Room {
    pub bytes: usize,
    pub unfollowed: usize,
}

impl Room {
    /// Returns whether there are so many bytes, and takes them; else a socket is not followed.
    fn take(&mut self, bytes: usize) -> bool {
        let left = self.bytes.checked_sub(bytes);
        self.bytes = left.unwrap_or(self.bytes);
        self.unfollowed += usize::from(left.is_none());
        left.is_some()
    }
}

/// Flows by their sockets' cookies.
#[derive(Debug, Default)]
pub struct Flows(ById<Flow>);

impl Flows {
    /// Adds what a sweep has read of a socket. A socket may be reported twice, in one dump or because a dump had to be
    /// repeated (brobust-sockdiag, query.rs): the first report of a sweep counts. Where there is no room, a new socket is
    /// not followed, and one that is followed begins again.
    pub fn follow(&mut self, socket: &Socket, now: Moment, groups: &mut Groups, owners: &mut Owners, room: &mut Room) {
        let name = socket.congestion_control.as_deref().unwrap_or("");
        let flow = match self.0.entry(u64::from_ne_bytes(socket.key.cookie)) {
            Entry::Occupied(known) => known.into_mut(),
            Entry::Vacant(new) => {
                let history = History::default();
                if !room.take(BYTES + history.bytes()) {
                    return;
                }
                new.insert(Flow {
                    history,
                    congestion_control: groups.control(name),
                    rate_bytes_per_s: 0.0,
                    cause: Cause::Undecided,
                    seen: 0,
                    uid: socket.uid,
                    cgroup_id: socket.cgroup_id,
                    key: socket.key,
                })
            }
        };
        if flow.seen == now.sweep {
            return;
        }
        flow.seen = now.sweep;
        // Another control has another model, so earlier samples are no evidence for it.
        if *flow.congestion_control != *name {
            flow.congestion_control = groups.control(name);
            flow.history.clear();
        }
        let before = flow.history.bytes();
        // Where the kernel reports too little for a sample, the flow is counted and remains undecided.
        if let Some(sample) = Sample::of(socket) {
            flow.history.add(socket.time_ns, sample);
            // Long sweeps are farther apart than requested (sweeps.rs), but a verdict still needs its samples.
            flow.history.forget_before(socket.time_ns.saturating_sub(now.window_ns), MIN_SAMPLES);
        }
        if !room.take(flow.history.bytes() - before) {
            flow.history = History::default();
        }
        let throttled_share = flow.cgroup_id.and_then(|id| owners.throttled_share(id)).unwrap_or(0.0);
        let verdict = judge(&flow.history, Cpu { away_share: now.away_share, throttled_share });
        (flow.cause, flow.rate_bytes_per_s) = (verdict.cause, verdict.evidence.rate_bytes_per_s);
        groups.add(&flow.congestion_control, &verdict);
        if let Some(id) = flow.cgroup_id {
            owners.add(id, &verdict);
        }
    }

    /// Forgets the sockets that neither of the last two sweeps has seen. A single dump may leave a socket out
    /// (brobust-sockdiag, query.rs), which must not cost its history. Returns how many bytes the others take.
    pub fn forget_closed(&mut self, sweep: u64) -> usize {
        let mut bytes = 0;
        self.0.retain(|_, flow| {
            let is_open = flow.seen + 1 >= sweep;
            bytes += if is_open { BYTES + flow.history.bytes() } else { 0 };
            is_open
        });
        if self.0.len() < self.0.capacity() / 3 {
            self.0.shrink_to_fit(); // after many sockets have closed
        }
        bytes
    }

    pub fn seen_in(&self, sweep: u64) -> impl Iterator<Item = &Flow> {
        self.0.values().filter(move |flow| flow.seen == sweep)
    }
}

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;
    use std::path::Path;
    use std::time::Duration;

    use brobust_sockdiag::TcpInfo;

    use super::*;

    const AT: Moment = Moment { sweep: 1, window_ns: 10_000_000_000, away_share: 0.0 };

    /// A socket as the kernel reports it, with 1 kB/s acknowledged and a tcp_info of that many bytes.
    fn reported(cookie: u8, sweep: u64, tcp_info: usize) -> Socket {
        let end: SocketAddr = "127.0.0.1:1".parse().unwrap();
        let tcp = TcpInfo { bytes_acked: Some(1000 * sweep), ..TcpInfo::parse(&vec![1; tcp_info]) };
        Socket {
            key: SocketKey { local: end, remote: end, interface: 0, cookie: [cookie; 8] },
            time_ns: sweep * 1_000_000_000,
            uid: 0,
            cgroup_id: None,
            congestion_control: Some("bbr".to_owned()),
            tcp,
            bbr: None,
        }
    }

    fn sweep(flows: &mut Flows, number: u64, sockets: &[Socket]) -> usize {
        sweep_within(flows, number, sockets, usize::MAX).0
    }

    /// Returns how many sockets were counted, how many were not followed, and the bytes that the flows take.
    fn sweep_within(flows: &mut Flows, number: u64, sockets: &[Socket], bytes: usize) -> (usize, usize, usize) {
        let (mut groups, mut owners) = (Groups::default(), Owners::new(Path::new("/"), Duration::from_secs(10)));
        let mut room = Room { bytes, unfollowed: 0 };
        for socket in sockets {
            flows.follow(socket, Moment { sweep: number, ..AT }, &mut groups, &mut owners, &mut room);
        }
        let taken = flows.forget_closed(number);
        (groups.sorted().iter().map(|group| group.sockets).sum(), room.unfollowed, taken)
    }

    #[test]
    fn a_socket_that_is_reported_twice_is_counted_once() {
        let mut flows = Flows::default();
        assert_eq!(sweep(&mut flows, 1, &[reported(1, 1, 232), reported(2, 1, 232), reported(1, 1, 232)]), 2);
        assert!(flows.seen_in(1).all(|flow| flow.history.count() == 1));
    }

    #[test]
    fn a_dump_that_leaves_a_socket_out_does_not_cost_its_history() {
        let mut flows = Flows::default();
        for number in 1..=4 {
            assert_eq!(sweep(&mut flows, number, &[reported(1, number, 232)]), 1);
        }
        assert_eq!(sweep(&mut flows, 5, &[]), 0);
        assert_eq!(flows.seen_in(5).count(), 0);
        sweep(&mut flows, 6, &[reported(1, 6, 232)]);
        let flow = flows.seen_in(6).next().unwrap();
        assert_eq!((flow.history.count(), flow.rate_bytes_per_s), (5, 1000.0));
        sweep(&mut flows, 7, &[]);
        sweep(&mut flows, 8, &[]);
        assert!(flows.0.is_empty());
    }

    #[test]
    fn a_socket_of_which_an_old_kernel_reports_too_little_is_counted_and_undecided() {
        let mut flows = Flows::default();
        for number in 1..=5 {
            assert_eq!(sweep(&mut flows, number, &[reported(1, number, 104)]), 1);
        }
        assert_eq!(flows.seen_in(5).next().unwrap().cause, Cause::Undecided);
    }

    #[test]
    fn sockets_for_which_there_is_no_memory_are_counted_as_such_and_followed_when_there_is() {
        let (mut flows, three) = (Flows::default(), [1, 2, 3]);
        let sockets = |number, cookies: &[u8]| -> Vec<Socket> {
            cookies.iter().map(|cookie| reported(*cookie, number, 232)).collect()
        };
        let of_one = sweep_within(&mut Flows::default(), 1, &sockets(1, &[1]), usize::MAX).2;
        assert!((500..1500).contains(&of_one), "{of_one}");
        let limit = 2 * of_one;
        let (counted, unfollowed, mut taken) = sweep_within(&mut flows, 1, &sockets(1, &three), limit);
        assert_eq!((counted, unfollowed, taken), (2, 1, limit));
        // Samples that differ would take more: these flows begin again and again, so that the limit holds.
        for number in 2..=8 {
            let (counted, unfollowed, now) = sweep_within(&mut flows, number, &sockets(number, &three), limit - taken);
            assert!(counted == 2 && unfollowed > 0 && now <= limit, "{counted} {unfollowed} {now}");
            taken = now;
        }
        assert!(flows.seen_in(8).all(|flow| flow.cause == Cause::Undecided));
        for number in 9..=10 {
            taken = sweep_within(&mut flows, number, &sockets(number, &[1]), limit - taken).2;
        }
        assert_eq!(sweep_within(&mut flows, 11, &sockets(11, &[3, 1]), limit - taken).0, 2);
    }

    #[test]
    fn another_congestion_control_begins_with_an_empty_history() {
        let mut flows = Flows::default();
        sweep(&mut flows, 1, &[reported(1, 1, 232)]);
        sweep(&mut flows, 2, &[Socket { congestion_control: Some("cubic".to_owned()), ..reported(1, 2, 232) }]);
        let flow = flows.seen_in(2).next().unwrap();
        assert_eq!((&*flow.congestion_control, flow.history.count()), ("cubic", 1));
    }

    #[test]
    fn sweeps_that_are_farther_apart_than_the_window_still_make_a_verdict() {
        let mut flows = Flows::default();
        for number in 1..=6 {
            sweep(&mut flows, number, &[Socket { time_ns: number * 9_000_000_000, ..reported(1, number, 232) }]);
        }
        let flow = flows.seen_in(6).next().unwrap();
        assert_eq!((flow.history.count(), flow.history.seconds()), (4, 27.0));
    }
}
