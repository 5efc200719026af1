//! The nodes of a run, their numbers and addresses.
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use crate::scenario::Scenario;
use crate::shared::IPV6_PREFIX;

/// Every list of nodes has the senders first, then the receiver, then the bottleneck if it is a kernel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Topology {
    pub senders: usize,
    /// Whether the bottleneck is a kernel with a queueing discipline, rather than the link's own FIFO.
    pub bottleneck: bool,
    /// Whether all packets are IPv6; else all are IPv4.
    pub ipv6: bool,
}

impl Topology {
    pub fn new(scenario: &Scenario) -> Self {
        Self { senders: scenario.senders.len(), bottleneck: scenario.aqm.is_some(), ipv6: scenario.ip_version == 6 }
    }

    pub fn receiver(self) -> usize {
        self.senders
    }

    pub fn bottleneck(self) -> Option<usize> {
        self.bottleneck.then_some(self.senders + 1)
    }

    /// Returns the number of nodes.
    pub fn count(self) -> usize {
        self.senders + 1 + usize::from(self.bottleneck)
    }

    /// Returns the node's name in messages to users.
    pub fn name(self, node: usize) -> String {
        match node {
            sender if sender < self.senders => format!("sender {}", sender + 1),
            receiver if receiver == self.senders => "receiver".into(),
            _ => "bottleneck".into(),
        }
    }

    /// Returns the number that kernels and headers have for the node: its IPv4 address 10.0.0.1, 10.0.0.2, ..., or the
    /// end of its IPv6 address 2001:db8::1, 2001:db8::2, ...
    pub fn address(self, node: usize) -> u32 {
        1 + node as u32 + if self.ipv6 { 0 } else { 0x0a00_0000 }
    }

    /// Returns the node's address.
    pub fn ip_address(self, node: usize) -> IpAddr {
        let number = self.address(node);
        match self.ipv6 {
            true => Ipv6Addr::from(u128::from(IPV6_PREFIX) << 64 | u128::from(number)).into(),
            false => Ipv4Addr::from(number).into(),
        }
    }
}
