//! The ports of the sockets that are watched, as the user writes them.

use brobust_sockdiag::Filter;

use crate::numbers;

const USAGE: &str =
    "write dport PORT (the other end's port), sport PORT (this host's), or both: 'sport 80 and dport 5201'";

/// Reads `dport 443`, `sport 80`, or both joined by `and`; refuses anything else. An empty text: any port.
pub fn parse(text: &str) -> Result<Filter, String> {
    let mut filter = Filter::default();
    let words = text.split_whitespace().collect::<Vec<_>>().join(" ");
    if words.is_empty() {
        return Ok(filter);
    }
    for part in words.split(" and ") {
        add(&mut filter, part)?;
    }
    Ok(filter)
}

/// Adds `dport = :443` and the like, unless it is no port, or that end has one already.
fn add(filter: &mut Filter, part: &str) -> Result<(), String> {
    let (is_local, rest) = match (part.strip_prefix("sport"), part.strip_prefix("dport")) {
        (Some(rest), _) => (true, rest),
        (_, Some(rest)) => (false, rest),
        _ => return Err(USAGE.to_owned()),
    };
    let rest = rest.trim_start();
    let rest = rest.strip_prefix('=').unwrap_or(rest).trim_start();
    let digits = rest.strip_prefix(':').unwrap_or(rest);
    if let Some(refused) = numbers::too_large_for_a_port(digits) {
        return Err(refused);
    }
    let is_number = digits.bytes().all(|digit| digit.is_ascii_digit());
    let port = digits.parse().ok().filter(|port| is_number && *port > 0);
    let place = if is_local { &mut filter.local_port } else { &mut filter.remote_port };
    match port {
        Some(port) if place.replace(port).is_none() => Ok(()),
        _ => Err(USAGE.to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ports(text: &str) -> Option<(Option<u16>, Option<u16>)> {
        parse(text).ok().map(|filter| (filter.local_port, filter.remote_port))
    }

    #[test]
    fn filters() {
        assert_eq!(ports(""), Some((None, None)));
        assert_eq!(ports("dport 443"), Some((None, Some(443))));
        assert_eq!(ports(" sport 80  and dport = :5201"), Some((Some(80), Some(5201))));
        for refused in ["port 80", "dport 0", "dport 65536", "dport 1 and dport 2", "dport +1", "dport", "sport 1 and"]
        {
            assert_eq!(ports(refused), None, "{refused}");
        }
        assert_eq!(parse("sport 80 and dport = :99999").unwrap_err(), "port 99999 is above 65535");
    }
}
