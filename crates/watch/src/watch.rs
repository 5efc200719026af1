//! Sweep after sweep: reads all sockets, follows each over the last window, and names what limits it.

use std::cmp::Reverse;
use std::collections::{BTreeMap, VecDeque};
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use brobust_host::{without_numbers, Refusal, Result};
use brobust_sockdiag::{Error, Filter};
use nix::sys::resource::{getrlimit, Resource};
use nix::time::{clock_gettime, ClockId};

use crate::cause::Cause;
use crate::distribution::{INFLIGHT_BDP, RATE_MBPS};
use crate::flows::{Flow, Flows, Moment, Room};
use crate::groups::Groups;
use crate::host::{Host, HostLoad};
use crate::memory;
use crate::namespaces::{label, of as of_namespace, open, Namespaces};
use crate::owners::Owners;
use crate::reader::{self, Reader};
use crate::report::{Bounds, FlowReport, SweepReport};
use crate::why::why;

#[derive(Debug, Clone)]
pub struct Settings {
    pub namespaces: Namespaces,
    pub filter: Filter,
    /// How far back a verdict looks.
    pub window: Duration,
    /// Where the host's root directory is, for cgroups and the names of pods. In a container that is to see those of its
    /// host: where the host's directories are mounted.
    pub host_root: PathBuf,
}

/// Files that are left for reading /proc, for who asks for metrics and for a recording: without them neither the host's
/// load nor new namespaces would be seen any more.
const SPARE_FILES: usize = 128;

#[derive(Default)]
struct Namespace {
    /// Empty: our own.
    name: String,
    /// None: not opened yet, or to be opened again after an error.
    reader: Option<Reader>,
    flows: Flows,
    /// Memory that the flows take, as of the last sweep.
    bytes: usize,
}

pub struct Watch {
    settings: Settings,
    /// Network namespaces by inode.
    namespaces: BTreeMap<u64, Namespace>,
    host: Host,
    owners: Owners,
    /// The host's loads in the last window.
    loads: VecDeque<(Instant, HostLoad)>,
    sweeps: u64,
    /// The memory that all flows may take, in bytes.
    memory: usize,
}

impl Watch {
    /// Opens the namespaces, and refuses if none of them can be read. Each sweep reports what cannot be read later.
    pub fn new(settings: Settings) -> Result<Watch> {
        let mut watch = Watch {
            owners: Owners::new(&settings.host_root, settings.window),
            settings,
            namespaces: BTreeMap::new(),
            host: Host::begin(),
            loads: VecDeque::new(),
            sweeps: 0,
            memory: memory::for_flows(),
        };
        let unread = watch.open();
        match (watch.namespaces.values().any(|namespace| namespace.reader.is_some()), unread.into_iter().next()) {
            (false, Some(error)) => Err(Refusal::missing_support(error)),
            _ => Ok(watch),
        }
    }

    /// Opens a reader in each namespace that exists, and says what is wrong with the others. A namespace that no process
    /// has any more is forgotten with its flows. Until then our reader keeps it alive, so that it cannot go away while it
    /// is read.
    fn open(&mut self) -> Vec<String> {
        let (found, mut unread) = self.settings.namespaces.find();
        self.namespaces.retain(|inode, _| found.iter().any(|one| one.inode == *inode));
        let opened = self.namespaces.values().filter(|namespace| namespace.reader.is_some()).count();
        let mut room = max_readers().saturating_sub(opened);
        for one in found {
            let namespace = self.namespaces.entry(one.inode).or_default();
            namespace.name = label(&one);
            if namespace.reader.is_some() {
                continue;
            }
            if room == 0 {
                unread.push(of_namespace(&namespace.name, &"too many others are read; raise ulimit -n"));
                continue;
            }
            match open(&one) {
                Ok(reader) => {
                    room -= usize::from(reader.is_some());
                    namespace.reader = reader;
                }
                Err(error) => unread.push(error),
            }
        }
        unread
    }

    /// Closes what is open in the namespaces, which the next sweep opens again. One that no process has any more, with its
    /// devices, goes only then.
    pub fn close(&mut self) {
        self.namespaces.values_mut().for_each(|namespace| namespace.reader = None);
    }

    /// Reads all sockets once, and reports at most `top` of them. `state_maps` are the maps in which our BPF controls
    /// export their state, for their BDP.
    pub fn sweep(&mut self, state_maps: Vec<OwnedFd>, top: usize) -> SweepReport {
        let (begun, cpu_before) = (Instant::now(), cpu_time());
        self.sweeps += 1;
        let (host, mut unread) = self.host.read();
        let unread_host = unread.len();
        let now = self.moment(host);
        unread.extend(self.open());
        self.owners.begin(now.sweep);
        let (mut groups, mut namespaces, mut interrupted) = (Groups::default(), 0, 0);
        let taken: usize = self.namespaces.values().map(|namespace| namespace.bytes).sum();
        let mut room = Room { bytes: self.memory.saturating_sub(taken), unfollowed: 0 };
        let state_maps: Arc<[OwnedFd]> = state_maps.into();
        for (place, namespace) in self.namespaces.values_mut().enumerate() {
            let Some(reader) = &mut namespace.reader else { continue };
            let follow = |socket| namespace.flows.follow(&socket, now, &mut groups, &mut self.owners, &mut room);
            let read = reader.read(&self.settings.filter, &state_maps, place, follow);
            namespace.bytes = namespace.flows.forget_closed(now.sweep);
            if matches!(read, Ok(()) | Err(Error::Interrupted)) {
                namespaces += 1;
            }
            if let Err(error) = read {
                match error {
                    Error::Interrupted => interrupted += 1,
                    _ => namespace.reader = None,
                }
                unread.push(match namespace.name.as_str() {
                    "" => without_numbers(&error.to_string()),
                    name => of_namespace(name, &error),
                });
            }
        }
        if room.unfollowed > 0 {
            unread.push(no_memory(room.unfollowed, self.memory));
        }
        let counts = groups.sorted();
        SweepReport {
            sweep: now.sweep,
            sockets: counts.iter().map(|group| group.sockets).sum(),
            host,
            why: counts.iter().any(|group| group.cause == Cause::CpuLimited).then(|| why(&host)),
            counts,
            bounds: Bounds { rate_mbps: RATE_MBPS, inflight_bdp: INFLIGHT_BDP },
            namespaces,
            unread,
            unread_host,
            interrupted,
            unfollowed: room.unfollowed,
            // Of reading and judging: before reports are written.
            took_ms: begun.elapsed().as_secs_f64() * 1e3,
            cpu_ms: cpu_time().saturating_sub(cpu_before).as_secs_f64() * 1e3,
            owners: self.owners.seen(),
            flows: self.top(top),
        }
    }

    /// Returns what all flows of this sweep have in common, and remembers the host's load for the window.
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

    /// Returns the flows of the last sweep that matter most: CPU-limited ones first, then throttled ones, then by rate.
    fn top(&self, count: usize) -> Vec<FlowReport> {
        let mut flows = Vec::new();
        for namespace in self.namespaces.values() {
            flows.extend(namespace.flows.seen_in(self.sweeps).map(|flow| (namespace.name.as_str(), flow)));
        }
        let rank = |(namespace, flow): &(_, &Flow)| {
            let (rate, ends) = (Reverse(flow.rate_bytes_per_s as u64), (flow.key.local, flow.key.remote));
            (flow.cause.min(Cause::NetworkLimited), rate, ends, *namespace)
        };
        if count < flows.len() {
            flows.select_nth_unstable_by_key(count, rank);
            flows.truncate(count);
        }
        flows.sort_by_key(rank);
        let report = |(namespace, flow): (_, &Flow)| {
            FlowReport::new(namespace, flow, flow.cgroup_id.and_then(|id| self.owners.get(id)))
        };
        flows.into_iter().map(report).collect()
    }
}

/// Returns the sentence about sockets that are not followed, with the memory for those that are, in bytes.
fn no_memory(sockets: usize, memory: usize) -> String {
    let are = if sockets == 1 { "socket is" } else { "sockets are" };
    format!(
        "{sockets} {are} not followed, since flows take {} MiB, three quarters of the memory that is allowed",
        memory >> 20
    )
}

/// Returns how many namespaces may be read at a time: each takes files.
fn max_readers() -> usize {
    let limit = getrlimit(Resource::RLIMIT_NOFILE).map_or(0, |(soft, _)| usize::try_from(soft).unwrap_or(usize::MAX));
    (limit - SPARE_FILES.min(limit / 2)) / reader::FILES
}

/// Returns the CPU time of this thread.
pub fn cpu_time() -> Duration {
    // Reading CLOCK_THREAD_CPUTIME_ID cannot fail.
    clock_gettime(ClockId::CLOCK_THREAD_CPUTIME_ID).map_or(Duration::ZERO, Duration::from)
}
