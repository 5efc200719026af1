//! An answer of HTTP as it arrives. Of its body only the length is kept.
//!
//! Requests are of HTTP/1.0, which every server understands: the body of an answer then ends where Content-Length says, or
//! with the connection, and never comes in chunks.

/// Longest head of an answer, bytes.
const MAX_HEAD: usize = 64 << 10;

#[derive(Debug, Default)]
pub struct Answer {
    head: Vec<u8>,
    /// What its head says; None: it has not arrived.
    said: Option<Head>,
    /// Bytes of the body so far.
    pub body: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Head {
    pub status: u16,
    pub length: Option<u64>,
    /// Whether the connection stays open after the answer.
    pub keeps: bool,
}

impl Answer {
    /// Takes what has arrived next. Refuses what is no answer of HTTP.
    pub fn add(&mut self, bytes: &[u8]) -> Result<(), &'static str> {
        if self.said.is_some() {
            self.body += bytes.len() as u64;
            return Ok(());
        }
        self.head.extend_from_slice(bytes);
        match self.head.windows(4).position(|four| four == b"\r\n\r\n") {
            Some(end) => {
                self.said = Some(read_head(&String::from_utf8_lossy(&self.head[..end]))?);
                self.body = (self.head.len() - end - 4) as u64;
                Ok(())
            }
            None if self.head.len() > MAX_HEAD => Err("a head of more than 64 KiB"),
            None => Ok(()),
        }
    }

    pub fn head(&self) -> Option<Head> {
        self.said
    }

    /// Returns whether all of it has arrived.
    pub fn is_whole(&self) -> bool {
        self.said.and_then(|head| head.length).is_some_and(|length| self.body >= length)
    }

    /// Returns whether all of it has arrived if the server has closed the connection now.
    pub fn is_whole_at_the_end(&self) -> bool {
        self.said.is_some_and(|head| head.length.is_none_or(|length| self.body >= length))
    }
}

fn read_head(text: &str) -> Result<Head, &'static str> {
    let mut lines = text.split("\r\n");
    let first = lines.next().filter(|line| line.starts_with("HTTP/1.")).ok_or("no answer of HTTP/1")?;
    let status = first.split(' ').nth(1).and_then(|word| word.parse().ok()).ok_or("a status that is no number")?;
    let (mut length, mut keeps) = (None, first.starts_with("HTTP/1.1"));
    for (name, value) in lines.filter_map(|line| line.split_once(':')) {
        match (name.to_ascii_lowercase().as_str(), value.trim().to_ascii_lowercase().as_str()) {
            ("content-length", value) => length = Some(value.parse().map_err(|_| "a length that is no number")?),
            ("transfer-encoding", _) => return Err("a transfer encoding, for which nobody asked"),
            ("connection", "close") => keeps = false,
            ("connection", "keep-alive") => keeps = true,
            _ => {}
        }
    }
    if matches!(status, 204 | 304) {
        length = Some(0); // they have no body, whatever the length is said to be (RFC 9112, section 6.3)
    }
    Ok(Head { status, length, keeps: keeps && length.is_some() })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(pieces: &[&str]) -> Result<Answer, &'static str> {
        let mut answer = Answer::default();
        pieces.iter().try_for_each(|piece| answer.add(piece.as_bytes()))?;
        Ok(answer)
    }

    #[test]
    fn an_answer_ends_where_its_length_says_however_it_arrives() {
        let answer = of(&["HTTP/1.1 200 OK\r\nContent-Le", "ngth: 5\r\n\r", "\nab", "cde"]).unwrap();
        assert_eq!(answer.head(), Some(Head { status: 200, length: Some(5), keeps: true }));
        assert!(answer.is_whole() && answer.body == 5);
        assert!(!of(&["HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nab"]).unwrap().is_whole_at_the_end());
    }

    #[test]
    fn without_a_length_it_ends_with_the_connection() {
        let answer = of(&["HTTP/1.0 404 Not Found\r\nConnection: keep-alive\r\n\r\nabc"]).unwrap();
        assert_eq!(answer.head(), Some(Head { status: 404, length: None, keeps: false }));
        assert!(!answer.is_whole() && answer.is_whole_at_the_end());
    }

    #[test]
    fn an_answer_that_has_no_body_ends_with_its_head() {
        for head in ["204 No Content\r\nServer: x", "304 Not Modified\r\nContent-Length: 9"] {
            let answer = of(&[&format!("HTTP/1.1 {head}\r\n\r\n")]).unwrap();
            assert!(answer.is_whole() && answer.head().unwrap().keeps, "{head}");
        }
    }

    #[test]
    fn what_is_no_answer_is_refused() {
        assert_eq!(of(&["SSH-2.0-OpenSSH\r\n\r\n"]).unwrap_err(), "no answer of HTTP/1");
        assert_eq!(of(&["HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\n"]).unwrap_err(), "a length that is no number");
        assert!(of(&[&"x".repeat(MAX_HEAD + 1)]).is_err());
    }
}
