//! The TCP ports of the flows, by which the network tells flows apart.

/// Flow n sends from FIRST_PORT + n.
pub const FIRST_PORT: u16 = 10_000;
/// The iperf3 server of flow n, or the program of its that waits, listens on SERVER_PORT + n.
pub const SERVER_PORT: u16 = 5201;
