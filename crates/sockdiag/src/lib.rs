//! Reads TCP sockets from the kernel over NETLINK_SOCK_DIAG, as `ss` does.
//!
//! There are two ways to ask, with different costs (net/ipv4/inet_diag.c): [`SockDiag::dump`] walks the whole hash
//! table of connections, [`SockDiag::get`] is one lookup. Both take the lock of each socket that they report for a
//! moment, so a sampler should find its sockets by a dump and then follow them one by one.

#[cfg(test)]
mod answers;
mod bbr_info;
mod bytes;
mod inet_diag;
mod netlink;
mod query;
mod socket;
mod tcp_info;

pub use bbr_info::BbrInfo;
pub use query::{Filter, SockDiag};
pub use socket::{Socket, SocketKey};
pub use tcp_info::TcpInfo;

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("cannot talk to the kernel's socket diagnosis ({0}): is NETLINK_SOCK_DIAG allowed here?")]
    Netlink(std::io::Error),

    #[error("the kernel cannot report TCP sockets: load its module with `modprobe tcp_diag` (CONFIG_INET_TCP_DIAG)")]
    NoTcpDiag,

    #[error("the kernel refused the request for TCP sockets: {0}")]
    Refused(std::io::Error),

    #[error("the kernel sent a message that cannot be read: {0}")]
    Malformed(String),

    #[error("the table of sockets changed during each of {} dumps: some may be missing", query::TRIES)]
    Interrupted,

    #[error(
        "answers of the kernel's socket diagnosis were lost {} times in a row: is it out of memory?",
        query::TRIES
    )]
    Lost,
}

pub type Result<T> = std::result::Result<T, Error>;
