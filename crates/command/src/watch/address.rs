//! The address at which metrics are served.

use std::net::{SocketAddr, TcpListener};

use brobust_host::{reason, Refusal};
use nix::errno::Errno;

use crate::numbers;

/// Reads `127.0.0.1:9775`, `[::1]:9775` or `localhost:9775`. An address of either version may be in brackets, for those
/// who write `[$ADDRESS]:9775`. With port 0 the kernel chooses a free port. Of names, only
/// localhost is known: others are looked up by libraries of the host that fit its own C library, and this program may
/// have another one inside.
pub fn parse(text: &str) -> Result<SocketAddr, String> {
    let port = text.rsplit_once(':').map_or("", |(_, port)| port);
    if let Some(refused) = numbers::too_large_for_a_port(port) {
        return Err(refused);
    }
    let bracketed = text.strip_prefix('[').and_then(|rest| rest.split_once("]:"));
    let numeric = match (text.strip_prefix("localhost:"), bracketed) {
        (Some(port), _) => format!("127.0.0.1:{port}"),
        (_, Some((address, port))) if !address.contains(':') => format!("{address}:{port}"),
        _ => text.to_owned(),
    };
    numeric.parse().map_err(|_| {
        "write 127.0.0.1:9775, [::1]:9775 or localhost:9775 (no other name is looked up), or 0.0.0.0:9775 for all \
         addresses of this host, where anybody who can reach one can read the metrics"
            .to_owned()
    })
}

pub fn listen(address: SocketAddr) -> Result<TcpListener, Refusal> {
    TcpListener::bind(address).map_err(|error| {
        let helps = match Errno::from_raw(error.raw_os_error().unwrap_or(0)) {
            Errno::EADDRINUSE => "another program listens there (ss -ltnp names it); choose another port",
            Errno::EACCES => "ports below 1024 need CAP_NET_BIND_SERVICE; choose another port",
            Errno::EADDRNOTAVAIL => "this host does not have that address",
            _ => "choose another address",
        };
        Refusal::missing_support(format!("--serve: cannot listen on {address}: {}; {helps}", reason(&error)))
    })
}

#[cfg(test)]
mod tests {
    use super::parse;

    #[test]
    fn addresses_are_read_as_they_are_written() {
        for text in ["127.0.0.1:0", "[::1]:9775"] {
            assert_eq!(parse(text).unwrap().to_string(), text);
        }
        assert_eq!(parse("localhost:65535"), parse("127.0.0.1:65535"));
        assert_eq!(parse("[10.1.2.3]:9775"), parse("10.1.2.3:9775"));
        for text in [
            "9775",
            ":9775",
            "127.0.0.1",
            "::1:9775",
            "127.0.0.1:65536",
            "host:80",
            "[::1]",
            "",
            "a b:1",
            "h:+1",
            "[host]:80",
        ] {
            assert!(parse(text).is_err(), "{text}");
        }
        assert_eq!(parse("localhost:99999").unwrap_err(), "port 99999 is above 65535");
    }
}
