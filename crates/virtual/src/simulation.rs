//! The simulation: how far each kernel may run, and what follows from what it did.
//!
//! Every frame needs at least `lookahead` to arrive. If the first thing that happens anywhere happens at `first`, then
//! nothing that is sent from now on arrives before `first + lookahead`, the horizon. Everything that arrives before the
//! horizon is known already, so each kernel can run to it alone, without asking, and in any order: the result is the
//! same as if all ran at once. (This is Chandy and Misra's conservative simulation, in rounds.) Then the frames that
//! the kernels sent are put on the link in the order of their times, and there is a new first event. A kernel with
//! nothing to do before the horizon is not even woken, and time without events costs nothing.
//!
//! Where all frames of senders go to the receiver and the other way round, the two sides run in turns, each with a
//! horizon of its own: what the other side does first, plus `lookahead`, or what it can answer, plus twice that. That
//! is half as many hand-overs.
use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use brobust_timeline::{Schedule, TimeSlices};
use nix::sched::{sched_setaffinity, CpuSet};
use nix::unistd::Pid;

use crate::describe::describe;
use crate::error::{Error, Result};
use crate::frame::{self, TCP};
use crate::kernel::{console_tail, Boot, Kernel};
use crate::link::StepFunction;
use crate::network::Network;
use crate::node::{Event, EventKind, Node, SpareFrames};
use crate::outcome::{Endpoints, Outcome, ProgramResult, Work};
use crate::programs;
use crate::record::{self, Recorder};
use crate::scenario::{CpuCost, Scenario};
use crate::shared::{Shared, NEVER};
use crate::topology::Topology;

/// The beginning of a run on the clock of every kernel, in ns: all have booted by then.
const ORIGIN: u64 = 1_000_000_000;
/// The latest beginning of a run whose waiting programs have to listen first.
const LATEST_ORIGIN: u64 = 32 * ORIGIN;

/// Measures a scenario. Another thread ends the run early by setting `stop`.
pub fn run(scenario: &Scenario, stop: &AtomicBool) -> Result<Outcome> {
    scenario.check().map_err(Error::Refused)?;
    let mut origin = ORIGIN;
    // A run that has begun cannot be put off any more, so it begins again.
    let mut simulation = loop {
        match Simulation::boot(scenario, origin, stop)? {
            Some(simulation) => break simulation,
            None => origin *= 2,
        }
    };
    while let Some(limit) = simulation.next_limit() {
        if stop.load(Ordering::Relaxed) {
            return Err(Error::Interrupted);
        }
        simulation.wait_for_debugger(stop)?;
        simulation.advance(limit, stop)?;
    }
    simulation.finish(scenario)
}

/// Measures a scenario with the controller and all kernels on one CPU. Only one of them runs at a time anyway, and on
/// one CPU they share its caches. The calling thread stays on that CPU afterwards.
pub fn run_on(cpu: Option<usize>, scenario: &Scenario, stop: &AtomicBool) -> Result<Outcome> {
    if let Some(cpu) = cpu {
        let mut cpus = CpuSet::new();
        let pinned = cpus.set(cpu).and_then(|()| sched_setaffinity(Pid::from_raw(0), &cpus));
        pinned.map_err(|error| Error::Refused(format!("cpu {cpu}: {error}")))?;
    }
    run(scenario, stop)
}

/// Puts the frames that node `from` left on the link, whatever the bytes are, as if it had sent all in one turn. For
/// tests.
pub fn carry_frames(scenario: &Scenario, from: usize, bytes: &[u8]) -> std::result::Result<(), String> {
    scenario.check()?;
    let topology = Topology::new(scenario);
    let mut network = Network::new(scenario, topology, ORIGIN);
    let mut record = Recorder::new(scenario, ORIGIN).map_err(|error| error.to_string())?;
    let mut frames = Vec::new();
    frame::decode(bytes, |frame| frames.push(frame))?;
    frames.retain(|frame| (ORIGIN..ORIGIN + scenario.duration).contains(&frame.time));
    frames.sort_by_key(|frame| frame.time);
    for frame in frames {
        let time = frame.time;
        while network.pass_second(time, &mut record).is_some() {}
        network.carry(from % topology.count(), Box::new(frame), &mut record)?;
    }
    Ok(())
}

struct Simulation {
    nodes: Vec<Node>,
    topology: Topology,
    of_programs: bool,
    network: Network,
    record: Recorder,
    /// The beginning of the run on the clock of every kernel, ns.
    origin: u64,
    /// Rate of the bottleneck, bit/s; where the bottleneck is a kernel, of its device.
    rate: StepFunction,
    lookahead: u64,
    end: u64,
    /// Time at which programs are given up that have not ended by themselves; without programs, `end`.
    last: u64,
    interval: u64,
    interval_ends: u64,
    /// Events at or beyond the horizon, in order: the CPU time of their work took kernels past it.
    ahead: Vec<Event>,
    spare: SpareFrames,
    /// Whether senders and receiver run in turns. Packets of both are then not recorded in the order of their times.
    in_turns: bool,
    work: Work,
    begun: Instant,
    /// The number of the node to which a debugger is to attach, and when.
    debugger: Option<(usize, u64)>,
}

impl Simulation {
    /// Boots all kernels. Returns None if there are programs that have to listen before the run, and do not yet.
    fn boot(scenario: &Scenario, origin: u64, stop: &AtomicBool) -> Result<Option<Self>> {
        let begun = Instant::now();
        let end = origin + scenario.duration;
        let last = end + scenario.programs.as_ref().map_or(0, |programs| programs.linger);
        let topology = Topology::new(scenario);
        let mut nodes = Vec::new();
        for number in 0..topology.count() {
            let programs = programs::programs(scenario, topology, number);
            let watcher = programs::watcher(scenario, topology, number, &programs);
            let all: Vec<_> = programs.iter().chain(&watcher).collect();
            let describe = |shared: &mut Shared| describe(shared, scenario, topology, number, &all, origin);
            let initrd =
                scenario.programs.as_ref().filter(|_| !programs.is_empty()).map(|given| given.initrd.as_path());
            let name = topology.name(number);
            let calls = scenario.record.calls.as_deref().filter(|_| number < scenario.senders.len());
            let calls = calls.map(|directory| directory.join(&name));
            let program_calls = scenario.programs.as_ref().and_then(|given| given.calls.as_deref());
            let program_calls = program_calls.filter(|_| initrd.is_some()).map(|directory| directory.join(&name));
            let boot = Boot {
                name: &name,
                image: &scenario.kernel,
                initrd,
                parameters: &scenario.parameters,
                calls: calls.as_deref(),
                program_calls: program_calls.as_deref(),
            };
            let kernel = Kernel::boot(&boot, describe, stop)?;
            let schedule = match scenario.senders.get(number) {
                Some(sender) => &sender.schedule,
                None if number == topology.receiver() => &scenario.receiver,
                None => &Schedule::Always,
            };
            let vcpus = TimeSlices::of_each(schedule, origin, last);
            let mut node = Node::new(kernel, TimeSlices::new(schedule, origin, last), vcpus, programs);
            node.set_up(origin, stop)?;
            if watcher.is_some() && !node.listens() && !node.has_failed() {
                return if origin < LATEST_ORIGIN { Ok(None) } else { Err(node.never_listened(origin)) };
            }
            nodes.push(node);
        }
        let debugger = scenario.debugger.as_ref().map(|wanted| {
            let node = (0..topology.count()).find(|&number| topology.name(number) == wanted.node);
            node.map(|node| (node, origin + wanted.time))
                .ok_or_else(|| Error::Refused(format!("debugger: there is no {}", wanted.node)))
        });
        let network = Network::new(scenario, topology, origin);
        let lookahead = network.min_delay();
        if lookahead == 0 {
            return Err(Error::Refused("rtt: virtual time needs some time between a sender and its receiver".into()));
        }
        Ok(Some(Self {
            nodes,
            topology,
            origin,
            of_programs: scenario.programs.is_some(),
            network,
            record: Recorder::new(scenario, origin)?,
            rate: scenario.path.rate.shifted(origin),
            lookahead,
            end,
            last,
            interval: scenario.interval,
            interval_ends: origin + scenario.interval,
            ahead: Vec::new(),
            spare: SpareFrames::default(),
            in_turns: topology.bottleneck().is_none() && may_run_in_turns(scenario),
            work: Work { boot_s: begun.elapsed().as_secs_f64(), ..Work::default() },
            begun: Instant::now(),
            debugger: debugger.transpose()?,
        }))
    }

    /// At the debugger's time, tells the user which process to attach to, and waits for it. Nothing happens in the run meanwhile, nor while the
    /// debugger lets the kernel stand.
    fn wait_for_debugger(&mut self, stop: &AtomicBool) -> Result<()> {
        let first = self.first(0..self.nodes.len());
        let Some((number, time)) = self.debugger.take_if(|(_, time)| first >= *time) else { return Ok(()) };
        let kernel = &mut self.nodes[number].kernel;
        let (process, seconds) = (kernel.process(), (time - self.origin) as f64 / 1e9);
        eprintln!(
            "brobust: virtual time stands at {seconds} s; {} is process {process}. The run goes on when a debugger \
             that has attached to it does: gdb -p {process} -ex 'handle SIGSEGV SIGALRM SIGIO SIGUSR1 nostop noprint pass'",
            self.topology.name(number)
        );
        kernel.wait_for_debugger(stop)
    }

    /// Returns when some nodes, or the link with what they sent, do the next thing.
    fn first(&mut self, of: Range<usize>) -> u64 {
        let waiting = self.ahead.iter().find(|event| of.contains(&event.from)).map_or(NEVER, |event| event.time);
        let at_second = self.network.next_at_second();
        self.nodes[of].iter_mut().map(Node::next).min().unwrap_or(NEVER).min(waiting).min(at_second)
    }

    /// Returns the time up to which all kernels may run now, if nothing is sent to them, or None when the run is over.
    fn next_limit(&mut self) -> Option<u64> {
        let first = self.first(0..self.nodes.len());
        while first >= self.interval_ends && self.interval_ends <= self.end {
            let receiver = self.topology.receiver();
            self.record.interval_ends(self.interval_ends, &self.nodes[receiver].kernel.shared().stats);
            self.interval_ends += self.interval;
        }
        let interval_ends = if self.interval_ends <= self.end { self.interval_ends } else { NEVER };
        let mut limit = interval_ends.min(self.last);
        if let Some(bottleneck) = self.topology.bottleneck() {
            limit = limit.min(self.rate.next_change(first).unwrap_or(NEVER));
            self.nodes[bottleneck].kernel.shared().rate = self.rate.at(first);
        }
        if let Some((_, time)) = self.debugger.filter(|(_, time)| first < *time) {
            limit = limit.min(time);
        }
        let under_way = first < self.last && (first < self.end || self.nodes.iter_mut().any(Node::runs_programs));
        under_way.then_some(limit)
    }

    /// Runs the kernels as far as they may, and not beyond the limit.
    fn advance(&mut self, limit: u64, stop: &AtomicBool) -> Result<()> {
        let (all, senders) = (0..self.nodes.len(), 0..self.topology.senders);
        if !self.in_turns {
            let horizon = self.first(all.clone()).saturating_add(self.lookahead).min(limit);
            return self.run_nodes(all, horizon, stop);
        }
        let receiver = senders.end..all.end;
        for (side, other) in [(senders.clone(), receiver.clone()), (receiver, senders)] {
            // What the other side does by itself, or in answer to what this side does first.
            let of_itself = self.first(other).saturating_add(self.lookahead);
            let answer = self.first(side.clone()).saturating_add(2 * self.lookahead);
            self.run_nodes(side, of_itself.min(answer).min(limit), stop)?;
        }
        Ok(())
    }

    /// Runs every kernel of these that has something to do before the horizon, then puts what they sent on the link.
    fn run_nodes(&mut self, nodes: Range<usize>, horizon: u64, stop: &AtomicBool) -> Result<()> {
        let ahead = std::mem::take(&mut self.ahead).into_iter();
        let (mut events, others): (Vec<_>, Vec<_>) = ahead.partition(|event| nodes.contains(&event.from));
        for number in nodes {
            let node = &mut self.nodes[number];
            if node.next() < horizon {
                node.run(number, horizon, stop, &mut events, &mut self.spare, &mut self.work.hand_overs)?;
            }
        }
        // The sort is stable: events of the same time stay in the order of the nodes, and of what each node did.
        events.sort_by_key(|event| event.time);
        let beyond = events.partition_point(|event| event.time < horizon);
        self.ahead = events.split_off(beyond);
        self.ahead.extend(others);
        self.ahead.sort_by_key(|event| event.time);
        for event in events {
            self.pass_second(event.time);
            self.dispatch(event)?;
        }
        self.pass_second(horizon - 1);
        Ok(())
    }

    /// Lets what reaches the second bottleneck by a time go on to the receiver.
    fn pass_second(&mut self, until: u64) {
        while let Some((to, frame)) = self.network.pass_second(until, &mut self.record) {
            self.nodes[to].add_arrival(frame);
        }
    }

    fn dispatch(&mut self, event: Event) -> Result<()> {
        let kernel = |number: usize| &self.nodes[number].kernel;
        match event.kind {
            EventKind::Frame(frame) => {
                self.work.frames += 1;
                let delivery = self.network.carry(event.from, frame, &mut self.record);
                let delivery = delivery.map_err(|what| kernel(event.from).protocol_violation(what))?;
                if let Some((to, frame)) = delivery {
                    self.nodes[to].add_arrival(frame);
                }
            }
            EventKind::Ack(ack) => {
                let network = &mut self.network;
                let connection = match self.of_programs {
                    false => Some(ack.flow as usize),
                    true => network.connection_of(&Endpoints {
                        protocol: TCP,
                        sender: event.from,
                        port: ack.local_port,
                        server: ack.remote_port,
                    }),
                };
                // Programs also have connections that stay within their kernel.
                let to_receiver = !self.of_programs || ack.remote == self.topology.address(self.topology.receiver());
                let Some(connection) = connection.filter(|_| to_receiver) else { return Ok(()) };
                let recorded = self.record.ack(connection, &ack, || network.queued(event.time, connection));
                recorded.map_err(|what| kernel(event.from).protocol_violation(what))?;
            }
        }
        Ok(())
    }

    fn finish(mut self, scenario: &Scenario) -> Result<Outcome> {
        self.nodes.iter().try_for_each(|node| node.kernel.check_console())?;
        let schedules = scenario.senders.iter().map(|sender| &sender.schedule).chain([&scenario.receiver]);
        let given = schedules.zip(&self.nodes).map(|(schedule, node)| {
            let begun = node.time_slices.begun(self.origin, self.end);
            begun.unwrap_or_else(|| schedule.time_slices(self.origin, self.end))
        });
        let time_slices = given.collect();
        for node in &mut self.nodes {
            let shared = node.kernel.shared();
            self.work.nic_drops = self.work.nic_drops.saturating_add(shared.rx_dropped);
        }
        let busy = self.nodes[..self.topology.senders].iter_mut().map(|node| node.kernel.shared().charged).collect();
        self.work.run_s = self.begun.elapsed().as_secs_f64();
        let flows = scenario.flows.iter().enumerate();
        let sent: Vec<_> = flows.map(|(n, flow)| self.nodes[flow.sender].kernel.shared().stats[n]).collect();
        let receiver = self.nodes[self.topology.receiver()].kernel.shared();
        let received = receiver.stats[..scenario.connections()].to_vec();
        let programs = program_results(&mut self.nodes, self.topology, self.origin)?;
        let each = scenario.transfers.as_ref().map_or(&[] as &[_], |transfers| &transfers.each);
        let transfers = record::transfers(each, &received[scenario.flows.len()..], self.origin);
        let outcome = self.record.finish(&sent, &received)?;
        let origin = self.origin;
        Ok(Outcome { origin, time_slices, busy, transfers, programs, work: self.work, ..outcome })
    }
}

/// Returns whether senders and receiver may run in turns, which is faster, and send the same packets as together. What
/// needs the packets of both in the order of their times may not. Nor may a kernel whose work takes time, since that
/// takes its clock beyond the horizon, nor cross traffic, whose packets can leave at the very time of others.
fn may_run_in_turns(scenario: &Scenario) -> bool {
    scenario.programs.is_none()
        && scenario.path.second.is_none()
        && scenario.transfers.is_none()
        && scenario.senders.iter().all(|sender| sender.cpu == CpuCost::default())
        && !scenario.record.has_packets()
}

/// Returns what became of every program, in the order of the nodes and of their flows.
fn program_results(nodes: &mut [Node], topology: Topology, origin: u64) -> Result<Vec<ProgramResult>> {
    let mut results = Vec::new();
    for (number, node) in nodes.iter_mut().enumerate().filter(|(_, node)| !node.programs.is_empty()) {
        let (printed, rest) = programs::split_console(&node.kernel.console()?, node.programs.len());
        let kernel = console_tail(&rest);
        for ((place, program), printed) in node.programs.iter().enumerate().zip(printed) {
            let shared = &node.kernel.shared().program[place];
            results.push(ProgramResult {
                flow: program.flow,
                at_receiver: number == topology.receiver(),
                words: program.words.clone(),
                ended: (shared.ended > 0).then_some((shared.ended as i64).saturating_sub(origin as i64)),
                status: shared.status,
                error: shared.error,
                stdout: printed.stdout,
                stderr: printed.stderr,
                kernel: kernel.clone(),
            });
        }
    }
    Ok(results)
}
