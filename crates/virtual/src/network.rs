//! Where frames go: from a sender over the bottleneck to the receiver, and back.
//!
//! The bottleneck is either the link's own FIFO or a kernel, which forwards, and has a queueing discipline of its own
//! in front of a device of the bottleneck's rate. Data takes half of the round-trip time from sender to receiver; where
//! the bottleneck is a kernel, it takes one half of that to the bottleneck and the other half from there. Behind the FIFO
//! there may be a second one, at no distance.
use std::collections::{HashMap, VecDeque};

use rand::{Rng, SeedableRng};
use rand_pcg::Pcg64Mcg;

use crate::frame::{Frame, Headers, UDP};
use crate::link::{Path, Propagation, Queue};
use crate::outcome::Endpoints;
use crate::ports::{FIRST_PORT, SERVER_PORT};
use crate::programs;
use crate::record::{Packet, Recorder};
use crate::scenario::Scenario;
use crate::shared::NEVER;
use crate::topology::Topology;

/// The node where a frame arrives, and the frame with the time of its arrival. None: it is lost.
pub type Delivery = Option<(usize, Box<Frame>)>;

pub struct Network {
    topology: Topology,
    bottleneck: Bottleneck,
    /// The sender of each flow, and last that of the transfers.
    sender: Vec<usize>,
    /// The flow whose delays each connection has. Without programs, each flow has one connection, of the same number;
    /// those of transfers follow, and have delays in common.
    route: Vec<usize>,
    /// The connections of programs. None: there are no programs.
    of_programs: Option<Connections>,
    /// By flow: from the bottleneck to the receiver.
    to_receiver: Vec<Propagation>,
    /// By flow: from the receiver to the sender.
    to_sender: Vec<Propagation>,
}

/// The connections of programs, which may have any protocol and ports. They are numbered in the order of their first
/// packets.
struct Connections {
    numbers: HashMap<Endpoints, usize>,
    /// Whether the data of a flow is only what comes from its own port.
    own_ports_only: bool,
}

/// More of them are a program that tries all ports.
const MAX_CONNECTIONS: usize = 1 << 16;

enum Bottleneck {
    Link {
        first: Queue,
        second: Option<Box<Second>>,
    },
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
        next_identification: u16,
    },
}

/// The bottleneck behind the first. It is given its packets when their time has come, since others may enter there.
struct Second {
    queue: Queue,
    /// Packets that have left the first bottleneck, or will, in the order of these times.
    arriving: VecDeque<(u64, Packet, Box<Frame>)>,
    /// The connections from this number on enter here.
    enter_from: usize,
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
        let rtts: Vec<_> = scenario.routes().map(|(_, rtt)| rtt.shifted(origin)).collect();
        let delays = |quarters| rtts.iter().map(|rtt| Propagation::new(rtt.clone(), quarters)).collect::<Vec<_>>();
        let path = Path { rate: scenario.path.rate.shifted(origin), ..scenario.path.clone() };
        let connections = if scenario.programs.is_some() { 0 } else { scenario.connections() };
        let of_programs = scenario
            .programs
            .as_ref()
            .map(|given| Connections { numbers: HashMap::new(), own_ports_only: programs::names_its_port(given) });
        let bottleneck = match topology.bottleneck {
            false => Bottleneck::Link {
                second: path.second.map(|second| {
                    Box::new(Second {
                        queue: Queue::new(second.path(), connections),
                        arriving: VecDeque::new(),
                        enter_from: match &scenario.transfers {
                            Some(transfers) if transfers.at_second => scenario.flows.len(),
                            _ => usize::MAX,
                        },
                    })
                }),
                first: Queue::new(path, connections),
            },
            true => Bottleneck::Kernel {
                to_bottleneck: delays(1),
                queued: (0..connections).map(|_| VecDeque::new()).collect(),
                backlog: vec![0; connections],
                loss: path.loss,
                random: Pcg64Mcg::seed_from_u64(path.seed),
                next_identification: 0,
            },
        };
        Self {
            topology,
            bottleneck,
            route: (0..connections).map(|number| number.min(scenario.flows.len())).collect(),
            of_programs,
            sender: scenario.routes().map(|(sender, _)| sender).collect(),
            to_receiver: delays(if topology.bottleneck { 1 } else { 2 }),
            to_sender: delays(2),
        }
    }

    /// Returns the shortest time between sending a frame and its arrival at the next node.
    pub fn min_delay(&self) -> u64 {
        let to_bottleneck = match &self.bottleneck {
            Bottleneck::Link { .. } => &[],
            Bottleneck::Kernel { to_bottleneck, .. } => to_bottleneck.as_slice(),
        };
        let delays = self.to_receiver.iter().chain(&self.to_sender).chain(to_bottleneck);
        delays.map(Propagation::min).min().unwrap_or(0)
    }

    /// Returns how many bytes of a connection wait at the bottleneck.
    pub fn queued(&mut self, now: u64, connection: usize) -> u64 {
        match &mut self.bottleneck {
            Bottleneck::Link { first, second } => {
                let at_second = second.as_mut().map_or(0, |second| second.queue.own_backlog(now, connection));
                first.own_backlog(now, connection) + at_second
            }
            Bottleneck::Kernel { backlog, .. } => backlog[connection],
        }
    }

    /// Returns the number of the connection of a program's socket, None if it has sent nothing over the link.
    pub fn connection_of(&self, endpoints: &Endpoints) -> Option<usize> {
        self.of_programs.as_ref()?.numbers.get(endpoints).copied()
    }

    /// Returns the node with an address, if that is a sender.
    pub fn sender_with(&self, address: u32) -> Option<usize> {
        (0..self.topology.senders).find(|node| self.topology.address(*node) == address)
    }

    /// Returns the number of the connection that a packet belongs to; None if it goes to no node of the path.
    fn connection(
        &mut self,
        to_sender: bool,
        headers: &Headers,
        record: &mut Recorder,
    ) -> Result<Option<usize>, String> {
        let (source, destination) = (headers.source_port, headers.destination_port);
        let (port, server) = if to_sender { (destination, source) } else { (source, destination) };
        if self.of_programs.is_none() {
            let connection = usize::from(port.wrapping_sub(FIRST_PORT));
            return match connection < self.route.len() {
                true => Ok(Some(connection)),
                false => Err(format!("it sent a segment of port {port}, which is no flow's")),
            };
        }
        let (near, far) = match to_sender {
            true => (headers.destination, headers.source),
            false => (headers.source, headers.destination),
        };
        let Some(sender) = self.sender_with(near) else { return Ok(None) };
        if far != self.topology.address(self.topology.receiver()) {
            return Ok(None);
        }
        let endpoints = Endpoints { protocol: headers.protocol, sender, port, server };
        if let Some(number) = self.connection_of(&endpoints) {
            return Ok(Some(number));
        }
        let Some(route) = self.flow_of(&endpoints).or_else(|| self.sender.iter().position(|of| *of == sender)) else {
            return Ok(None);
        };
        Ok(Some(self.add_connection(endpoints, route, record)?))
    }

    /// Returns the flow of a program's connection: that of the port at which its program waits or of its port at the
    /// sender, or the only one of its sender.
    fn flow_of(&self, endpoints: &Endpoints) -> Option<usize> {
        let by_port = |port: u16, first: u16| Some(usize::from(port.wrapping_sub(first)));
        let own = |flow: &usize| self.sender.get(*flow) == Some(&endpoints.sender);
        let by_ports = by_port(endpoints.port, FIRST_PORT).filter(own);
        let by_ports = by_ports.or_else(|| by_port(endpoints.server, SERVER_PORT).filter(own));
        let by_ports = by_ports.or_else(|| by_port(endpoints.port, SERVER_PORT).filter(own));
        let mut of_sender = (0..self.sender.len()).filter(|flow| self.sender[*flow] == endpoints.sender);
        by_ports.or_else(|| of_sender.next().filter(|_| of_sender.next().is_none()))
    }

    fn add_connection(&mut self, endpoints: Endpoints, route: usize, record: &mut Recorder) -> Result<usize, String> {
        let number = self.route.len();
        if number == MAX_CONNECTIONS {
            return Err(format!("it has more than {MAX_CONNECTIONS} connections"));
        }
        let flow = self.flow_of(&endpoints);
        let Some(connections) = &mut self.of_programs else { return Ok(number) };
        let counts =
            |flow: &usize| !connections.own_ports_only || usize::from(endpoints.port) == usize::from(FIRST_PORT) + flow;
        record.connect(endpoints, flow.filter(counts));
        connections.numbers.insert(endpoints, number);
        self.route.push(route);
        match &mut self.bottleneck {
            Bottleneck::Link { first, second } => {
                first.add_flow();
                second.iter_mut().for_each(|second| second.queue.add_flow());
            }
            Bottleneck::Kernel { queued, backlog, .. } => {
                queued.push(VecDeque::new());
                backlog.push(0);
            }
        }
        Ok(number)
    }

    /// Returns when the next packet reaches the second bottleneck.
    pub fn next_at_second(&self) -> u64 {
        match &self.bottleneck {
            Bottleneck::Link { second: Some(second), .. } => second.arriving.front().map_or(NEVER, |(at, ..)| *at),
            _ => NEVER,
        }
    }

    /// Returns a delivery of the packets that reach the second bottleneck by a time; None if there is no other. The
    /// caller carries frames only after all that came there before.
    pub fn pass_second(&mut self, until: u64, record: &mut Recorder) -> Delivery {
        let Bottleneck::Link { second: Some(second), .. } = &mut self.bottleneck else { return None };
        while second.arriving.front().is_some_and(|(at, ..)| *at <= until) {
            let (at, packet, mut frame) = second.arriving.pop_front()?;
            let verdict = second.queue.offer(at, u64::from(frame.length), packet.connection, frame.continues);
            let Some(left) = verdict.left else {
                record.bottleneck_dropped(packet);
                continue;
            };
            frame.time = self.to_receiver[self.route[packet.connection]].arrives(left);
            record.left_bottleneck(packet, left, frame.time, packet.waited + verdict.waited, &frame);
            return Some((self.topology.receiver(), frame));
        }
        None
    }

    /// Carries a frame that a node sent. Returns the node where it arrives and the frame with the time of its arrival,
    /// or None if it is lost, or on its way to the second bottleneck. The caller offers frames in the order of their times.
    pub fn carry(&mut self, from: usize, mut frame: Box<Frame>, record: &mut Recorder) -> Result<Delivery, String> {
        let to_sender = from == self.topology.receiver();
        let Some(connection) = self.connection(to_sender, &frame.headers, record)? else { return Ok(None) };
        let flow = self.route[connection];
        let sent = frame.time;
        if to_sender {
            frame.time = self.to_sender[flow].arrives(sent);
            record.ack_frame(from, connection, sent, &frame);
            return Ok(Some((self.sender[flow], frame)));
        }
        match &mut self.bottleneck {
            Bottleneck::Link { first, second } => {
                let (queue, behind) = match second {
                    Some(second) if connection >= second.enter_from => (&mut second.queue, None),
                    second => (first, second.as_mut()),
                };
                let verdict = queue.offer(sent, u64::from(frame.length), connection, frame.continues);
                let (waited, backlog) = (verdict.waited, verdict.backlog);
                let mut packet = Packet { connection, sent, waited, backlog, ..Packet::default() };
                let Some(left) = verdict.left else {
                    record.data_frame(from, packet, &frame);
                    return Ok(None);
                };
                if let Some(second) = behind {
                    packet.entered = Some(left);
                    packet.row = record.data_frame_to_bottleneck(from, packet, &frame);
                    second.arriving.push_back((left, packet, frame));
                    return Ok(None);
                }
                frame.time = self.to_receiver[flow].arrives(left);
                (packet.left, packet.arrived) = (Some(left), Some(frame.time));
                record.data_frame(from, packet, &frame);
                Ok(Some((self.topology.receiver(), frame)))
            }
            Bottleneck::Kernel { to_bottleneck, queued, backlog, loss, random, next_identification } => {
                if Some(from) != self.topology.bottleneck() {
                    let mut packet = Packet { connection, sent, backlog: backlog.iter().sum(), ..Packet::default() };
                    if *loss > 0.0 && random.random::<f64>() < *loss {
                        record.data_frame(from, packet, &frame);
                        return Ok(None);
                    }
                    frame.time = to_bottleneck[flow].arrives(sent);
                    let (entered, length) = (frame.time, u64::from(frame.length));
                    // All datagrams of an unconnected socket have the same identification, which means nothing where
                    // fragmentation is forbidden (RFC 6864). IPv6 has no identification.
                    if frame.is_ipv6() || frame.headers.protocol == UDP && self.of_programs.is_some() {
                        *next_identification = next_identification.wrapping_add(1);
                        frame.identify(*next_identification);
                    }
                    packet.entered = Some(entered);
                    packet.row = record.data_frame_to_bottleneck(from, packet, &frame);
                    let (seq, identification) = (frame.headers.seq, frame.headers.identification);
                    queued[connection].push_back(Queued { seq, identification, entered, length, packet });
                    backlog[connection] += length;
                    return Ok(self.topology.bottleneck().map(|bottleneck| (bottleneck, frame)));
                }
                // Queueing disciplines keep the order of a flow, so every packet that was queued before this one and
                // has not left was dropped.
                while let Some(first) = queued[connection].pop_front() {
                    backlog[connection] -= first.length;
                    if (first.seq, first.identification) != (frame.headers.seq, frame.headers.identification) {
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
