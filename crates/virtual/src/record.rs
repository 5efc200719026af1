//! Records a run: counts what each flow and each connection did, and writes the tables and the capture that were asked for.
use std::collections::VecDeque;
use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

use pcap_file::pcap::{PcapHeader, PcapPacket, PcapWriter};
use pcap_file::{DataLink, Endianness, PcapError, TsResolution};
use xxhash_rust::xxh3::{xxh3_128, Xxh3};

use crate::error::{Error, Result};
use crate::frame::{Frame, MAX_HEADER, TCP};
use crate::outcome::{Column, Endpoints, FlowResult, Outcome, Table, MISSING};
use crate::scenario::{Flow, Scenario};
use crate::shared::{Ack, FlowStats};

/// A data packet at the bottleneck. Times are ns of the kernels' clock, sizes bytes.
#[derive(Debug, Clone, Copy, Default)]
pub struct Packet {
    /// The connection's number. The packets of one that belongs to no flow are captured and hashed but count for none.
    pub connection: usize,
    pub sent: u64,
    /// When the packet reached a bottleneck that is a kernel, or the second one.
    pub entered: Option<u64>,
    /// When it left the bottleneck. None: it was dropped, or has not left yet.
    pub left: Option<u64>,
    pub arrived: Option<u64>,
    /// Time in the bottleneck's queue.
    pub waited: u64,
    /// Bytes that were queued before it.
    pub backlog: u64,
    /// Its row in the table of packets, if it has one.
    pub row: Option<usize>,
}

pub struct Recorder {
    origin: u64,
    /// End of the run's duration. Programs may need longer: packets sent later are captured and hashed, and nothing else.
    end: u64,
    interval: u64,
    /// Of what went to the receiver, and of what came from it: of each in the order of its times.
    hashes: [Xxh3; 2],
    flows: Vec<FlowRecord>,
    connections: Vec<ConnectionRecord>,
    /// Whether programs send. What a flow has received is then counted here.
    of_programs: bool,
    throughput: ThroughputTable,
    samples: Option<(u64, SampleTable)>,
    packets: Option<PacketTable>,
    pcap: Option<(PathBuf, PcapWriter<BufWriter<File>>)>,
    pcap_error: Option<io::Error>,
}

#[derive(Default)]
struct FlowRecord {
    start: u64,
    /// How much it sends, None: all the time.
    bytes: Option<u64>,
    at_bottleneck: Passage,
    srtt_us: u32,
    srtts_us: Vec<u32>,
    received: u64,
    /// Of programs: the payload that is under way, and when it arrives.
    arriving: VecDeque<(u64, u32)>,
    /// Of programs: payload that has arrived.
    arrived: u64,
}

#[derive(Default)]
struct ConnectionRecord {
    flow: Option<usize>,
    /// None without programs.
    endpoints: Option<Endpoints>,
    next_sample: u64,
    first_seq: Option<u32>,
    first_ack: Option<u32>,
    retransmits: u32,
    /// When its first packet was sent, and its latest.
    first: Option<u64>,
    last: u64,
    packets: u64,
    /// Payload that arrived at the receiver, and at the sender, bytes.
    arrived: u64,
    answered: u64,
    at_bottleneck: Passage,
}

/// What became of packets at the bottleneck.
#[derive(Default)]
struct Passage {
    drops: u64,
    passed: u64,
    /// Together, ns.
    waited: u128,
}

impl Passage {
    fn count(&mut self, packet: Packet, passed: bool) {
        if passed {
            self.passed += 1;
            self.waited += u128::from(packet.waited);
        } else {
            self.drops += 1;
        }
    }

    fn mean_wait_ms(&self) -> Option<f64> {
        (self.passed > 0).then(|| self.waited as f64 / self.passed as f64 / 1e6)
    }
}

macro_rules! tables {
    ($($(#[$meta:meta])* $name:ident { $($column:ident: $kind:ident,)* })*) => {$(
        $(#[$meta])*
        #[derive(Default)]
        struct $name { $($column: tables!(@vec $kind),)* }
        impl $name {
            fn table(self) -> Table {
                vec![$((stringify!($column), Column::$kind(self.$column)),)*]
            }
        }
    )*};
    (@vec F64) => { Vec<f64> };
    (@vec I64) => { Vec<i64> };
    (@vec Bool) => { Vec<bool> };
}

tables! {
    ThroughputTable { flow: I64, time_s: F64, throughput_mbps: F64, }
    SampleTable {
        flow: I64, connection: I64, time_s: F64, cwnd_packets: I64, ssthresh_packets: I64, pacing_rate_mbps: F64,
        delivery_rate_mbps: F64, bandwidth_estimate_mbps: F64, min_rtt_ms: F64, rtt_ms: F64, srtt_ms: F64,
        inflight_packets: I64, inflight_bdp: F64, pacing_gain: F64, cwnd_gain: F64, app_limited: Bool,
        delivered_packets: I64, lost_packets: I64, retransmits: I64, deficit_acks: I64, mode: I64, state: I64,
        queue_bytes: I64,
    }
    ConnectionTable {
        connection: I64, flow: I64, protocol: I64, sender: I64, sender_port: I64, receiver_port: I64, first_s: F64,
        last_s: F64, packets: I64, received_bytes: I64, answered_bytes: I64, drops: I64, retransmits: I64,
        queue_mean_ms: F64,
    }
    TransferTable { start_s: F64, bytes: I64, completion_ms: F64, }
    PacketTable {
        time_s: F64, left_s: F64, arrived_s: F64, flow: I64, connection: I64, is_ack: Bool, seq: I64, ack: I64, payload_bytes: I64,
        frame_bytes: I64, dropped: Bool, queue_bytes: I64,
    }
}

impl Recorder {
    pub fn new(scenario: &Scenario, origin: u64) -> Result<Self> {
        let pcap = match &scenario.record.pcap {
            None => None,
            Some(file) => Some((file.clone(), pcap_writer(file)?)),
        };
        let of_flow = |flow: &Flow| FlowRecord { start: flow.start, bytes: flow.bytes(), ..FlowRecord::default() };
        let of_programs = scenario.programs.is_some();
        let connections = if of_programs { 0 } else { scenario.flows.len() };
        let connection_of = |number| ConnectionRecord { flow: Some(number), ..ConnectionRecord::default() };
        Ok(Self {
            origin,
            end: origin + scenario.duration,
            interval: scenario.interval,
            hashes: [Xxh3::new(), Xxh3::new()],
            flows: scenario.flows.iter().map(of_flow).collect(),
            connections: (0..connections).map(connection_of).collect(),
            of_programs,
            throughput: ThroughputTable::default(),
            samples: scenario.record.samples.map(|interval| (interval, SampleTable::default())),
            packets: scenario.record.packets.then(PacketTable::default),
            pcap,
            pcap_error: None,
        })
    }

    /// Adds a connection of a program; its number is the next one. `flow`: the one that its data counts for.
    pub fn connect(&mut self, endpoints: Endpoints, flow: Option<usize>) {
        self.connections.push(ConnectionRecord { flow, endpoints: Some(endpoints), ..ConnectionRecord::default() });
    }

    /// Records a data frame that was offered to the link's own queue. The queue dropped it if `packet.left` is None.
    pub fn data_frame(&mut self, from: usize, packet: Packet, frame: &Frame) {
        self.count(packet, packet.left.is_some());
        self.count_payload(packet, frame);
        self.row(from, packet, frame, false);
    }

    /// Records a data frame on its way to a bottleneck that is a kernel, or to the second one. Returns its row in the
    /// table of packets.
    pub fn data_frame_to_bottleneck(&mut self, from: usize, packet: Packet, frame: &Frame) -> Option<usize> {
        self.row(from, packet, frame, false)
    }

    /// Records that a packet has left such a bottleneck.
    pub fn left_bottleneck(&mut self, packet: Packet, left: u64, arrived: u64, waited: u64, frame: &Frame) {
        self.count(Packet { waited, ..packet }, true);
        self.count_payload(Packet { arrived: Some(arrived), ..packet }, frame);
        self.hash_frame(usize::MAX, left, Some(arrived), frame, false);
        if let (Some(table), Some(row)) = (&mut self.packets, packet.row) {
            table.left_s[row] = since(self.origin, left);
            table.arrived_s[row] = since(self.origin, arrived);
        }
    }

    /// Records that such a bottleneck has dropped a packet.
    pub fn bottleneck_dropped(&mut self, packet: Packet) {
        self.count(packet, false);
        if let (Some(table), Some(row)) = (&mut self.packets, packet.row) {
            table.dropped[row] = true;
        }
    }

    /// Records a frame from the receiver.
    pub fn ack_frame(&mut self, from: usize, connection: usize, sent: u64, frame: &Frame) {
        let packet = Packet { connection, sent, arrived: Some(frame.time), ..Packet::default() };
        self.row(from, packet, frame, true);
    }

    fn count(&mut self, packet: Packet, passed: bool) {
        let Some(connection) = self.connections.get_mut(packet.connection).filter(|_| packet.sent < self.end) else {
            return;
        };
        connection.at_bottleneck.count(packet, passed);
        if let Some(flow) = connection.flow.and_then(|flow| self.flows.get_mut(flow)) {
            flow.at_bottleneck.count(packet, passed);
        }
    }

    /// Counts the payload of programs that arrives at the receiver by the end of the run.
    fn count_payload(&mut self, packet: Packet, frame: &Frame) {
        let Some(arrived) = packet.arrived.filter(|arrived| self.of_programs && *arrived <= self.end) else { return };
        let Some(connection) = self.connections.get_mut(packet.connection) else { return };
        connection.arrived += u64::from(frame.headers.payload);
        if let Some(flow) = connection.flow.and_then(|flow| self.flows.get_mut(flow)) {
            flow.arriving.push_back((arrived, frame.headers.payload));
        }
    }

    fn row(&mut self, from: usize, packet: Packet, frame: &Frame, is_ack: bool) -> Option<usize> {
        self.hash_frame(from, packet.sent, packet.arrived.or(packet.entered), frame, is_ack);
        self.capture(packet.sent, frame);
        let (headers, origin) = (&frame.headers, self.origin);
        let connection = self.connections.get_mut(packet.connection).filter(|_| packet.sent < self.end)?;
        connection.first.get_or_insert(packet.sent);
        connection.last = packet.sent;
        connection.packets += 1;
        if is_ack {
            connection.answered += u64::from(headers.payload);
        }
        let (table, flow) = (self.packets.as_mut()?, connection.flow?);
        let number = if self.of_programs { packet.connection as i64 } else { MISSING };
        // Relative to the first seen of each direction, as captures are read.
        let (there, back) = (&mut connection.first_seq, &mut connection.first_ack);
        let (seq, ack) = if is_ack { (back, there) } else { (there, back) };
        let relative = |first: &mut Option<u32>, value: u32| i64::from(value.wrapping_sub(*first.get_or_insert(value)));
        let ack = if headers.ack == 0 { 0 } else { relative(ack, headers.ack) };
        let seq = relative(seq, headers.seq);
        table.time_s.push(since(origin, packet.sent));
        table.left_s.push(packet.left.map_or(f64::NAN, |left| since(origin, left)));
        table.arrived_s.push(packet.arrived.map_or(f64::NAN, |arrived| since(origin, arrived)));
        table.flow.push(flow as i64);
        table.connection.push(number);
        table.is_ack.push(is_ack);
        table.seq.push(seq);
        table.ack.push(ack);
        table.payload_bytes.push(i64::from(headers.payload));
        table.frame_bytes.push(i64::from(frame.length));
        table.dropped.push(!is_ack && packet.left.is_none() && packet.entered.is_none());
        table.queue_bytes.push(packet.backlog as i64);
        Some(table.flow.len() - 1)
    }

    fn hash_frame(&mut self, from: usize, sent: u64, arrived: Option<u64>, frame: &Frame, is_ack: bool) {
        let hash = &mut self.hashes[usize::from(is_ack)];
        let arrived = arrived.map_or(u64::MAX, |arrived| arrived - self.origin);
        // In one piece, since every update costs as much as some bytes do.
        let mut bytes = [0; 28 + MAX_HEADER];
        let header = frame.header();
        bytes[..8].copy_from_slice(&(from as u64).to_le_bytes());
        bytes[8..16].copy_from_slice(&(sent - self.origin).to_le_bytes());
        bytes[16..24].copy_from_slice(&arrived.to_le_bytes());
        bytes[24..28].copy_from_slice(&frame.length.to_le_bytes());
        bytes[28..28 + header.len()].copy_from_slice(header);
        hash.update(&bytes[..28 + header.len()]);
        hash.update(frame.carried());
    }

    /// Writes a frame into the capture as it was sent, also where it is lost later. Payload that is not carried is cut
    /// off.
    fn capture(&mut self, sent: u64, frame: &Frame) {
        let Some((_, writer)) = &mut self.pcap else { return };
        let time = Duration::from_nanos(sent - self.origin);
        let data = if frame.carried().is_empty() {
            frame.header().to_vec()
        } else {
            [frame.header(), frame.carried()].concat()
        };
        let packet = PcapPacket::new_owned(time, frame.length, data);
        if let Err(error) = writer.write_packet(&packet) {
            self.pcap_error.get_or_insert(io_error(error));
        }
    }

    /// Records a socket's state after an ACK, if a sample is due. `queued` returns the bytes of its connection at the
    /// bottleneck.
    pub fn ack(&mut self, number: usize, ack: &Ack, queued: impl FnOnce() -> u64) -> std::result::Result<(), String> {
        let Some(connection) = self.connections.get_mut(number) else {
            return Err(format!("it left a sample of flow {number}, which does not exist"));
        };
        connection.retransmits = ack.retransmits;
        let Some(flow) = connection.flow else { return Ok(()) };
        self.flows[flow].srtt_us = ack.srtt_us;
        let Some((interval, table)) = &mut self.samples else { return Ok(()) };
        if ack.time < connection.next_sample || ack.time >= self.end {
            return Ok(());
        }
        if let Some(intervals) = (ack.time - self.origin).checked_div(*interval) {
            connection.next_sample = self.origin + (intervals + 1) * *interval;
        }
        let mbps = |bytes: u64| bytes as f64 * 8e-6;
        let ms = |us: u32| f64::from(us) / 1e3;
        let gain = |gain: u32| if gain == 0 { f64::NAN } else { f64::from(gain) / 256.0 };
        // Packets: bytes/s times us, over the payload of a packet.
        let bdp = ack.bandwidth as f64 * f64::from(ack.bbr_min_rtt_us) / 1e6 / f64::from(ack.mss.max(1));
        let shows_bbr = ack.bandwidth > 0;
        table.flow.push(flow as i64);
        table.connection.push(if self.of_programs { number as i64 } else { MISSING });
        table.time_s.push(since(self.origin, ack.time));
        table.cwnd_packets.push(i64::from(ack.cwnd));
        // TCP_INFINITE_SSTHRESH
        table.ssthresh_packets.push(if ack.ssthresh >= 0x7fff_ffff { MISSING } else { i64::from(ack.ssthresh) });
        table.pacing_rate_mbps.push(if ack.pacing_rate == u64::MAX { f64::NAN } else { mbps(ack.pacing_rate) });
        table.delivery_rate_mbps.push(match ack.rate_interval_us {
            0 => f64::NAN,
            us => f64::from(ack.rate_delivered) * f64::from(ack.mss) * 8.0 / f64::from(us),
        });
        table.bandwidth_estimate_mbps.push(if shows_bbr { mbps(ack.bandwidth) } else { f64::NAN });
        table.min_rtt_ms.push(ms(if shows_bbr { ack.bbr_min_rtt_us } else { ack.min_rtt_us }));
        table.rtt_ms.push(ms(ack.rtt_us));
        table.srtt_ms.push(ms(ack.srtt_us));
        table.inflight_packets.push(i64::from(ack.inflight));
        table.inflight_bdp.push(if shows_bbr && bdp > 0.0 { f64::from(ack.inflight) / bdp } else { f64::NAN });
        table.pacing_gain.push(gain(ack.pacing_gain));
        table.cwnd_gain.push(gain(ack.cwnd_gain));
        table.app_limited.push(ack.flags & 16 != 0);
        table.delivered_packets.push(i64::from(ack.delivered));
        table.lost_packets.push(i64::from(ack.lost));
        table.retransmits.push(i64::from(ack.retransmits));
        table.deficit_acks.push(if ack.flags & 32 != 0 { i64::from(ack.deficits) } else { MISSING });
        table.mode.push(if ack.flags & 32 != 0 { i64::from(ack.flags >> 8 & 0xff) } else { MISSING });
        table.state.push(i64::from(ack.flags & 15));
        table.queue_bytes.push(queued() as i64);
        Ok(())
    }

    /// Records the throughput of the interval that ends at `time`.
    pub fn interval_ends(&mut self, time: u64, stats: &[FlowStats]) {
        for (number, (flow, stats)) in self.flows.iter_mut().zip(stats).enumerate() {
            let since_start = time - self.origin;
            if since_start <= flow.start {
                continue;
            }
            let received = if self.of_programs { flow.arrived_by(time) } else { stats.received };
            let mbps = received.saturating_sub(flow.received) as f64 * 8e3 / self.interval as f64;
            flow.received = received;
            if flow.srtt_us > 0 {
                flow.srtts_us.push(flow.srtt_us);
            }
            self.throughput.flow.push(number as i64);
            self.throughput.time_s.push((since_start - flow.start) as f64 / 1e9);
            self.throughput.throughput_mbps.push(mbps);
        }
    }

    /// Returns the outcome. `sent` and `received` are the statistics of each flow from its two ends.
    pub fn finish(mut self, sent: &[FlowStats], received: &[FlowStats]) -> Result<Outcome> {
        if let Some((file, writer)) = self.pcap.take() {
            let written = self.pcap_error.take().map_or(Ok(()), Err).and_then(|()| writer.into_writer().flush());
            written.map_err(|source| Error::Write { file, source })?;
        }
        let ends = sent.iter().zip(received);
        let mut flows: Vec<_> = self
            .flows
            .iter_mut()
            .zip(ends)
            .map(|(flow, (sent, received))| flow.result(sent, received, self.origin))
            .collect();
        let mut connections = ConnectionTable::default();
        for (number, connection) in self.connections.iter().enumerate().filter(|_| self.of_programs) {
            connections.add(number, connection, self.origin);
            if let Some(flow) = connection.flow {
                let retransmits = &mut flows[flow].retransmits;
                *retransmits = retransmits.saturating_add(connection.retransmits);
                flows[flow].received = self.flows[flow].arrived_by(self.end);
            }
        }
        let mut of_both = Vec::new();
        for hash in self.hashes {
            of_both.extend(hash.digest128().to_le_bytes());
        }
        Ok(Outcome {
            flows,
            throughput: self.throughput.table(),
            samples: self.samples.map(|(_, table)| table.table()).unwrap_or_default(),
            packets: self.packets.map(PacketTable::table).unwrap_or_default(),
            connections: connections.table(),
            hash: format!("{:032x}", xxh3_128(&of_both)),
            ..Outcome::default()
        })
    }
}

impl ConnectionTable {
    fn add(&mut self, number: usize, of: &ConnectionRecord, origin: u64) {
        let Some(endpoints) = of.endpoints else { return };
        self.connection.push(number as i64);
        self.flow.push(of.flow.map_or(MISSING, |flow| flow as i64));
        self.protocol.push(i64::from(endpoints.protocol));
        self.sender.push(endpoints.sender as i64 + 1);
        self.sender_port.push(i64::from(endpoints.port));
        self.receiver_port.push(i64::from(endpoints.server));
        self.first_s.push(of.first.map_or(f64::NAN, |first| since(origin, first)));
        self.last_s.push(of.first.map_or(f64::NAN, |_| since(origin, of.last)));
        self.packets.push(of.packets as i64);
        self.received_bytes.push(of.arrived as i64);
        self.answered_bytes.push(of.answered as i64);
        self.drops.push(of.at_bottleneck.drops as i64);
        self.retransmits.push(if endpoints.protocol == TCP { i64::from(of.retransmits) } else { MISSING });
        self.queue_mean_ms.push(of.at_bottleneck.mean_wait_ms().unwrap_or(f64::NAN));
    }
}

impl FlowRecord {
    /// Returns how much payload of a program has arrived by a time that is later than at the previous call.
    fn arrived_by(&mut self, time: u64) -> u64 {
        while let Some((_, bytes)) = self.arriving.front().copied().filter(|(at, _)| *at <= time) {
            self.arriving.pop_front();
            self.arrived += u64::from(bytes);
        }
        self.arrived
    }

    fn result(&mut self, sent: &FlowStats, received: &FlowStats, origin: u64) -> FlowResult {
        self.srtts_us.sort_unstable();
        let (srtts, count) = (&self.srtts_us, self.srtts_us.len());
        let mean = srtts.iter().map(|us| f64::from(*us)).sum::<f64>() / count as f64 / 1e3;
        FlowResult {
            // A FIN counts as a byte.
            received: received.received.min(self.bytes.unwrap_or(u64::MAX)),
            retransmits: sent.retransmits,
            drops: self.at_bottleneck.drops,
            rtt_mean_ms: (count > 0).then_some(mean),
            rtt_p99_ms: srtts.get((count * 99 / 100).min(count.saturating_sub(1))).map(|us| f64::from(*us) / 1e3),
            queue_mean_ms: self.at_bottleneck.mean_wait_ms(),
            skb_mean_bytes: (sent.skbs > 0).then(|| sent.sent as f64 / f64::from(sent.skbs)),
            pacing_idle_ms: (sent.paced > 0).then(|| sent.idle as f64 / f64::from(sent.paced) / 1e6),
            ended: self.bytes.and_then(|bytes| ended(bytes, received, origin)),
            error: sent.error.max(received.error),
        }
    }
}

/// Returns when the last of so many bytes was received in order, ns since `origin`; None if some are missing.
fn ended(bytes: u64, received: &FlowStats, origin: u64) -> Option<u64> {
    (received.ended > origin && received.received >= bytes).then(|| received.ended - origin)
}

/// Returns the table of the transfers, of which `each` has its start and its size.
pub fn transfers(each: &[(u64, u64)], received: &[FlowStats], origin: u64) -> Table {
    let mut table = TransferTable::default();
    for ((start, bytes), received) in each.iter().zip(received) {
        let took = ended(*bytes, received, origin).and_then(|ended| ended.checked_sub(*start));
        table.start_s.push(*start as f64 / 1e9);
        table.bytes.push(*bytes as i64);
        table.completion_ms.push(took.map_or(f64::NAN, |ns| ns as f64 / 1e6));
    }
    table.table()
}

fn pcap_writer(file: &Path) -> Result<PcapWriter<BufWriter<File>>> {
    let refuse = |source| Error::Write { file: file.into(), source };
    let writer = BufWriter::new(File::create(file).map_err(refuse)?);
    let header = PcapHeader {
        datalink: DataLink::ETHERNET,
        endianness: Endianness::Little,
        ts_resolution: TsResolution::NanoSecond,
        ..PcapHeader::default()
    };
    PcapWriter::with_header(writer, header).map_err(|error| refuse(io_error(error)))
}

fn io_error(error: PcapError) -> io::Error {
    match error {
        PcapError::IoError(error) => error,
        other => io::Error::other(other.to_string()),
    }
}

fn since(origin: u64, time: u64) -> f64 {
    (time as f64 - origin as f64) / 1e9
}
