//! The memory that a kernel and its controller share: brobust.h in Rust, with C's names of all fields.
//! kernel/virtual/tree/arch/um/brobust/brobust.h says what each means.
//!
//! Only one of the two sides runs at a time, so the controller may read and write this like its own memory. It trusts
//! nothing that it did not write itself: every count is checked before it is used.
use std::fs::{self, File};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use memmap2::MmapMut;
use nix::fcntl::posix_fallocate;
use nix::sys::memfd::{memfd_create, MFdFlags};

pub const MAGIC: u64 = 0x0074_7375_626f_7262;
pub const ABI: u32 = 11;
/// The first half of the nodes' IPv6 addresses.
pub const IPV6_PREFIX: u64 = 0x2001_0db8_0000_0000;
pub const WINDOWS: usize = 512;
pub const VCPUS: usize = 16;
pub const FLOWS: usize = 32768;
pub const PROGRAMS: usize = 1024;
pub const WORDS_BYTES: usize = 8192;
pub const FRAME_BYTES: usize = 4 << 20;
pub const ACKS: usize = 16384;
/// Never: the kernel has nothing to do by itself, or may run without end.
pub use brobust_timeline::NEVER;

pub mod reason {
    pub const READY: u32 = 1;
    pub const HORIZON: u32 = 2;
    pub const DRAIN: u32 = 3;
    pub const REFUSED: u32 = 4;
    pub const STOPPED: u32 = 5;
}

pub mod role {
    pub const SENDER: u32 = 1;
    pub const RECEIVER: u32 = 2;
    pub const BOTTLENECK: u32 = 3;
}

pub mod pattern {
    pub const BULK: u32 = 0;
    pub const RATE: u32 = 1;
    pub const ONOFF: u32 = 2;
    pub const IDLE: u32 = 3;
}

/// `struct brobust_window`.
pub use brobust_timeline::TimeSlice as Window;

#[repr(C)]
pub struct Vcpu {
    pub windows: u64,
    pub window: [Window; WINDOWS],
}

#[repr(C)]
pub struct Flow {
    pub used: u32,
    pub pattern: u32,
    pub start: u64,
    pub stop: u64,
    pub bytes_or_on_ns: u64,
    pub period_or_off_ns: u64,
    pub cc: [u8; 16],
}

#[repr(C)]
pub struct Program {
    pub start: u64,
    pub ended: u64,
    pub status: u32,
    pub error: u32,
    pub arguments: u32,
    pub variables: u32,
    pub words: [u8; WORDS_BYTES],
}

#[repr(C)]
#[derive(Debug, Clone, Copy, Default)]
pub struct FlowStats {
    pub received: u64,
    pub ended: u64,
    pub acked: u64,
    pub sent: u64,
    pub idle: u64,
    pub skbs: u32,
    pub paced: u32,
    pub retransmits: u32,
    pub error: u32,
}

/// struct brobust_frame: followed by `header` bytes of the frame, then by `payload` bytes.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default)]
pub struct FrameHead {
    pub time: u64,
    pub length: u32,
    pub record: u32,
    pub header: u16,
    pub payload: u16,
    pub gso_size: u16,
    pub mark: u16,
}

#[repr(C)]
#[derive(Debug, Clone, Copy, Default)]
pub struct Ack {
    pub time: u64,
    pub pacing_rate: u64,
    pub bandwidth: u64,
    pub acked: u64,
    pub flow: u32,
    pub cwnd: u32,
    pub ssthresh: u32,
    pub inflight: u32,
    pub delivered: u32,
    pub lost: u32,
    pub retransmits: u32,
    pub rate_delivered: u32,
    pub rate_interval_us: u32,
    pub rtt_us: u32,
    pub srtt_us: u32,
    pub min_rtt_us: u32,
    pub bbr_min_rtt_us: u32,
    pub pacing_gain: u32,
    pub cwnd_gain: u32,
    pub deficits: u32,
    pub mss: u32,
    pub remote: u32,
    pub local_port: u16,
    pub remote_port: u16,
    pub flags: u32,
}

#[repr(C)]
pub struct Shared {
    pub magic: u64,
    pub abi: u32,
    pub size: u32,

    pub seed: u64,
    pub role: u32,
    pub address: u32,
    pub receiver: u32,
    pub first_port: u32,
    pub flows: u32,
    pub transfers_from: u32,
    pub tcp_memory: u32,
    pub tx_completion: u64,
    pub coalesce: u64,
    pub tso_max_size: u32,
    pub rx_ring: u32,
    pub gro: u32,
    pub adaptive_rx: u32,
    pub pacing_lag_us: u32,
    pub every_ack: u32,
    pub ip_version: u32,
    pub timer_cost: u64,
    pub rx_packet_cost: u64,
    pub tx_skb_cost: u64,
    pub tx_byte_cost: u64,
    pub qdisc: [u8; 16],
    pub commands: [u8; 2048],
    pub commands_size: u32,
    pub carry_payload: u32,
    pub ecn: u32,
    pub programs: u32,
    pub call_cost: u64,
    pub poll_cost: u64,
    pub vcpus: u32,
    pub rx_vcpu: u32,
    pub tx_vcpu: u32,

    pub horizon: u64,
    pub rate: u64,
    pub windows: u32,
    pub rx_bytes: u32,
    pub window: [Window; WINDOWS],
    pub vcpu: [Vcpu; VCPUS],

    pub reason: u32,
    pub tx_bytes: u32,
    pub acks: u32,
    pub running: u32,
    pub now: u64,
    pub next: u64,
    pub timers: u64,
    pub rx_packets: u64,
    pub tx_skbs: u64,
    pub charged: u64,
    pub interrupts: u64,
    pub rx_dropped: u64,
    pub words: [u8; 256],

    pub flow: [Flow; FLOWS],
    pub stats: [FlowStats; FLOWS],
    pub program: [Program; PROGRAMS],
    pub ack: [Ack; ACKS],
    pub tx: [u8; FRAME_BYTES],
    pub rx: [u8; FRAME_BYTES],
}

/// One kernel's memory: an anonymous file, gone with the last of the two processes that map it.
pub struct Memory {
    file: OwnedFd,
    map: MmapMut,
}

impl Memory {
    pub fn create() -> io::Result<Self> {
        let file = memfd_create("brobust", MFdFlags::MFD_CLOEXEC)?;
        let file = File::from(file);
        file.set_len(size_of::<Shared>() as u64)?;
        if fs::read_to_string("/proc/sys/vm/overcommit_memory").is_ok_and(|mode| mode.trim() == "2") {
            // This host gives no more memory than it has, and the missing page would be a SIGBUS for who touches it.
            posix_fallocate(&file, 0, size_of::<Shared>() as i64)?;
        }
        // SAFETY: the file is ours; the kernel, which maps it too, runs only while the controller waits for it.
        let map = unsafe { MmapMut::map_mut(&file)? };
        let mut this = Self { file: file.into(), map };
        let shared = this.shared();
        (shared.magic, shared.abi, shared.size) = (MAGIC, ABI, size_of::<Shared>() as u32);
        Ok(this)
    }

    pub fn file(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }

    /// Returns the shared memory. The caller may use it only while the kernel waits.
    pub fn shared(&mut self) -> &mut Shared {
        // SAFETY: the map is page-aligned and as long as Shared, which is plain integers: any content is valid.
        unsafe { &mut *self.map.as_mut_ptr().cast::<Shared>() }
    }
}

/// Returns the bytes of a text field, filled up with zeros. Callers have checked that the text fits.
pub fn text<const N: usize>(from: &str) -> [u8; N] {
    let mut to = [0; N];
    let length = from.len().min(N - 1);
    to[..length].copy_from_slice(&from.as_bytes()[..length]);
    to
}

/// Returns the text in a text field.
pub fn text_of(field: &[u8]) -> String {
    let end = field.iter().position(|&byte| byte == 0).unwrap_or(field.len());
    String::from_utf8_lossy(&field[..end]).into_owned()
}

#[cfg(test)]
mod tests {
    use brobust_layout::assert_same_layout;
    use brobust_layout::headers::VIRTUAL_KERNEL as HEADER;

    use super::*;

    #[test]
    fn every_field_is_where_the_kernel_has_it() {
        assert_same_layout!(HEADER, "brobust_window", Window { begin, end });
        assert_same_layout!(HEADER, "brobust_vcpu", Vcpu { windows, window });
        assert_same_layout!(
            HEADER,
            "brobust_flow",
            Flow { used, pattern, start, stop, bytes_or_on_ns, period_or_off_ns, cc }
        );
        assert_same_layout!(
            HEADER,
            "brobust_program",
            Program { start, ended, status, error, arguments, variables, words }
        );
        assert_same_layout!(
            HEADER,
            "brobust_flow_stats",
            FlowStats { received, ended, acked, sent, idle, skbs, paced, retransmits, error }
        );
        assert_same_layout!(
            HEADER,
            "brobust_frame",
            FrameHead { time, length, record, header, payload, gso_size, mark }
        );
        assert_same_layout!(
            HEADER,
            "brobust_ack",
            Ack {
                time,
                pacing_rate,
                bandwidth,
                acked,
                flow,
                cwnd,
                ssthresh,
                inflight,
                delivered,
                lost,
                retransmits,
                rate_delivered,
                rate_interval_us,
                rtt_us,
                srtt_us,
                min_rtt_us,
                bbr_min_rtt_us,
                pacing_gain,
                cwnd_gain,
                deficits,
                mss,
                remote,
                local_port,
                remote_port,
                flags,
            }
        );
        assert_same_layout!(
            HEADER,
            "brobust_shared",
            Shared {
                magic,
                abi,
                size,
                seed,
                role,
                address,
                receiver,
                first_port,
                flows,
                transfers_from,
                tcp_memory,
                tx_completion,
                coalesce,
                tso_max_size,
                rx_ring,
                gro,
                adaptive_rx,
                pacing_lag_us,
                every_ack,
                ip_version,
                timer_cost,
                rx_packet_cost,
                tx_skb_cost,
                tx_byte_cost,
                qdisc,
                commands,
                commands_size,
                carry_payload,
                ecn,
                programs,
                call_cost,
                poll_cost,
                vcpus,
                rx_vcpu,
                tx_vcpu,
                horizon,
                rate,
                windows,
                rx_bytes,
                window,
                vcpu,
                reason,
                tx_bytes,
                acks,
                running,
                now,
                next,
                timers,
                rx_packets,
                tx_skbs,
                charged,
                interrupts,
                rx_dropped,
                words,
                flow,
                stats,
                program,
                ack,
                tx,
                rx,
            }
        );
    }

    #[test]
    fn every_number_means_what_it_means_to_the_kernel() {
        let numbers = [
            ("MAGIC", MAGIC),
            ("ABI", ABI.into()),
            ("IPV6_PREFIX", IPV6_PREFIX),
            ("WINDOWS", WINDOWS as u64),
            ("VCPUS", VCPUS as u64),
            ("FLOWS", FLOWS as u64),
            ("PROGRAMS", PROGRAMS as u64),
            ("WORDS_BYTES", WORDS_BYTES as u64),
            ("FRAME_BYTES", FRAME_BYTES as u64),
            ("ACKS", ACKS as u64),
            ("READY", reason::READY.into()),
            ("HORIZON", reason::HORIZON.into()),
            ("DRAIN", reason::DRAIN.into()),
            ("REFUSED", reason::REFUSED.into()),
            ("STOPPED", reason::STOPPED.into()),
            ("SENDER", role::SENDER.into()),
            ("RECEIVER", role::RECEIVER.into()),
            ("BOTTLENECK", role::BOTTLENECK.into()),
            ("BULK", pattern::BULK.into()),
            ("RATE", pattern::RATE.into()),
            ("ONOFF", pattern::ONOFF.into()),
            ("IDLE", pattern::IDLE.into()),
        ];
        let (names, ours): (Vec<String>, Vec<u64>) =
            numbers.into_iter().map(|(name, number)| (format!("BROBUST_{name}"), number)).unzip();
        assert_eq!(HEADER.values(&names), ours);
    }
}
