//! The clock: who may run how far.
//!
//! Every frame needs some time to arrive, at least `lookahead`. If the first thing that happens anywhere happens at
//! `first`, then nothing that is sent from now on arrives before `first + lookahead`, the horizon. All that arrives
//! before it is known, so each kernel can run to the horizon alone, without asking, in any order: the result is the same
//! as if all ran at once. (Chandy and Misra's conservative simulation, in rounds.) Then the frames they sent are put on
//! the link in the order of their times, and there is a new first event. A kernel with nothing to do before the horizon
//! is not even woken, and time without events takes no time.
use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use brobust_timeline::{Schedule, TimeSlices};
use nix::sched::{sched_setaffinity, CpuSet};
use nix::unistd::Pid;

use crate::error::{Error, Result};
use crate::frame::{self, Frame};
use crate::iperf3::{self, Program, Said};
use crate::kernel::{last_words, Boot, Kernel};
use crate::link::Changing;
use crate::network::{Network, Places, FIRST_PORT};
use crate::qdisc::{self, Aqm};
use crate::record::{Outcome, Recorder, Work};
use crate::scenario::{CpuCost, Flow, Pattern, Scenario};
use crate::shared::{self, pattern, reason, role, Ack, FlowStats, Shared, ACKS, FRAME_BYTES, NEVER};

/// When a run begins, on the clock of every kernel: all have booted by then.
const ORIGIN: u64 = 1_000_000_000;

/// Measures a scenario. Raising `stop`, from another thread, ends it early.
pub fn run(scenario: &Scenario, stop: &AtomicBool) -> Result<Outcome> {
    scenario.check().map_err(Error::Refused)?;
    let mut world = World::boot(scenario, stop)?;
    while let Some(horizon) = world.next_horizon() {
        if stop.load(Ordering::Relaxed) {
            return Err(Error::Interrupted);
        }
        world.advance(horizon, stop)?;
    }
    world.finish(scenario)
}

/// The same, with the controller and all kernels on one CPU. Only one of them runs at a time anyway, and on one CPU they
/// share its caches. For the rest of the calling thread's life.
pub fn run_on(cpu: Option<usize>, scenario: &Scenario, stop: &AtomicBool) -> Result<Outcome> {
    if let Some(cpu) = cpu {
        let mut cpus = CpuSet::new();
        let pinned = cpus.set(cpu).and_then(|()| sched_setaffinity(Pid::from_raw(0), &cpus));
        pinned.map_err(|error| Error::Refused(format!("cpu {cpu}: {error}")))?;
    }
    run(scenario, stop)
}

struct World {
    nodes: Vec<Node>,
    places: Places,
    network: Network,
    record: Recorder,
    /// Of the bottleneck, bit/s: its device's if it is a kernel.
    rate: Changing,
    lookahead: u64,
    end: u64,
    /// Programs end by themselves, some time after `end`; this is when they are given up.
    last: u64,
    interval: u64,
    interval_ends: u64,
    /// What kernels sent and saw at or beyond the horizon, in order: their work took them past it.
    ahead: Vec<Event>,
    work: Work,
    begun: Instant,
}

struct Event {
    time: u64,
    from: usize,
    what: What,
}

enum What {
    Frame(Box<Frame>),
    Ack(Box<Ack>),
}

impl World {
    fn boot(scenario: &Scenario, stop: &AtomicBool) -> Result<Self> {
        let begun = Instant::now();
        let end = ORIGIN + scenario.duration;
        let last = end + if scenario.iperf3.is_some() { iperf3::GRACE } else { 0 };
        let places = Places { senders: scenario.senders.len(), bottleneck: scenario.aqm.is_some() };
        let mut nodes = Vec::new();
        for place in 0..places.count() {
            let programs = iperf3::programs(scenario, places, place);
            let describe = |shared: &mut Shared| describe(shared, scenario, places, place, &programs);
            let initrd = scenario.iperf3.as_deref().filter(|_| !programs.is_empty());
            let name = places.name(place);
            let calls = scenario.record.calls.as_deref().filter(|_| place < scenario.senders.len());
            let calls = calls.map(|directory| directory.join(&name));
            let boot = Boot {
                name: &name,
                image: &scenario.kernel,
                initrd,
                parameters: &scenario.parameters,
                calls: calls.as_deref(),
            };
            let kernel = Kernel::boot(&boot, describe, stop)?;
            let schedule = match scenario.senders.get(place) {
                Some(sender) => &sender.schedule,
                None if place == places.receiver() => &scenario.receiver,
                None => &Schedule::Always,
            };
            let mut node = Node::new(kernel, TimeSlices::new(schedule, ORIGIN, last), programs);
            node.set_up(stop)?;
            nodes.push(node);
        }
        let network = Network::new(scenario, places, ORIGIN);
        let lookahead = network.least_delay();
        if lookahead == 0 {
            return Err(Error::Refused("rtt: virtual time needs some time between a sender and its receiver".into()));
        }
        Ok(Self {
            nodes,
            places,
            network,
            record: Recorder::new(scenario, ORIGIN)?,
            rate: scenario.path.rate.shifted(ORIGIN),
            lookahead,
            end,
            last,
            interval: scenario.interval,
            interval_ends: ORIGIN + scenario.interval,
            ahead: Vec::new(),
            work: Work { boot_s: begun.elapsed().as_secs_f64(), ..Work::default() },
            begun: Instant::now(),
        })
    }

    /// How far all may run now. None: the run is over.
    fn next_horizon(&mut self) -> Option<u64> {
        let waiting = self.ahead.first().map_or(NEVER, |event| event.time);
        let first = self.nodes.iter_mut().map(Node::next).min().unwrap_or(NEVER).min(waiting);
        while first >= self.interval_ends && self.interval_ends <= self.end {
            let receiver = self.places.receiver();
            self.record.interval_ends(self.interval_ends, &self.nodes[receiver].kernel.shared().stats);
            self.interval_ends += self.interval;
        }
        let interval_ends = if self.interval_ends <= self.end { self.interval_ends } else { NEVER };
        let mut horizon = first.saturating_add(self.lookahead).min(interval_ends).min(self.last);
        if let Some(bottleneck) = self.places.bottleneck() {
            horizon = horizon.min(self.rate.next_change(first).unwrap_or(NEVER));
            self.nodes[bottleneck].kernel.shared().rate = self.rate.at(first);
        }
        let under_way = first < self.last && (first < self.end || self.nodes.iter_mut().any(Node::runs_programs));
        under_way.then_some(horizon)
    }

    /// Lets every kernel that has something to do before the horizon do it, then puts what they sent on the link.
    fn advance(&mut self, horizon: u64, stop: &AtomicBool) -> Result<()> {
        let mut events = std::mem::take(&mut self.ahead);
        for (place, node) in self.nodes.iter_mut().enumerate() {
            if node.next() < horizon {
                node.run(place, horizon, stop, &mut events, &mut self.work.meetings)?;
            }
        }
        // Stable: what one kernel did at one time stays in its order, and kernels in theirs.
        events.sort_by_key(|event| event.time);
        let beyond = events.partition_point(|event| event.time < horizon);
        self.ahead = events.split_off(beyond);
        for event in events {
            self.happens(event)?;
        }
        Ok(())
    }

    fn happens(&mut self, event: Event) -> Result<()> {
        let kernel = |place: usize| &self.nodes[place].kernel;
        match event.what {
            What::Frame(frame) => {
                self.work.frames += 1;
                let carried = self.network.carry(event.from, frame, &mut self.record);
                let carried = carried.map_err(|what| kernel(event.from).nonsense(what))?;
                if let Some((to, frame)) = carried {
                    self.nodes[to].expect(frame);
                }
            }
            What::Ack(ack) => {
                let (network, flow) = (&mut self.network, ack.flow as usize);
                let recorded = self.record.ack(&ack, || network.queued(event.time, flow));
                recorded.map_err(|what| kernel(event.from).nonsense(what))?;
            }
        }
        Ok(())
    }

    fn finish(mut self, scenario: &Scenario) -> Result<Outcome> {
        let schedules = scenario.senders.iter().map(|sender| &sender.schedule).chain([&scenario.receiver]);
        let time_slices = schedules.map(|schedule| schedule.time_slices(ORIGIN, self.end)).collect();
        for node in &mut self.nodes {
            let shared = node.kernel.shared();
            self.work.timers += shared.timers;
            self.work.received_packets += shared.rx_packets;
            self.work.sent_skbs += shared.tx_skbs;
        }
        let busy = self.nodes[..self.places.senders].iter_mut().map(|node| node.kernel.shared().charged).collect();
        self.work.run_s = self.begun.elapsed().as_secs_f64();
        let stats = |node: &mut Node| node.kernel.shared().stats[..scenario.flows.len()].to_vec();
        let senders: Vec<Vec<FlowStats>> = self.nodes[..self.places.senders].iter_mut().map(stats).collect();
        let sent: Vec<_> = scenario.flows.iter().enumerate().map(|(n, flow)| senders[flow.sender][n]).collect();
        let received = stats(&mut self.nodes[self.places.receiver()]);
        let iperf3 = said(&mut self.nodes, self.places, scenario)?;
        let outcome = self.record.finish(&sent, &received)?;
        Ok(Outcome { time_slices, busy, iperf3, work: self.work, ..outcome })
    }
}

/// What iperf3 printed at both ends of every flow.
fn said(nodes: &mut [Node], places: Places, scenario: &Scenario) -> Result<Vec<Said>> {
    if scenario.iperf3.is_none() {
        return Ok(Vec::new());
    }
    let mut flows = vec![Said::default(); scenario.flows.len()];
    for (place, node) in nodes.iter().enumerate() {
        let (texts, words) = iperf3::printed(&node.kernel.console()?, node.programs.len());
        for (program, text) in node.programs.iter().zip(texts) {
            let said = &mut flows[program.flow];
            let end = if place == places.receiver() { &mut said.receiver } else { &mut said.sender };
            *end = iperf3::End { program: text, kernel: last_words(&words) };
        }
    }
    Ok(flows)
}

/// A kernel, its place in time, and what is on its way to it.
struct Node {
    kernel: Kernel,
    programs: Vec<Program>,
    time_slices: TimeSlices,
    /// When it will do something by itself.
    own_next: u64,
    now: u64,
    /// In the order of their times, and of their coming where that is the same.
    arriving: VecDeque<Box<Frame>>,
}

impl Node {
    fn new(kernel: Kernel, time_slices: TimeSlices, programs: Vec<Program>) -> Self {
        Self { kernel, programs, time_slices, own_next: 0, now: 0, arriving: VecDeque::new() }
    }

    /// From the end of its boot to the beginning of the run.
    fn set_up(&mut self, stop: &AtomicBool) -> Result<()> {
        let now = self.kernel.shared().now;
        if now >= ORIGIN {
            return Err(self.kernel.nonsense(format!("its boot after {now} ns of its own time")));
        }
        let mut events = Vec::new();
        self.run(0, ORIGIN, stop, &mut events, &mut 0)?;
        match events.is_empty() {
            true => Ok(()),
            false => Err(self.kernel.nonsense("a frame before the run began".into())),
        }
    }

    /// The earliest time at which anything can happen in it.
    fn next(&mut self) -> u64 {
        let arrival = self.arriving.front().map_or(NEVER, |frame| frame.time);
        let next = self.own_next.min(arrival);
        if next == NEVER {
            NEVER
        } else {
            self.time_slices.first_from(next.max(self.now))
        }
    }

    fn runs_programs(&mut self) -> bool {
        !self.programs.is_empty() && self.kernel.shared().running > 0
    }

    fn expect(&mut self, frame: Box<Frame>) {
        // Nearly always the last: only flows of different delays overtake each other.
        let earlier = self.arriving.iter().rev().take_while(|other| other.time > frame.time).count();
        self.arriving.insert(self.arriving.len() - earlier, frame);
    }

    /// Runs it to the horizon and gathers what it sent and saw.
    fn run(
        &mut self,
        place: usize,
        horizon: u64,
        stop: &AtomicBool,
        events: &mut Vec<Event>,
        meetings: &mut u64,
    ) -> Result<()> {
        loop {
            let complete = self.deliver(horizon);
            let shared = self.kernel.shared();
            // What had no room comes in the next round of this loop, not before its time.
            shared.horizon = complete.unwrap_or(horizon);
            shared.windows = self.time_slices.write(self.now, &mut shared.window) as u32;
            loop {
                *meetings += 1;
                self.kernel.go(stop)?;
                self.gather(place, events)?;
                if self.kernel.shared().reason == reason::HORIZON {
                    break;
                }
            }
            if complete.is_none() {
                return Ok(());
            }
        }
    }

    /// Hands over what arrives before the horizon. Some(time): of what arrives then, there was no room for all.
    fn deliver(&mut self, horizon: u64) -> Option<u64> {
        let shared = self.kernel.shared();
        while let Some(first) = self.arriving.front() {
            if first.time >= horizon {
                break;
            }
            if !frame::encode(first, &mut shared.rx, &mut shared.rx_bytes) {
                return Some(first.time.max(self.now + 1).min(horizon));
            }
            self.arriving.pop_front();
        }
        None
    }

    fn gather(&mut self, place: usize, events: &mut Vec<Event>) -> Result<()> {
        let shared = self.kernel.shared();
        let (bytes, acks, now, next) = (shared.tx_bytes as usize, shared.acks as usize, shared.now, shared.next);
        if bytes > FRAME_BYTES || acks > ACKS {
            return Err(self.kernel.nonsense(format!("{bytes} bytes of frames and {acks} samples")));
        }
        let mut earliest = self.now;
        let mut add = |time: u64, what: What| {
            earliest = earliest.min(time);
            events.push(Event { time, from: place, what });
        };
        for ack in &shared.ack[..acks] {
            add(ack.time, What::Ack(Box::new(*ack)));
        }
        let decoded = frame::decode(&shared.tx[..bytes], |frame| add(frame.time, What::Frame(Box::new(frame))));
        if let Err(what) = decoded {
            return Err(self.kernel.nonsense(what));
        }
        if now < self.now || earliest < self.now {
            return Err(self.kernel.nonsense(format!("something of {} ns, after {} ns", now.min(earliest), self.now)));
        }
        (self.now, self.own_next) = (now, next);
        Ok(())
    }
}

/// Tells a kernel what it is.
fn describe(shared: &mut Shared, scenario: &Scenario, places: Places, place: usize, programs: &[Program]) {
    // Kernels differ in their random numbers, and each run in those of all.
    shared.seed = scenario.seed.wrapping_mul(0x9e37_79b9_7f4a_7c15).wrapping_add(place as u64);
    shared.role = match place {
        place if place < places.senders => role::SENDER,
        place if place == places.receiver() => role::RECEIVER,
        _ => role::BOTTLENECK,
    };
    (shared.address, shared.receiver) = (places.address(place), places.address(places.receiver()));
    (shared.first_port, shared.flows) = (u32::from(FIRST_PORT), scenario.flows.len() as u32);
    shared.tcp_memory = scenario.tcp_memory;
    (shared.tx_completion, shared.coalesce) = (scenario.tx_completion, scenario.coalesce);
    shared.tso_max_size = scenario.tso_max_size;
    if let Some(sender) = scenario.senders.get(place) {
        let CpuCost { timer, rx_packet, tx_skb, tx_byte } = sender.cpu;
        (shared.timer_cost, shared.rx_packet_cost, shared.tx_skb_cost, shared.tx_byte_cost) =
            (timer, rx_packet, tx_skb, tx_byte);
        shared.qdisc = shared::text(&scenario.qdisc);
    }
    if let (role::BOTTLENECK, Some(aqm)) = (shared.role, &scenario.aqm) {
        let commands = qdisc::commands(aqm);
        shared.commands[..commands.len()].copy_from_slice(&commands);
        shared.commands_size = commands.len() as u32;
    }
    shared.ecn = scenario.aqm.as_ref().is_some_and(Aqm::ecn).into();
    shared.carry_payload = scenario.iperf3.is_some().into();
    shared.programs = programs.len() as u32;
    for (to, program) in shared.program.iter_mut().zip(programs) {
        to.start = program.start.map_or(0, |start| ORIGIN + start);
        to.command = shared::text(&program.command);
    }
    for (number, flow) in scenario.flows.iter().enumerate().filter(|(_, flow)| flow.sender == place) {
        shared.flow[number] = describe_flow(flow, scenario.duration);
    }
}

fn describe_flow(flow: &Flow, duration: u64) -> shared::Flow {
    let (pattern, a, b) = match flow.pattern {
        Pattern::Bulk => (pattern::BULK, 0, 0),
        Pattern::Rate { bytes, every } => (pattern::RATE, bytes, every),
        Pattern::Onoff { on, off } => (pattern::ONOFF, on, off),
        Pattern::Idle { after, silence } => (pattern::IDLE, after, silence),
    };
    let (start, stop) = (ORIGIN + flow.start, ORIGIN + flow.stop.unwrap_or(duration));
    shared::Flow { used: 1, pattern, start, stop, a, b, cc: shared::text(&flow.cc) }
}
