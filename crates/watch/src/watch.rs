//! Sweep after sweep: who is there, what each had in the last window, and what that means.

use std::collections::hash_map::Entry;
use std::collections::{BTreeMap, HashMap, VecDeque};
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use brobust_sockdiag::{Filter, SockDiag, Socket, SocketKey};

use crate::cause::{judge, Cause, Verdict};
use crate::host::{Host, HostLoad};
use crate::namespaces::Namespaces;
use crate::sample::Sample;
use crate::Result;

#[derive(Debug, Clone)]
pub struct Settings {
    pub namespaces: Namespaces,
    pub filter: Filter,
    /// How far back a verdict looks.
    pub window: Duration,
}

/// A socket that is followed.
#[derive(Debug, Clone)]
pub struct Flow {
    pub key: SocketKey,
    pub namespace: String,
    pub uid: u32,
    pub congestion_control: String,
    pub samples: VecDeque<Sample>,
    pub verdict: Verdict,
    /// Number of the sweep that saw it last.
    seen: u64,
}

/// What one sweep came to. The flows are in [`Watch::flows`].
#[derive(Debug, Clone)]
pub struct Sweep {
    pub number: u64,
    pub host: HostLoad,
    pub sockets: usize,
    /// Namespaces that could not be read, and why.
    pub unread: Vec<String>,
    /// Sockets by congestion control and cause.
    pub counts: BTreeMap<(String, Cause), usize>,
}

pub struct Watch {
    settings: Settings,
    /// By inode; each with its name.
    readers: HashMap<u64, (String, SockDiag)>,
    flows: HashMap<(u64, SocketKey), Flow>,
    host: Host,
    /// What it said in the last window.
    loads: VecDeque<(Instant, HostLoad)>,
    sweeps: u64,
}

impl Watch {
    /// Refuses what cannot be read at all; what cannot be read later is told by each sweep.
    pub fn new(settings: Settings) -> Result<Watch> {
        let mut watch = Watch {
            settings,
            readers: HashMap::new(),
            flows: HashMap::new(),
            host: Host::new(),
            loads: VecDeque::new(),
            sweeps: 0,
        };
        let unread = watch.open()?;
        match (watch.readers.is_empty(), unread.into_iter().next()) {
            (true, Some(error)) => Err(error),
            _ => Ok(watch),
        }
    }

    /// One reader for each namespace that is there. Those that are gone are forgotten with their sockets.
    fn open(&mut self) -> Result<Vec<crate::Error>> {
        let found = self.settings.namespaces.find()?;
        self.readers.retain(|inode, _| found.iter().any(|one| one.inode == *inode));
        let mut unread = Vec::new();
        for one in found {
            if let Entry::Vacant(place) = self.readers.entry(one.inode) {
                match one.open() {
                    Ok(reader) => drop(place.insert((one.name, reader))),
                    Err(error) => unread.push(error),
                }
            }
        }
        Ok(unread)
    }

    /// Reads all sockets once. `state_maps`: where BPF controls of ours export their state, for their BDP.
    pub fn sweep(&mut self, state_maps: impl Fn() -> Vec<OwnedFd>) -> Result<Sweep> {
        self.sweeps += 1;
        let load = self.host.look();
        self.remember(load);
        let away = self.loads.iter().map(|(_, load)| load.away_share()).sum::<f64>() / self.loads.len() as f64;
        let mut unread: Vec<String> = self.open()?.iter().map(ToString::to_string).collect();
        for (inode, (name, reader)) in &mut self.readers {
            reader.set_state_maps(state_maps());
            let (flows, window, sweep) = (&mut self.flows, self.settings.window, self.sweeps);
            let read = reader.dump_each(&self.settings.filter, |socket| {
                follow(flows, (*inode, socket.key), name, &socket, (window, away), sweep);
            });
            if let Err(error) = read {
                unread.push(if name.is_empty() {
                    error.to_string()
                } else {
                    format!("network namespace {name}: {error}")
                });
            }
        }
        self.flows.retain(|_, flow| flow.seen == self.sweeps);
        let mut counts = BTreeMap::new();
        for flow in self.flows.values() {
            *counts.entry((flow.congestion_control.clone(), flow.verdict.cause)).or_insert(0) += 1;
        }
        Ok(Sweep { number: self.sweeps, host: load, sockets: self.flows.len(), unread, counts })
    }

    fn remember(&mut self, load: HostLoad) {
        let now = Instant::now();
        self.loads.retain(|(then, _)| now - *then < self.settings.window);
        self.loads.push_back((now, load));
    }

    pub fn flows(&self) -> impl Iterator<Item = &Flow> {
        self.flows.values()
    }

    /// The flows that matter most: CPU-limited ones first, then by rate.
    pub fn top(&self, count: usize) -> Vec<&Flow> {
        let mut flows: Vec<&Flow> = self.flows.values().collect();
        let weight = |flow: &&Flow| {
            let rate = flow.verdict.evidence.rate_bytes_per_s as u64;
            (flow.verdict.cause != Cause::CpuLimited, std::cmp::Reverse(rate), flow.key.local, flow.key.remote)
        };
        flows.sort_by_key(weight);
        flows.truncate(count);
        flows
    }
}

fn follow(
    flows: &mut HashMap<(u64, SocketKey), Flow>,
    id: (u64, SocketKey),
    namespace: &str,
    socket: &Socket,
    (window, away): (Duration, f64),
    sweep: u64,
) {
    let Some(sample) = Sample::of(socket) else { return };
    let control = socket.congestion_control.as_deref().unwrap_or("");
    let flow = flows.entry(id).or_insert_with(|| Flow {
        key: socket.key,
        namespace: namespace.to_owned(),
        uid: socket.uid,
        congestion_control: control.to_owned(),
        samples: VecDeque::new(),
        verdict: judge(&[], 0.0),
        seen: sweep,
    });
    flow.seen = sweep;
    // Another control has another model: what was seen before says nothing of it.
    if flow.congestion_control != control {
        control.clone_into(&mut flow.congestion_control);
        flow.samples.clear();
    }
    let oldest = sample.time_ns.saturating_sub(window.as_nanos() as u64);
    while flow.samples.front().is_some_and(|first| first.time_ns < oldest) {
        flow.samples.pop_front();
    }
    flow.samples.push_back(sample);
    flow.verdict = judge(flow.samples.make_contiguous(), away);
}
