//! The memory that a kernel and its controller share: brobust.h in Rust, with C's names of all fields.
//! kernel/virtual/tree/arch/um/brobust/brobust.h says what each means.
//!
//! Only one of the two sides runs at a time, so the controller may read and write this like its own memory. It trusts
//! nothing that it did not write itself: every count is checked before it is used.
use std::fs::{self, File};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use brobust_layout::structs_of_c;
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

structs_of_c! {
    struct Vcpu = "brobust_vcpu" of VIRTUAL_KERNEL {
        windows: u64,
        window: [Window; WINDOWS],
    }

    struct Flow = "brobust_flow" of VIRTUAL_KERNEL {
        used: u32,
        pattern: u32,
        start: u64,
        stop: u64,
        bytes_or_on_ns: u64,
        period_or_off_ns: u64,
        cc: [u8; 16],
    }

    struct Program = "brobust_program" of VIRTUAL_KERNEL {
        start: u64,
        ended: u64,
        status: u32,
        error: u32,
        arguments: u32,
        variables: u32,
        words: [u8; WORDS_BYTES],
    }

    #[derive(Debug, Clone, Copy, Default)]
    struct FlowStats = "brobust_flow_stats" of VIRTUAL_KERNEL {
        received: u64,
        ended: u64,
        acked: u64,
        sent: u64,
        idle: u64,
        skbs: u32,
        paced: u32,
        retransmits: u32,
        error: u32,
    }

    /// struct brobust_frame: followed by `header` bytes of the frame, then by `payload` bytes.
    #[derive(Debug, Clone, Copy, Default)]
    struct FrameHead = "brobust_frame" of VIRTUAL_KERNEL {
        time: u64,
        length: u32,
        record: u32,
        header: u16,
        payload: u16,
        gso_size: u16,
        mark: u16,
    }

    #[derive(Debug, Clone, Copy, Default)]
    struct Ack = "brobust_ack" of VIRTUAL_KERNEL {
        time: u64,
        pacing_rate: u64,
        bandwidth: u64,
        acked: u64,
        flow: u32,
        cwnd: u32,
        ssthresh: u32,
        inflight: u32,
        delivered: u32,
        lost: u32,
        retransmits: u32,
        rate_delivered: u32,
        rate_interval_us: u32,
        rtt_us: u32,
        srtt_us: u32,
        min_rtt_us: u32,
        bbr_min_rtt_us: u32,
        pacing_gain: u32,
        cwnd_gain: u32,
        deficits: u32,
        mss: u32,
        remote: u32,
        local_port: u16,
        remote_port: u16,
        flags: u32,
    }

    struct Shared = "brobust_shared" of VIRTUAL_KERNEL {
        magic: u64,
        abi: u32,
        size: u32,

        seed: u64,
        role: u32,
        address: u32,
        receiver: u32,
        first_port: u32,
        flows: u32,
        transfers_from: u32,
        tcp_memory: u32,
        tx_completion: u64,
        coalesce: u64,
        tso_max_size: u32,
        rx_ring: u32,
        gro: u32,
        adaptive_rx: u32,
        pacing_lag_us: u32,
        every_ack: u32,
        ip_version: u32,
        timer_cost: u64,
        rx_packet_cost: u64,
        tx_skb_cost: u64,
        tx_byte_cost: u64,
        qdisc: [u8; 16],
        commands: [u8; 2048],
        commands_size: u32,
        carry_payload: u32,
        ecn: u32,
        programs: u32,
        call_cost: u64,
        poll_cost: u64,
        vcpus: u32,
        rx_vcpu: u32,
        tx_vcpu: u32,

        horizon: u64,
        rate: u64,
        windows: u32,
        rx_bytes: u32,
        window: [Window; WINDOWS],
        vcpu: [Vcpu; VCPUS],

        reason: u32,
        tx_bytes: u32,
        acks: u32,
        running: u32,
        now: u64,
        next: u64,
        timers: u64,
        rx_packets: u64,
        tx_skbs: u64,
        charged: u64,
        interrupts: u64,
        rx_dropped: u64,
        words: [u8; 256],

        flow: [Flow; FLOWS],
        stats: [FlowStats; FLOWS],
        program: [Program; PROGRAMS],
        ack: [Ack; ACKS],
        tx: [u8; FRAME_BYTES],
        rx: [u8; FRAME_BYTES],
    }
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
    fn a_window_is_where_the_kernel_has_it() {
        assert_same_layout!(HEADER, "brobust_window", Window { begin, end });
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
