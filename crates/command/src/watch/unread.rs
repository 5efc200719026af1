//! What a service could not read, for its log: metrics have the numbers alone.

use std::time::{Duration, Instant};

/// Of the same host not more than a line in this time: what is missing now and then would fill a log.
const SILENCE: Duration = Duration::from_secs(600);
/// A host may have thousands of network namespaces.
const MAX_NAMED: usize = 5;

#[derive(Debug, Default)]
pub struct Unread {
    said: Option<Instant>,
}

impl Unread {
    /// Returns the line that is due now, if one is, about what the latest sweep could not read.
    pub fn new_line(&mut self, unread: &[String], now: Instant) -> Option<String> {
        if unread.is_empty() || self.said.is_some_and(|then| now.saturating_duration_since(then) < SILENCE) {
            return None;
        }
        self.said = Some(now);
        let named = unread.iter().take(MAX_NAMED).map(String::as_str).collect::<Vec<_>>().join("; ");
        let more = match unread.len().saturating_sub(MAX_NAMED) {
            0 => String::new(),
            rest => format!("; and {rest} more"),
        };
        Some(format!("not read: {named}{more}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_read_is_said_at_once_and_then_every_ten_minutes() {
        let (mut unread, begun) = (Unread::default(), Instant::now());
        let mut line = |second: u64, names: &[&str]| {
            let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
            unread.new_line(&names, begun + Duration::from_secs(second))
        };
        assert_eq!(line(0, &[]), None);
        assert_eq!(line(1, &["/proc/stat: gone"]).as_deref(), Some("not read: /proc/stat: gone"));
        assert_eq!(line(2, &["another"]), None);
        let many = line(601, &["a", "b", "c", "d", "e", "f", "g"]);
        assert_eq!(many.as_deref(), Some("not read: a; b; c; d; e; and 2 more"));
    }
}
