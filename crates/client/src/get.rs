//! `get`: an open loop. Requests are due at random times, with exponential times between them, and a request's time counts
//! from when it is due: a server that stalls makes those late that come meanwhile, too, as in a closed loop it would not
//! (Schroeder, Wierman, Harchol-Balter, "Open versus closed: a cautionary tale", NSDI 2006).
//!
//! It prints a line of JSON for each request, which becomes a row of the dataset's table `requests`.
use std::collections::VecDeque;
use std::fs::File;
use std::io::{stdout, Read, Write};
use std::net::{IpAddr, SocketAddr};
use std::time::{Duration, Instant};

use anyhow::{bail, ensure, Context, Result};
use clap::Args;

use crate::pool::{make_room, wait, Connection, Request};

/// For so many connections a process has room from the start.
const ROOM: usize = 1000;

#[derive(Args)]
pub struct Options {
    /// What to ask for: http://ADDRESS:PORT/PATH, with a number as the address (there are no names)
    url: String,
    /// Requests a second, in the mean
    #[arg(long, default_value_t = 100.0)]
    rate: f64,
    /// For how long requests are due, such as 10s; a number is seconds
    #[arg(long = "for", value_name = "TIME", default_value = "10s", value_parser = time)]
    lasts: Duration,
    /// How long after that requests that have not ended are given up
    #[arg(long, value_name = "TIME", default_value = "900ms", value_parser = time)]
    patience: Duration,
    /// Most connections at a time; a request that finds none free waits, and this counts
    #[arg(long, default_value_t = 1000)]
    connections: usize,
    /// A connection for every request, as of many clients that come once
    #[arg(long)]
    fresh: bool,
}

fn time(text: &str) -> Result<Duration, String> {
    let (number, unit) = match text.strip_suffix("ms") {
        Some(number) => (number, 1e-3),
        None => (text.strip_suffix('s').unwrap_or(text), 1.0),
    };
    match number.parse::<f64>() {
        Ok(number) if (0.0..=3600.0).contains(&(number * unit)) => Ok(Duration::from_secs_f64(number * unit)),
        _ => Err("give a time of at most 3600s, such as 10s or 500ms".into()),
    }
}

/// Returns the server that is to be asked, and what it is sent; refuses options that cannot be meant.
pub fn checked(options: &Options) -> Result<(SocketAddr, Vec<u8>)> {
    ensure!(options.rate > 0.0 && options.rate <= 1e6, "--rate: {} is not above 0 and at most 1000000", options.rate);
    ensure!((1..=10_000).contains(&options.connections), "--connections: {} is not 1 to 10000", options.connections);
    read_url(&options.url, options.fresh)
}

pub fn run(options: &Options) -> Result<()> {
    let (server, text) = checked(options)?;
    let (lasts, patience) = (options.lasts, options.patience);
    if options.connections > ROOM {
        make_room(options.connections).context("--connections: files for so many")?;
    }
    let begun = Instant::now();
    let mut due = due_times(options.rate, lasts)?;
    let asked = due.len();
    let (mut failures, mut first_failure) = (0, None);
    let mut ended = |request: Request| {
        if let Some(why) = why_failed(&request) {
            failures += 1;
            first_failure.get_or_insert(why);
        }
        // One write, which is one line where other programs print, too.
        stdout().write_all(line(&request, begun).as_bytes()).context("standard output")
    };
    let mut connections: Vec<Connection> = Vec::new();
    let mut buffer = vec![0; 256 << 10];
    while begun.elapsed() < lasts + patience && (!due.is_empty() || connections.iter().any(|one| !one.is_free())) {
        connections.retain(|connection| !connection.is_over());
        let now = begun.elapsed();
        while let Some(at) = due.front().copied().filter(|at| *at <= now) {
            let free = connections.iter().position(Connection::is_free);
            let mut request = Request::new(begun + at);
            match free {
                Some(place) => connections[place].send(request, &text),
                None if connections.len() >= options.connections => break,
                None => match Connection::begin(server, options.fresh) {
                    Ok(mut connection) => {
                        connection.send(request, &text);
                        connections.push(connection);
                    }
                    Err(error) => {
                        (request.failed, request.ended) = (Some(error.to_string()), Some(Instant::now()));
                        ended(request)?;
                    }
                },
            }
            due.pop_front();
        }
        let next = due.front().copied().filter(|at| *at > now).unwrap_or(lasts + patience);
        let ready = wait(&connections, next.saturating_sub(begun.elapsed())).context("waiting for answers")?;
        for (connection, _) in connections.iter_mut().zip(ready).filter(|(_, ready)| *ready) {
            if let Some(request) = connection.go_on(&mut buffer) {
                ended(request)?;
            }
        }
    }
    for request in
        connections.iter_mut().filter_map(Connection::give_up).chain(due.into_iter().map(|at| Request::new(begun + at)))
    {
        ended(request)?;
    }
    match first_failure {
        Some(why) if failures == asked => bail!("none of {asked} requests was answered; the first: {why}"),
        _ => Ok(()),
    }
}

fn why_failed(request: &Request) -> Option<String> {
    match (&request.failed, request.answer.head()) {
        (Some(why), _) => Some(why.clone()),
        (None, Some(head)) if !(200..300).contains(&head.status) => Some(format!("status {}", head.status)),
        _ if request.ended.is_none() => Some("it did not end".into()),
        _ => None,
    }
}

/// Returns what the dataset's reader expects of a request (python/brobust/virtual/requests.py).
fn line(request: &Request, begun: Instant) -> String {
    let ms = |time: Option<Instant>| match time {
        Some(time) => format!("{:.6}", (time - request.due).as_nanos() as f64 / 1e6),
        None => "null".into(),
    };
    let status = request.answer.head().map_or("null".into(), |head| head.status.to_string());
    let whole = request.ended.filter(|_| request.failed.is_none());
    format!(
        "{{\"request\": {{\"due_s\": {:.9}, \"first_byte_ms\": {}, \"completion_ms\": {}, \"bytes\": {}, \"status\": {status}}}}}\n",
        (request.due - begun).as_nanos() as f64 / 1e9,
        ms(request.first_byte),
        ms(whole),
        request.answer.body,
    )
}

/// Returns the server and the text of a request.
fn read_url(url: &str, fresh: bool) -> Result<(SocketAddr, Vec<u8>)> {
    let Some(rest) = url.strip_prefix("http://") else { bail!("{url:?} does not begin with http://") };
    let (authority, path) = rest.split_once('/').unwrap_or((rest, ""));
    // An IPv6 address has colons of its own, whether in brackets or not.
    let (host, port) = authority.rsplit_once(':').with_context(|| format!("{url:?} has no port"))?;
    let address: IpAddr = host
        .trim_matches(['[', ']'])
        .parse()
        .with_context(|| format!("{host:?} in {url:?} is no address, and there are no names"))?;
    let port: u16 = port.parse().with_context(|| format!("{port:?} in {url:?} is no port"))?;
    let connection = if fresh { "close" } else { "keep-alive" };
    let text = format!("GET /{path} HTTP/1.0\r\nHost: {authority}\r\nConnection: {connection}\r\n\r\n");
    Ok((SocketAddr::new(address, port), text.into_bytes()))
}

/// Draws when requests are due. They are whole microseconds, so that the last digit of a logarithm, in which C libraries
/// differ, changes no packet.
fn due_times(rate: f64, lasts: Duration) -> Result<VecDeque<Duration>> {
    let mut seed = [0; 8];
    File::open("/dev/urandom").and_then(|mut file| file.read_exact(&mut seed)).context("/dev/urandom")?;
    let (mut state, mut at, mut due) = (u64::from_ne_bytes(seed), 0.0, VecDeque::new());
    loop {
        at -= (1.0 - uniform(&mut state)).ln() / rate;
        let time = Duration::from_micros((at * 1e6) as u64);
        if time >= lasts {
            return Ok(due);
        }
        due.push_back(time);
    }
}

/// Draws a number from 0 up to 1 (SplitMix64: Steele, Lea, Flood, OOPSLA 2014).
fn uniform(state: &mut u64) -> f64 {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mut drawn = *state;
    drawn = (drawn ^ (drawn >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    drawn = (drawn ^ (drawn >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    ((drawn ^ (drawn >> 31)) >> 11) as f64 / (1u64 << 53) as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_are_due_as_often_as_asked_for() {
        let due = due_times(1000.0, Duration::from_secs(20)).unwrap();
        assert!((19_000..21_000).contains(&due.len()), "{}", due.len());
        assert!(due.iter().is_sorted());
    }

    #[test]
    fn a_time_has_a_unit_or_is_in_seconds() {
        for (text, ms) in [("10", 10_000), ("2.5s", 2500), ("500ms", 500), ("0", 0)] {
            assert_eq!(time(text), Ok(Duration::from_millis(ms)), "{text}");
        }
        for text in ["", "s", "10m", "-1s", "3601", "NaN"] {
            assert!(time(text).is_err(), "{text}");
        }
    }

    #[test]
    fn an_address_may_be_of_either_version() {
        let (server, text) = read_url("http://10.0.0.1:5201/big?x=1", false).unwrap();
        assert_eq!(server, "10.0.0.1:5201".parse().unwrap());
        assert!(text.starts_with(b"GET /big?x=1 HTTP/1.0\r\nHost: 10.0.0.1:5201\r\nConnection: keep-alive\r\n"));
        for url in ["http://[2001:db8::1]:5201", "http://2001:db8::1:5201/"] {
            assert_eq!(read_url(url, true).unwrap().0, "[2001:db8::1]:5201".parse().unwrap());
        }
        for (url, words) in [
            ("https://10.0.0.1:1/", "does not begin with http://"),
            ("http://10.0.0.1/", "has no port"),
            ("http://server:1/", "no names"),
            ("http://10.0.0.1:x/", "is no port"),
        ] {
            assert!(read_url(url, true).unwrap_err().to_string().contains(words), "{url}");
        }
    }
}
