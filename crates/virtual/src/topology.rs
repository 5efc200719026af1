//! The nodes of a run and their numbers.

/// Every list of nodes has the senders first, then the receiver, then the bottleneck if it is a kernel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Topology {
    pub senders: usize,
    /// Whether the bottleneck is a kernel with a queueing discipline, rather than the link's own FIFO.
    pub bottleneck: bool,
}

impl Topology {
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

    /// Returns the node's IPv4 address: 10.0.0.1, 10.0.0.2, ...
    pub fn address(self, node: usize) -> u32 {
        0x0a00_0001 + node as u32
    }
}
