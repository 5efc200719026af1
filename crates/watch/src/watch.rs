//! Sweep after sweep: who is there, what each had in the last window, and what that means.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap, VecDeque};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

use brobust_sockdiag::{Error as SocketError, Filter, SockDiag};
use nix::time::{clock_gettime, ClockId};

use crate::cause::Cause;
use crate::flows::{Flow, Flows, Moment};
use crate::groups::{Group, Groups};
use crate::host::{Host, HostLoad};
use crate::namespaces::Namespaces;
use crate::{Error, Result};

#[derive(Debug, Clone)]
pub struct Settings {
    pub namespaces: Namespaces,
    pub filter: Filter,
    /// How far back a verdict looks.
    pub window: Duration,
}

/// What one sweep came to. Its flows: [`Watch::top`].
#[derive(Debug, Clone)]
pub struct Sweep {
    pub number: u64,
    pub host: HostLoad,
    pub sockets: usize,
    /// What could not be read, or not surely in full, and why.
    pub unread: Vec<String>,
    /// Those of them that are about the host's CPUs.
    pub unread_host: usize,
    /// Dumps that stayed interrupted: sockets may be missing from them.
    pub interrupted: usize,
    /// By congestion control and cause.
    pub groups: Vec<Group>,
    /// Wall time, and CPU time of this thread, in which the kernel answers dumps too.
    pub took: Duration,
    pub cpu: Duration,
}

/// A network namespace that is there.
#[derive(Default)]
struct Place {
    /// Empty: our own.
    name: String,
    /// None: to be opened, at first or after it failed.
    sockets: Option<SockDiag>,
    flows: Flows,
}

pub struct Watch {
    settings: Settings,
    /// By inode.
    places: BTreeMap<u64, Place>,
    host: Host,
    /// What it said in the last window.
    loads: VecDeque<(Instant, HostLoad)>,
    sweeps: u64,
}

impl Watch {
    /// Refuses what cannot be read at all; what cannot be read later is told by each sweep.
    pub fn new(settings: Settings) -> Result<Watch> {
        let mut watch =
            Watch { settings, places: BTreeMap::new(), host: Host::new(), loads: VecDeque::new(), sweeps: 0 };
        let unread = watch.open();
        match (watch.places.values().any(|place| place.sockets.is_some()), unread.into_iter().next()) {
            (false, Some(error)) => Err(error),
            _ => Ok(watch),
        }
    }

    /// A netlink socket in each namespace that is there. Those that are gone are forgotten with their flows: until then
    /// our socket in it keeps a namespace alive, so that it cannot go away while it is read.
    fn open(&mut self) -> Vec<Error> {
        let (found, mut unread) = self.settings.namespaces.find();
        self.places.retain(|inode, _| found.iter().any(|one| one.inode == *inode));
        for one in found {
            let place = self.places.entry(one.inode).or_default();
            if place.sockets.is_none() {
                match one.open() {
                    Ok(sockets) => place.sockets = Some(sockets),
                    Err(error) => unread.push(error),
                }
            }
            place.name = one.name;
        }
        unread
    }

    /// Reads all sockets once. `state_maps`: where BPF controls of ours export their state, for their BDP.
    pub fn sweep(&mut self, state_maps: Vec<OwnedFd>) -> Sweep {
        let (begun, cpu_before) = (Instant::now(), cpu_time());
        self.sweeps += 1;
        let (host, unread_host) = self.host.look();
        let now = self.moment(host);
        let mut unread: Vec<String> = unread_host.iter().chain(&self.open()).map(ToString::to_string).collect();
        let (mut groups, mut interrupted) = (Groups::default(), 0);
        let state_maps: Arc<[OwnedFd]> = state_maps.into();
        for place in self.places.values_mut() {
            let Some(sockets) = &mut place.sockets else { continue };
            sockets.set_state_maps(Arc::clone(&state_maps));
            let read = sockets.dump_each(&self.settings.filter, |socket| place.flows.follow(socket, now, &mut groups));
            place.flows.forget_closed(now.sweep);
            if let Err(error) = read {
                match error {
                    SocketError::Interrupted => interrupted += 1,
                    _ => place.sockets = None,
                }
                unread.push(named(&place.name, error).to_string());
            }
        }
        let groups = groups.sorted();
        Sweep {
            number: now.sweep,
            host,
            sockets: groups.iter().map(|group| group.sockets).sum(),
            unread,
            unread_host: unread_host.len(),
            interrupted,
            groups,
            took: begun.elapsed(),
            cpu: cpu_time().saturating_sub(cpu_before),
        }
    }

    fn moment(&mut self, load: HostLoad) -> Moment {
        let now = Instant::now();
        self.loads.retain(|(then, _)| now - *then < self.settings.window);
        self.loads.push_back((now, load));
        let known: Vec<f64> = self.loads.iter().filter_map(|(_, load)| load.away_share()).collect();
        Moment {
            sweep: self.sweeps,
            window_ns: u64::try_from(self.settings.window.as_nanos()).unwrap_or(u64::MAX),
            away_share: known.iter().sum::<f64>() / known.len().max(1) as f64,
        }
    }

    /// The flows of the last sweep that matter most, each with the name of its namespace: CPU-limited ones first, then by
    /// rate.
    pub fn top(&self, count: usize) -> Vec<(&str, &Flow)> {
        if count == 0 {
            return Vec::new();
        }
        let mut flows = Vec::new();
        for place in self.places.values() {
            flows.extend(place.flows.seen_in(self.sweeps).map(|flow| (place.name.as_str(), flow)));
        }
        let mut best = BinaryHeap::new();
        for (at, (_, flow)) in flows.iter().enumerate() {
            let (rate, ends) = (Reverse(flow.rate_bytes_per_s as u64), (&flow.key.local, &flow.key.remote));
            let rank = (flow.cause != Cause::CpuLimited, rate, ends, at);
            if best.len() < count {
                best.push(rank);
            } else if best.peek().is_some_and(|last| rank < *last) {
                best.pop();
                best.push(rank);
            }
        }
        best.into_sorted_vec().into_iter().filter_map(|(.., at)| flows.get(at).copied()).collect()
    }
}

/// An error of the sockets, with the namespace that they are in unless it is our own.
fn named(namespace: &str, error: SocketError) -> Error {
    if namespace.is_empty() {
        return error.into();
    }
    Error::Namespace { name: namespace.to_owned(), reason: error.to_string() }
}

/// Of this thread.
fn cpu_time() -> Duration {
    // CLOCK_THREAD_CPUTIME_ID cannot fail.
    clock_gettime(ClockId::CLOCK_THREAD_CPUTIME_ID).map_or(Duration::ZERO, Duration::from)
}
