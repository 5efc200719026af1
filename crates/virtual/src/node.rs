//! A kernel in the simulation: how far it has run, what is on its way to it, and what it did in a turn.
use std::collections::VecDeque;
use std::sync::atomic::AtomicBool;

use brobust_timeline::TimeSlices;

use crate::error::{Error, Result};
use crate::frame::{self, Frame, MAX_FRAMES};
use crate::kernel::Kernel;
use crate::programs::Program;
use crate::shared::{reason, Ack, ACKS, FRAME_BYTES, NEVER};

/// A kernel, how far it has run, and the frames that are on their way to it.
pub struct Node {
    pub kernel: Kernel,
    pub programs: Vec<Program>,
    pub time_slices: TimeSlices,
    /// Where it has several vCPUs, those of each.
    vcpus: Vec<TimeSlices>,
    /// Time at which the kernel will do something by itself.
    own_next: u64,
    now: u64,
    /// The beginning of the run: nothing that the kernel leaves after its set-up happened before it.
    origin: u64,
    /// Frames in the order of their arrival; those of the same time in the order in which they were added.
    arriving: VecDeque<Box<Frame>>,
}

/// The memory of frames that have arrived, for others: thousands are under way, and to allocate each costs more than what
/// the link does with it.
#[derive(Default)]
#[allow(clippy::vec_box, reason = "the boxes are handed on")]
pub struct SpareFrames(Vec<Box<Frame>>);

impl SpareFrames {
    fn boxed(&mut self, frame: Frame) -> Box<Frame> {
        match self.0.pop() {
            Some(mut spare) => {
                *spare = frame;
                spare
            }
            None => Box::new(frame),
        }
    }
}

/// What a kernel did, for the link and the record.
pub struct Event {
    pub time: u64,
    /// Number of the node that caused it.
    pub from: usize,
    pub kind: EventKind,
}

pub enum EventKind {
    Frame(Box<Frame>),
    Ack(Box<Ack>),
}

impl Node {
    pub fn new(kernel: Kernel, time_slices: TimeSlices, vcpus: Vec<TimeSlices>, programs: Vec<Program>) -> Self {
        Self { kernel, programs, time_slices, vcpus, own_next: 0, now: 0, origin: 0, arriving: VecDeque::new() }
    }

    /// Runs the kernel from the end of its boot to the beginning of the run.
    pub fn set_up(&mut self, origin: u64, stop: &AtomicBool) -> Result<()> {
        let now = self.kernel.shared().now;
        if now >= origin {
            return Err(self.kernel.protocol_violation(format!("its boot took {now} ns of its own time")));
        }
        let mut events = Vec::new();
        self.run(0, origin, stop, &mut events, &mut SpareFrames::default(), &mut 0)?;
        self.origin = origin;
        match events.is_empty() {
            true => Ok(()),
            false if self.programs.is_empty() => {
                Err(self.kernel.protocol_violation("it sent a frame before the run began".into()))
            }
            false => {
                let (name, words) = (self.kernel.name(), &self.programs[0].words[0]);
                Err(Error::Refused(format!(
                    "{words} at the {name} sent a packet before the run began; the programs there start first, and have \
                     to listen: make the one that connects the other end's, or let the other end wait (programs.waits)"
                )))
            }
        }
    }

    /// Returns whether the programs listen: the watcher, which is the last program, has ended because they do.
    pub fn listens(&mut self) -> bool {
        let watcher = &self.kernel.shared().program[self.programs.len()];
        watcher.ended > 0 && watcher.status == 0 && watcher.error == 0
    }

    /// Returns whether one of the programs has ended in a failure, which the run's result tells.
    pub fn has_failed(&mut self) -> bool {
        let of_flows = &self.kernel.shared().program[..self.programs.len()];
        of_flows.iter().any(|program| program.ended > 0 && (program.status != 0 || program.error != 0))
    }

    pub fn never_listened(&mut self, origin: u64) -> Error {
        let (words, name) = (self.programs[0].words[0].clone(), self.kernel.name().to_owned());
        // One that has failed is what the run's result tells.
        let what = match self.kernel.shared().program[0].ended {
            0 => format!("does not listen after {} s of virtual time", origin / 1_000_000_000),
            _ => "ended with status 0, and nothing listens".into(),
        };
        Error::Refused(format!(
            "{words} at the {name} {what}, and programs.waits says that it waits: at {{port}}, if its command names that, \
             and at an address that others reach, which 127.0.0.1 is not"
        ))
    }

    /// Returns the earliest time at which anything can happen in the kernel.
    pub fn next(&mut self) -> u64 {
        let arrival = self.next_arrival();
        if self.own_next.min(arrival) == NEVER {
            NEVER
        } else {
            self.time_slices.first_of(self.own_next.max(self.now), arrival.max(self.now))
        }
    }

    fn next_arrival(&self) -> u64 {
        self.arriving.front().map_or(NEVER, |frame| frame.time)
    }

    pub fn runs_programs(&mut self) -> bool {
        !self.programs.is_empty() && self.kernel.shared().running > 0
    }

    /// Adds a frame that will arrive at its time.
    pub fn add_arrival(&mut self, frame: Box<Frame>) {
        // Its place is nearly always at the end: only frames of flows with different delays overtake each other.
        let earlier = self.arriving.iter().rev().take_while(|other| other.time > frame.time).count();
        self.arriving.insert(self.arriving.len() - earlier, frame);
    }

    /// Runs the kernel to the horizon, and adds what it sent and sampled to `events`.
    pub fn run(
        &mut self,
        number: usize,
        horizon: u64,
        stop: &AtomicBool,
        events: &mut Vec<Event>,
        spare: &mut SpareFrames,
        hand_overs: &mut u64,
    ) -> Result<()> {
        let last = horizon;
        loop {
            // Where timeslices begin with wake-ups, the kernel stops when the next one could begin.
            let next = self.next();
            let wanted = self.own_next.min(self.next_arrival()).max(self.now);
            let horizon = last.min(self.time_slices.wake_up(next.min(last), wanted));
            let left_out = self.deliver(horizon, spare);
            let shared = self.kernel.shared();
            // A frame for which the buffer had no room is delivered in the next round of this loop, still in time.
            shared.horizon = left_out.unwrap_or(horizon);
            shared.windows = self.time_slices.write(self.now, &mut shared.window) as u32;
            for (vcpu, to) in self.vcpus.iter_mut().zip(&mut shared.vcpu) {
                to.windows = vcpu.write(self.now, &mut to.window) as u64;
            }
            loop {
                *hand_overs += 1;
                self.kernel.go(stop)?;
                self.gather(number, events, spare)?;
                if events.len() > MAX_FRAMES {
                    return Err(Error::Refused(format!(
                        "{} sends too much: more than {MAX_FRAMES} packets are under way before the first can arrive",
                        self.kernel.name()
                    )));
                }
                if self.kernel.shared().reason == reason::HORIZON {
                    break;
                }
            }
            if left_out.is_none() && (horizon == last || self.next() >= last) {
                return Ok(());
            }
        }
    }

    /// Delivers every frame that arrives before the horizon. Returns Some(t) if the buffer is full, t being the arrival
    /// time of the first frame left out.
    fn deliver(&mut self, horizon: u64, spare: &mut SpareFrames) -> Option<u64> {
        let shared = self.kernel.shared();
        while let Some(first) = self.arriving.front() {
            if first.time >= horizon {
                break;
            }
            if !frame::encode(first, &mut shared.rx, &mut shared.rx_bytes) {
                return Some(first.time.max(self.now + 1).min(horizon));
            }
            spare.0.extend(self.arriving.pop_front());
        }
        None
    }

    /// Adds the frames and samples that the kernel left in the shared memory to `events`.
    fn gather(&mut self, number: usize, events: &mut Vec<Event>, spare: &mut SpareFrames) -> Result<()> {
        let shared = self.kernel.shared();
        let (bytes, acks, now, next) = (shared.tx_bytes as usize, shared.acks as usize, shared.now, shared.next);
        if bytes > FRAME_BYTES || acks > ACKS {
            return Err(self.kernel.protocol_violation(format!("it left {bytes} bytes of frames and {acks} samples")));
        }
        let mut earliest = u64::MAX;
        let mut add = |time: u64, kind: EventKind| {
            earliest = earliest.min(time);
            events.push(Event { time, from: number, kind });
        };
        for ack in &shared.ack[..acks] {
            add(ack.time, EventKind::Ack(Box::new(*ack)));
        }
        let decoded = frame::decode(&shared.tx[..bytes], |frame| add(frame.time, EventKind::Frame(spare.boxed(frame))));
        if let Err(what) = decoded {
            return Err(self.kernel.protocol_violation(what));
        }
        if now < self.now || earliest < self.now.max(self.origin) {
            let (then, after) = (now.min(earliest), self.now.max(self.origin));
            return Err(self.kernel.protocol_violation(format!("something happened at {then} ns, after {after} ns")));
        }
        (self.now, self.own_next) = (now, next);
        Ok(())
    }
}
