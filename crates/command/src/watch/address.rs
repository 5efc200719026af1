//! The address at which metrics are served.

use std::fmt;
use std::io;
use std::net::{IpAddr, Ipv4Addr, TcpListener};

use brobust_host::Refusal;
use nix::errno::Errno;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Address {
    pub host: String,
    pub port: u16,
}

impl Address {
    /// Reads `127.0.0.1:9775`, `[::1]:9775` or `localhost:9775`. With port 0 the kernel chooses a free port.
    pub fn parse(text: &str) -> Result<Address, Refusal> {
        Address::split(text).ok_or_else(|| {
            Refusal::bad_input(format!(
                "--serve: '{text}' is not an address with a port; write 127.0.0.1:9775 or [::1]:9775, or 0.0.0.0:9775 \
                 for all addresses of this host, where anybody who can reach one can read the metrics"
            ))
        })
    }

    fn split(text: &str) -> Option<Address> {
        let (host, port) = text.rsplit_once(':')?;
        let is_number = !port.is_empty() && port.bytes().all(|digit| digit.is_ascii_digit());
        let inner = host.strip_prefix('[').and_then(|host| host.strip_suffix(']'));
        let is_name =
            |name: &str| !name.is_empty() && !name.contains(['[', ']']) && !name.contains(char::is_whitespace);
        let host = inner.or((!host.contains(':')).then_some(host)).filter(|host| is_name(host))?;
        Some(Address { host: host.to_owned(), port: port.parse().ok().filter(|_| is_number)? })
    }

    /// Listens at the address. Of names, only localhost is known: others are looked up by libraries of the host that fit
    /// its own C library, and this program may have another one inside.
    pub fn listen(&self) -> Result<TcpListener, Refusal> {
        let found = match self.host.as_str() {
            "localhost" => Ok(IpAddr::from(Ipv4Addr::LOCALHOST)),
            host => host.parse(),
        };
        let place = found.map_err(|_| {
            Refusal::bad_input(format!("--serve: '{}' is neither an IP address nor localhost", self.host))
        })?;
        TcpListener::bind((place, self.port)).map_err(|error| {
            let (said, helps) = (reason(&error), what_helps(&error));
            Refusal::missing_support(format!("--serve: cannot listen on {self}: {said}; {helps}"))
        })
    }
}

fn reason(error: &io::Error) -> String {
    error.raw_os_error().map_or_else(|| error.to_string(), |number| Errno::from_raw(number).desc().to_lowercase())
}

fn what_helps(error: &io::Error) -> &'static str {
    match Errno::from_raw(error.raw_os_error().unwrap_or(0)) {
        Errno::EADDRINUSE => "another program listens there (ss -ltnp names it); choose another port",
        Errno::EACCES => "ports below 1024 need CAP_NET_BIND_SERVICE; choose another port",
        Errno::EADDRNOTAVAIL => "this host does not have that address",
        _ => "choose another address",
    }
}

impl fmt::Display for Address {
    fn fmt(&self, to: &mut fmt::Formatter) -> fmt::Result {
        if self.host.contains(':') {
            write!(to, "[{}]:{}", self.host, self.port)
        } else {
            write!(to, "{}:{}", self.host, self.port)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_read_as_they_are_written() {
        for text in ["127.0.0.1:0", "[::1]:9775", "localhost:65535"] {
            assert_eq!(Address::parse(text).unwrap().to_string(), text);
        }
        for text in
            ["9775", ":9775", "127.0.0.1", "::1:9775", "127.0.0.1:65536", "host:http", "[::1]", "", "a b:1", "h:+1"]
        {
            let refusal = Address::parse(text).unwrap_err().text;
            assert!(refusal.starts_with(&format!("--serve: '{text}' is not an address with a port")), "{refusal}");
        }
    }
}
