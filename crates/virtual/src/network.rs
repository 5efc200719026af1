//! Where frames go: from a sender over the bottleneck to the receiver, and back.
//!
//! The bottleneck is the link's own FIFO, or a kernel that forwards and has a queueing discipline of its own in front of
//! a device of the bottleneck's rate. In the second case the way there and the way on are a quarter of the round-trip
//! time each.
use std::collections::VecDeque;

use rand::{Rng, SeedableRng};
use rand_pcg::Pcg64Mcg;

use crate::frame::{Frame, Tcp};
use crate::iperf3::SERVER_PORT;
use crate::link::{Propagation, Queue};
use crate::record::{Packet, Recorder};
use crate::scenario::Scenario;

pub const FIRST_PORT: u16 = 10_000;

/// The nodes' places in every list: the senders, then the receiver, then the bottleneck if it is a kernel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Places {
    pub senders: usize,
    pub bottleneck: bool,
}

impl Places {
    pub fn receiver(self) -> usize {
        self.senders
    }

    pub fn bottleneck(self) -> Option<usize> {
        self.bottleneck.then_some(self.senders + 1)
    }

    pub fn count(self) -> usize {
        self.senders + 1 + usize::from(self.bottleneck)
    }

    pub fn name(self, place: usize) -> String {
        match place {
            place if place < self.senders => format!("sender {}", place + 1),
            place if place == self.senders => "receiver".into(),
            _ => "bottleneck".into(),
        }
    }

    /// 10.0.0.1, 10.0.0.2, ...
    pub fn address(self, place: usize) -> u32 {
        0x0a00_0001 + place as u32
    }
}

/// Where it arrives, with the time of its arrival; none: it is lost.
pub type Carried = Option<(usize, Box<Frame>)>;

pub struct Network {
    places: Places,
    bottleneck: Bottleneck,
    /// iperf3's: each flow has a second connection, which takes the same way.
    controls: bool,
    /// By flow
    sender: Vec<usize>,
    onwards: Vec<Propagation>,
    back: Vec<Propagation>,
}

enum Bottleneck {
    Link(Queue),
    /// `inside` and `own` by connection.
    Kernel {
        ways: Vec<Propagation>,
        inside: Vec<VecDeque<Inside>>,
        own: Vec<u64>,
        loss: f64,
        random: Pcg64Mcg,
    },
}

/// A packet in the bottleneck's kernel.
struct Inside {
    seq: u32,
    identification: u16,
    came: u64,
    length: u64,
    packet: Packet,
}

impl Network {
    pub fn new(scenario: &Scenario, places: Places, origin: u64) -> Self {
        let rtts: Vec<_> = scenario.flows.iter().map(|flow| flow.rtt.shifted(origin)).collect();
        let ways = |quarters| rtts.iter().map(|rtt| Propagation::new(rtt.clone(), quarters)).collect::<Vec<_>>();
        let path = crate::link::Path { rate: scenario.path.rate.shifted(origin), ..scenario.path.clone() };
        let controls = scenario.iperf3.is_some();
        let connections = scenario.flows.len() * if controls { 2 } else { 1 };
        let bottleneck = match places.bottleneck {
            false => Bottleneck::Link(Queue::new(path, connections)),
            true => Bottleneck::Kernel {
                ways: ways(1),
                inside: (0..connections).map(|_| VecDeque::new()).collect(),
                own: vec![0; connections],
                loss: path.loss,
                random: Pcg64Mcg::seed_from_u64(path.seed),
            },
        };
        Self {
            places,
            bottleneck,
            controls,
            sender: scenario.flows.iter().map(|flow| flow.sender).collect(),
            onwards: ways(if places.bottleneck { 1 } else { 2 }),
            back: ways(2),
        }
    }

    /// Nothing that is sent arrives sooner than this after.
    pub fn least_delay(&self) -> u64 {
        let there = match &self.bottleneck {
            Bottleneck::Link(_) => &[],
            Bottleneck::Kernel { ways, .. } => ways.as_slice(),
        };
        self.onwards.iter().chain(&self.back).chain(there).map(Propagation::least).min().unwrap_or(0)
    }

    /// Bytes of a flow that wait at the bottleneck.
    pub fn queued(&mut self, now: u64, flow: usize) -> u64 {
        match &mut self.bottleneck {
            Bottleneck::Link(queue) => queue.own_backlog(now, flow),
            Bottleneck::Kernel { own, .. } => own[flow],
        }
    }

    /// Flow n's own, or with iperf3 the second one of flow n: the number of flows + n.
    fn connection(&self, back: bool, tcp: &Tcp) -> Result<usize, String> {
        let (near, far) = (tcp.source_port, tcp.destination_port);
        let (port, server) = if back { (far, near) } else { (near, far) };
        let (flow, flows) = (usize::from(port.wrapping_sub(FIRST_PORT)), self.sender.len());
        let of_server = usize::from(server.wrapping_sub(SERVER_PORT));
        match (flow < flows, self.controls && of_server < flows) {
            (true, _) => Ok(flow),
            (false, true) => Ok(flows + of_server),
            (false, false) => Err(format!("a segment of port {port}, which is no flow's")),
        }
    }

    /// Takes a frame that a node sent. Returns where it arrives and the frame with the time of its arrival, unless it is
    /// lost. Frames come in the order of their times.
    pub fn carry(&mut self, from: usize, mut frame: Box<Frame>, record: &mut Recorder) -> Result<Carried, String> {
        let back = from == self.places.receiver();
        let connection = self.connection(back, &frame.tcp)?;
        let flow = connection % self.sender.len();
        let sent = frame.time;
        if back {
            frame.time = self.back[flow].arrives(sent);
            record.ack_frame(from, connection, sent, &frame);
            return Ok(Some((self.sender[flow], frame)));
        }
        match &mut self.bottleneck {
            Bottleneck::Link(queue) => {
                let passage = queue.offer(sent, u64::from(frame.length), connection, frame.continues);
                let (waited, backlog) = (passage.waited, passage.backlog);
                let mut packet = Packet { connection, sent, waited, backlog, ..Packet::default() };
                let Some(left) = passage.left else {
                    record.data_frame(from, packet, &frame);
                    return Ok(None);
                };
                frame.time = self.onwards[flow].arrives(left);
                (packet.left, packet.arrived) = (Some(left), Some(frame.time));
                record.data_frame(from, packet, &frame);
                Ok(Some((self.places.receiver(), frame)))
            }
            Bottleneck::Kernel { ways, inside, own, loss, random } => {
                if Some(from) != self.places.bottleneck() {
                    let mut packet = Packet { connection, sent, backlog: own.iter().sum(), ..Packet::default() };
                    if *loss > 0.0 && random.random::<f64>() < *loss {
                        record.data_frame(from, packet, &frame);
                        return Ok(None);
                    }
                    frame.time = ways[flow].arrives(sent);
                    let length = u64::from(frame.length);
                    packet.entered = Some(frame.time);
                    packet.row = record.data_frame_on_its_way(from, packet, &frame);
                    let (seq, identification) = (frame.tcp.seq, frame.tcp.identification);
                    inside[connection].push_back(Inside { seq, identification, came: frame.time, length, packet });
                    own[connection] += length;
                    return Ok(self.places.bottleneck().map(|place| (place, frame)));
                }
                // Disciplines keep the order of a flow: what should have left before was dropped.
                while let Some(first) = inside[connection].pop_front() {
                    own[connection] -= first.length;
                    if (first.seq, first.identification) != (frame.tcp.seq, frame.tcp.identification) {
                        record.dropped_later(first.packet);
                        continue;
                    }
                    frame.time = self.onwards[flow].arrives(sent);
                    record.left_later(first.packet, sent, frame.time, sent.saturating_sub(first.came), &frame);
                    return Ok(Some((self.places.receiver(), frame)));
                }
                Err("a segment that it was never sent".into())
            }
        }
    }
}
