//! Where frames go: from a sender over the bottleneck to the receiver, and back.
//!
//! The bottleneck is either the link's own FIFO or a kernel, which forwards, and has a queueing discipline of its own
//! in front of a device of the bottleneck's rate. Data takes half of the round-trip time from sender to receiver; where
//! the bottleneck is a kernel, it takes one half of that to the bottleneck and the other half from there.
use std::collections::VecDeque;

use rand::{Rng, SeedableRng};
use rand_pcg::Pcg64Mcg;

use crate::frame::{Frame, Tcp};
use crate::link::{Path, Propagation, Queue};
use crate::ports::{FIRST_PORT, SERVER_PORT};
use crate::record::{Packet, Recorder};
use crate::scenario::Scenario;
use crate::topology::Topology;

/// The node where a frame arrives, and the frame with the time of its arrival. None: it is lost.
pub type Delivery = Option<(usize, Box<Frame>)>;

pub struct Network {
    topology: Topology,
    bottleneck: Bottleneck,
    /// Whether each flow has a second connection, over which iperf3 agrees on the test. It takes the same path.
    has_control_connections: bool,
    /// The sender of each flow.
    sender: Vec<usize>,
    /// By flow: from the bottleneck to the receiver.
    to_receiver: Vec<Propagation>,
    /// By flow: from the receiver to the sender.
    to_sender: Vec<Propagation>,
}

enum Bottleneck {
    Link(Queue),
    Kernel {
        /// By flow: from the sender to the bottleneck.
        to_bottleneck: Vec<Propagation>,
        /// By connection: the packets that the kernel holds, oldest first.
        queued: Vec<VecDeque<Queued>>,
        /// By connection: the bytes that the kernel holds.
        backlog: Vec<u64>,
        /// Fraction of packets lost before the bottleneck.
        loss: f64,
        random: Pcg64Mcg,
    },
}

/// A packet in the bottleneck's kernel.
struct Queued {
    seq: u32,
    identification: u16,
    entered: u64,
    length: u64,
    packet: Packet,
}

impl Network {
    pub fn new(scenario: &Scenario, topology: Topology, origin: u64) -> Self {
        let rtts: Vec<_> = scenario.flows.iter().map(|flow| flow.rtt.shifted(origin)).collect();
        let delays = |quarters| rtts.iter().map(|rtt| Propagation::new(rtt.clone(), quarters)).collect::<Vec<_>>();
        let path = Path { rate: scenario.path.rate.shifted(origin), ..scenario.path.clone() };
        let has_control_connections = scenario.iperf3.is_some();
        let connections = scenario.flows.len() * if has_control_connections { 2 } else { 1 };
        let bottleneck = match topology.bottleneck {
            false => Bottleneck::Link(Queue::new(path, connections)),
            true => Bottleneck::Kernel {
                to_bottleneck: delays(1),
                queued: (0..connections).map(|_| VecDeque::new()).collect(),
                backlog: vec![0; connections],
                loss: path.loss,
                random: Pcg64Mcg::seed_from_u64(path.seed),
            },
        };
        Self {
            topology,
            bottleneck,
            has_control_connections,
            sender: scenario.flows.iter().map(|flow| flow.sender).collect(),
            to_receiver: delays(if topology.bottleneck { 1 } else { 2 }),
            to_sender: delays(2),
        }
    }

    /// Returns the shortest time between sending a frame and its arrival at the next node.
    pub fn min_delay(&self) -> u64 {
        let to_bottleneck = match &self.bottleneck {
            Bottleneck::Link(_) => &[],
            Bottleneck::Kernel { to_bottleneck, .. } => to_bottleneck.as_slice(),
        };
        let delays = self.to_receiver.iter().chain(&self.to_sender).chain(to_bottleneck);
        delays.map(Propagation::min).min().unwrap_or(0)
    }

    /// Returns how many bytes of a flow wait at the bottleneck.
    pub fn queued(&mut self, now: u64, flow: usize) -> u64 {
        match &mut self.bottleneck {
            Bottleneck::Link(queue) => queue.own_backlog(now, flow),
            Bottleneck::Kernel { backlog, .. } => backlog[flow],
        }
    }

    /// Returns the number of a segment's connection: n for flow n's own, the number of flows + n for the second one
    /// that iperf3 has for flow n.
    fn connection(&self, to_sender: bool, tcp: &Tcp) -> Result<usize, String> {
        let (source, destination) = (tcp.source_port, tcp.destination_port);
        let (port, server) = if to_sender { (destination, source) } else { (source, destination) };
        let (flow, flows) = (usize::from(port.wrapping_sub(FIRST_PORT)), self.sender.len());
        let of_server = usize::from(server.wrapping_sub(SERVER_PORT));
        match (flow < flows, self.has_control_connections && of_server < flows) {
            (true, _) => Ok(flow),
            (false, true) => Ok(flows + of_server),
            (false, false) => Err(format!("it sent a segment of port {port}, which is no flow's")),
        }
    }

    /// Carries a frame that a node sent. Returns the node where it arrives and the frame with the time of its arrival,
    /// or None if it is lost. The caller offers frames in the order of their times.
    pub fn carry(&mut self, from: usize, mut frame: Box<Frame>, record: &mut Recorder) -> Result<Delivery, String> {
        let to_sender = from == self.topology.receiver();
        let connection = self.connection(to_sender, &frame.tcp)?;
        let flow = connection % self.sender.len();
        let sent = frame.time;
        if to_sender {
            frame.time = self.to_sender[flow].arrives(sent);
            record.ack_frame(from, connection, sent, &frame);
            return Ok(Some((self.sender[flow], frame)));
        }
        match &mut self.bottleneck {
            Bottleneck::Link(queue) => {
                let verdict = queue.offer(sent, u64::from(frame.length), connection, frame.continues);
                let (waited, backlog) = (verdict.waited, verdict.backlog);
                let mut packet = Packet { connection, sent, waited, backlog, ..Packet::default() };
                let Some(left) = verdict.left else {
                    record.data_frame(from, packet, &frame);
                    return Ok(None);
                };
                frame.time = self.to_receiver[flow].arrives(left);
                (packet.left, packet.arrived) = (Some(left), Some(frame.time));
                record.data_frame(from, packet, &frame);
                Ok(Some((self.topology.receiver(), frame)))
            }
            Bottleneck::Kernel { to_bottleneck, queued, backlog, loss, random } => {
                if Some(from) != self.topology.bottleneck() {
                    let mut packet = Packet { connection, sent, backlog: backlog.iter().sum(), ..Packet::default() };
                    if *loss > 0.0 && random.random::<f64>() < *loss {
                        record.data_frame(from, packet, &frame);
                        return Ok(None);
                    }
                    frame.time = to_bottleneck[flow].arrives(sent);
                    let (entered, length) = (frame.time, u64::from(frame.length));
                    packet.entered = Some(entered);
                    packet.row = record.data_frame_to_bottleneck(from, packet, &frame);
                    let (seq, identification) = (frame.tcp.seq, frame.tcp.identification);
                    queued[connection].push_back(Queued { seq, identification, entered, length, packet });
                    backlog[connection] += length;
                    return Ok(self.topology.bottleneck().map(|bottleneck| (bottleneck, frame)));
                }
                // Queueing disciplines keep the order of a flow, so every packet that was queued before this one and
                // has not left was dropped.
                while let Some(first) = queued[connection].pop_front() {
                    backlog[connection] -= first.length;
                    if (first.seq, first.identification) != (frame.tcp.seq, frame.tcp.identification) {
                        record.bottleneck_dropped(first.packet);
                        continue;
                    }
                    frame.time = self.to_receiver[flow].arrives(sent);
                    let waited = sent.saturating_sub(first.entered);
                    record.left_bottleneck(first.packet, sent, frame.time, waited, &frame);
                    return Ok(Some((self.topology.receiver(), frame)));
                }
                Err("it forwarded a segment that it never received".into())
            }
        }
    }
}
