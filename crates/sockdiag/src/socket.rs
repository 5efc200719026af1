//! A TCP socket at one moment.

use std::net::SocketAddr;

use crate::inet_diag::OPENING;
use crate::{BbrInfo, TcpInfo};

/// What identifies a socket. The cookie distinguishes it from a later one with the same addresses.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct SocketKey {
    pub local: SocketAddr,
    pub remote: SocketAddr,
    /// Index of the network device to which it is bound; 0: none.
    pub interface: u32,
    pub cookie: [u8; 8],
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Socket {
    pub key: SocketKey,
    /// CLOCK_MONOTONIC when the kernel's answer arrived.
    pub time_ns: u64,
    /// User id of the owner.
    pub uid: u32,
    /// Id of the cgroup (v2) in which it was opened; of an accepted socket, that of the listening one. None: the kernel
    /// does not report it.
    pub cgroup_id: Option<u64>,
    /// Name of the congestion control.
    pub congestion_control: Option<String>,
    pub tcp: TcpInfo,
    /// BBR's model, if the control is BBR or one of ours. The kernel reads the model of our controls a moment after
    /// `tcp` and releases the socket's lock in between, so sometimes an ACK is processed between the two.
    pub bbr: Option<BbrInfo>,
}

impl Socket {
    /// Whether its connection is only being opened, so that it has sent nothing yet. Of one that a peer is opening, there may
    /// be a request alone, of which the kernel reports no state.
    pub fn is_opening(&self) -> bool {
        self.tcp.state.is_none_or(|state| OPENING & 1_u32.checked_shl(state.into()).unwrap_or(0) != 0)
    }

    /// Returns the data in flight over BBR's own bandwidth-delay product. Less than 1, in a flow that the application
    /// does not limit, is the Inflight Deficit of 2BRobust (section 6.1).
    pub fn inflight_bdp(&self) -> Option<f64> {
        let bdp = self.bbr.as_ref()?.bdp_bytes().filter(|bdp| *bdp > 0)?;
        let inflight = u64::from(self.tcp.inflight_packets()?) * u64::from(self.tcp.snd_mss_bytes?);
        Some(inflight as f64 / bdp as f64)
    }
}
