//! What a run returns: figures of every flow, and tables.
use brobust_timeline::TimeSlice;

/// A column of a table. A missing value is NaN, or `MISSING` where the column has integers.
#[derive(Debug, Clone, PartialEq)]
pub enum Column {
    F64(Vec<f64>),
    I64(Vec<i64>),
    Bool(Vec<bool>),
}

pub const MISSING: i64 = i64::MIN;

/// Columns of the same length, by the names that they have in a dataset (docs/data.md).
pub type Table = Vec<(&'static str, Column)>;

/// The figures of one flow, from both ends.
#[derive(Debug, Clone, Default)]
pub struct FlowResult {
    /// Payload received in order, bytes.
    pub received: u64,
    /// Segments retransmitted.
    pub retransmits: u32,
    /// Packets lost at the bottleneck or before it.
    pub drops: u64,
    /// Mean of the smoothed RTT, sampled at the end of every interval of the throughput, ms.
    pub rtt_mean_ms: Option<f64>,
    /// 99th percentile of the same samples, ms.
    pub rtt_p99_ms: Option<f64>,
    /// Mean time that the flow's packets waited in the bottleneck's queue, ms.
    pub queue_mean_ms: Option<f64>,
    /// Mean payload of an skb that TCP handed down, bytes.
    pub skb_mean_bytes: Option<f64>,
    /// Mean time that pacing asked for after an skb, ms.
    pub pacing_idle_ms: Option<f64>,
    /// When the last byte of a flow of so many bytes was received in order, ns since the run began. None: it has no
    /// limit, or was not through by the end of the run.
    pub ended: Option<u64>,
    /// errno that ended the flow; 0 if none did.
    pub error: u32,
}

/// The two ends of a program's connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Endpoints {
    /// IP's number of the protocol.
    pub protocol: u8,
    /// The node at the sender's end.
    pub sender: usize,
    /// Port at the sender.
    pub port: u16,
    /// Port at the receiver.
    pub server: u16,
}

/// What became of a program.
#[derive(Debug, Clone, Default)]
pub struct ProgramResult {
    /// Number of its flow.
    pub flow: usize,
    /// Whether it ran at the receiver.
    pub at_receiver: bool,
    /// Its path and arguments.
    pub words: Vec<String>,
    /// When it ended, ns since the run began. None: it ran until the end.
    pub ended: Option<i64>,
    /// How it ended, as wait(2) tells it.
    pub status: u32,
    /// errno if it could not be started, or 0.
    pub error: u32,
    pub stdout: Vec<u8>,
    pub stderr: Vec<u8>,
    /// The end of what its kernel printed.
    pub kernel: String,
}

/// What the simulation of a run cost.
#[derive(Debug, Clone, Copy, Default)]
pub struct Work {
    /// Number of times that the controller let a kernel run.
    pub hand_overs: u64,
    pub frames: u64,
    /// Packets that found the ring of a network device full.
    pub nic_drops: u64,
    pub boot_s: f64,
    pub run_s: f64,
}

#[derive(Debug, Clone, Default)]
pub struct Outcome {
    /// When the run began on the kernels' clocks, ns.
    pub origin: u64,
    pub flows: Vec<FlowResult>,
    /// run, flow, time_s, throughput_mbps
    pub throughput: Table,
    pub samples: Table,
    pub packets: Table,
    /// When each sender's CPU could run, then when the receiver's could, ns since the run began.
    pub time_slices: Vec<Vec<TimeSlice>>,
    /// CPU time that each sender's work cost, ns.
    pub busy: Vec<u64>,
    /// XXH3 (128 bits) over every frame: which node sent it, when, its headers, and when it arrived.
    pub hash: String,
    /// Every connection of programs; empty without them.
    pub connections: Table,
    /// Every transfer of the cross traffic.
    pub transfers: Table,
    pub programs: Vec<ProgramResult>,
    pub work: Work,
}
