//! Answers Prometheus over HTTP, in one thread.
//!
//! Anybody may connect, so what connections can cost is bounded: their number, their time, and the length of what they
//! ask. A new connection replaces the oldest if there are too many. So connections that ask for nothing, or never read,
//! do not keep Prometheus out. Each answer ends its connection.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::os::fd::AsFd;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use brobust_host::{reason, Refusal};
use nix::poll::{poll, PollFd, PollFlags, PollTimeout};

use super::address;
use super::exposition::CONTENT_TYPE;

const MAX_CONNECTIONS: usize = 32;
/// In tests: longer than a busy machine keeps a thread of theirs from its CPU.
const MAX_DURATION: Duration = Duration::from_secs(if cfg!(test) { 5 } else { 10 });
const MAX_REQUEST_BYTES: usize = 16 * 1024;

/// Reads and writes of a connection in a turn. One on which more and more arrives, faster than it is read, must not keep
/// the others waiting.
const MAX_CALLS: usize = 64;

/// Begins to answer scrapes with what `metrics` returns. Returns the address, with the port that the kernel chose for 0,
/// and the thread.
pub fn start(
    address: SocketAddr,
    metrics: impl Fn() -> String + Send + 'static,
) -> Result<(SocketAddr, JoinHandle<()>), Refusal> {
    let failed = |error: io::Error| Refusal::failed(format!("--serve: cannot serve at {address}: {}", reason(&error)));
    let listener = address::listen(address)?;
    let place = listener.local_addr().map_err(failed)?;
    listener.set_nonblocking(true).map_err(failed)?;
    let mut server = Server { listener, metrics, connections: Vec::new() };
    let thread = thread::Builder::new()
        .name("metrics".to_owned())
        .spawn(move || loop {
            server.turn()
        })
        .map_err(failed)?;
    Ok((place, thread))
}

/// Refuses to go on without the thread that serves: it ends only by a mistake of ours, and nobody would see the sweeps.
pub fn check(thread: &JoinHandle<()>) -> Result<(), Refusal> {
    match thread.is_finished() {
        false => Ok(()),
        true => Err(Refusal::failed(
            "--serve: the metrics cannot be served any more, by a mistake of brobust: please report this with the lines \
             above, and start it again",
        )),
    }
}

struct Server<Metrics> {
    listener: TcpListener,
    metrics: Metrics,
    /// The oldest first.
    connections: Vec<Connection>,
}

impl<Metrics: Fn() -> String> Server<Metrics> {
    /// Waits until something can be done, and does it.
    fn turn(&mut self) {
        let oldest = self.connections.first().map(|one| one.since + MAX_DURATION);
        let left = oldest.map(|end| end.saturating_duration_since(Instant::now()) + Duration::from_millis(1));
        let timeout = left.map_or(PollTimeout::NONE, |left| PollTimeout::try_from(left).unwrap_or(PollTimeout::MAX));
        let mut waited: Vec<PollFd> = vec![PollFd::new(self.listener.as_fd(), PollFlags::POLLIN)];
        waited.extend(self.connections.iter().map(|one| PollFd::new(one.stream.as_fd(), one.waits_for())));
        // A signal, or no memory for the call: the deadlines are checked all the same.
        let _ = poll(&mut waited, timeout);
        let is_new = waited[0].any().unwrap_or(true);
        // Each goes on as far as it can. There are few, so it does not matter which have something to do.
        let (now, metrics) = (Instant::now(), &self.metrics);
        self.connections.retain_mut(|one| now - one.since < MAX_DURATION && one.advance(metrics));
        if is_new {
            self.accept();
        }
    }

    /// Takes the connections that wait, and answers those that have asked already. In one turn as many as may be open,
    /// so that a flood of them does not keep those that are open from being answered.
    fn accept(&mut self) {
        for _ in 0..MAX_CONNECTIONS {
            match self.listener.accept() {
                Ok((stream, _)) => {
                    if self.connections.len() >= MAX_CONNECTIONS {
                        self.connections.remove(0);
                    }
                    let mut one = Connection { stream, since: Instant::now(), state: State::Asked(Vec::new()) };
                    if one.stream.set_nonblocking(true).is_ok() && one.advance(&self.metrics) {
                        self.connections.push(one);
                    }
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => return,
                Err(error) if is_about_the_connection(&error) => {}
                // No descriptor or no memory for another one. It waits for us, so poll() would not wait.
                Err(_) if self.connections.is_empty() => return thread::sleep(Duration::from_millis(100)),
                Err(_) => drop(self.connections.remove(0)),
            }
        }
    }
}

/// Whether accept(2) reports what happened to a connection that has waited for us.
fn is_about_the_connection(error: &io::Error) -> bool {
    !matches!(error.raw_os_error(), Some(libc::EMFILE | libc::ENFILE | libc::ENOBUFS | libc::ENOMEM))
}

enum State {
    /// Holds what has been asked so far.
    Asked(Vec<u8>),
    /// Holds the answer, and how much of it has been sent.
    Answered(Vec<u8>, usize),
    /// We have said that nothing more comes, and wait for the other end to say so, too: closing a connection on which
    /// unread data waits would destroy the answer on its way.
    Ended,
}

struct Connection {
    stream: TcpStream,
    since: Instant,
    state: State,
}

impl Connection {
    fn waits_for(&self) -> PollFlags {
        match self.state {
            State::Answered(..) => PollFlags::POLLOUT,
            State::Asked(_) | State::Ended => PollFlags::POLLIN,
        }
    }

    /// Does what can be done without waiting. Returns whether the connection stays open.
    fn advance(&mut self, metrics: &impl Fn() -> String) -> bool {
        self.step(metrics).is_err_and(|error| error.kind() == ErrorKind::WouldBlock)
    }

    /// Reads, and answers, as far as that goes without waiting, or for a turn. Returns Ok once the other end has closed the
    /// connection.
    fn step(&mut self, metrics: &impl Fn() -> String) -> io::Result<()> {
        let mut part = [0; 4096];
        for _ in 0..MAX_CALLS {
            match &mut self.state {
                State::Asked(request) => {
                    let length = self.stream.read(&mut part)?;
                    if length == 0 {
                        return Ok(());
                    }
                    request.extend_from_slice(part.get(..length).unwrap_or_default());
                    if let Some(answer) = answer(request, metrics) {
                        self.state = State::Answered(answer, 0);
                    }
                }
                State::Answered(answer, sent) => {
                    let rest = answer.get(*sent..).unwrap_or_default();
                    if rest.is_empty() {
                        self.stream.shutdown(Shutdown::Write)?;
                        self.state = State::Ended;
                        continue;
                    }
                    *sent += self.stream.write(rest)?;
                }
                State::Ended => {
                    if self.stream.read(&mut part)? == 0 {
                        return Ok(());
                    }
                }
            }
        }
        Err(ErrorKind::WouldBlock.into())
    }
}

/// Returns the answer to a request of HTTP/1, or None while its head is not complete.
fn answer(request: &[u8], metrics: &impl Fn() -> String) -> Option<Vec<u8>> {
    let ends = [&b"\r\n\r\n"[..], b"\n\n"];
    if !ends.iter().any(|end| request.windows(end.len()).any(|part| part == *end)) {
        let too_long =
            || whole("431 Request Header Fields Too Large", "", "text/plain", "the request is too long\n", true);
        return (request.len() > MAX_REQUEST_BYTES).then(too_long);
    }
    let head = String::from_utf8_lossy(request);
    let mut words = head.lines().next().unwrap_or_default().split_whitespace();
    let (method, target) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
    let has_body = method != "HEAD";
    let plain = |status: &str, more: &str, text: &str| Some(whole(status, more, "text/plain", text, has_body));
    if !words.next().is_some_and(|version| version.starts_with("HTTP/1.")) {
        return plain("400 Bad Request", "", "this is no request of HTTP/1\n");
    }
    if !matches!(method, "GET" | "HEAD") {
        return plain("405 Method Not Allowed", "Allow: GET, HEAD\r\n", "only GET and HEAD are answered\n");
    }
    if !matches!(path_of(target), "/metrics" | "/") {
        return plain("404 Not Found", "", "the metrics are at /metrics\n");
    }
    Some(whole("200 OK", "", CONTENT_TYPE, &metrics(), has_body))
}

/// Returns the path of what is asked for. A proxy may send the whole address, `http://host:9775/metrics`, which every
/// server has to take (RFC 9112, section 3.2.2).
fn path_of(target: &str) -> &str {
    let target = target.split('?').next().unwrap_or_default();
    match target.split_at_checked("http://".len()) {
        Some((scheme, rest)) if scheme.eq_ignore_ascii_case("http://") => rest.find('/').map_or("/", |at| &rest[at..]),
        _ => target,
    }
}

fn whole(status: &str, more: &str, kind: &str, body: &str, has_body: bool) -> Vec<u8> {
    let length = body.len();
    let head = format!(
        "HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {length}\r\nConnection: close\r\n{more}\r\n"
    );
    (head + if has_body { body } else { "" }).into_bytes()
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::sync::Arc;

    use brobust_host::eventually;

    use super::*;

    /// A server whose answers have one body.
    struct Served {
        place: SocketAddr,
        /// How many connections are open, and how many were at the most.
        open: Arc<[AtomicUsize; 2]>,
    }

    impl Served {
        fn new(body: &str) -> Served {
            let listener = TcpListener::bind("127.0.0.1:0").unwrap();
            listener.set_nonblocking(true).unwrap();
            let (place, body) = (listener.local_addr().unwrap(), body.to_owned());
            let open = Arc::<[AtomicUsize; 2]>::default();
            let now_open = Arc::clone(&open);
            let mut server = Server { listener, metrics: move || body.clone(), connections: Vec::new() };
            thread::spawn(move || loop {
                server.turn();
                now_open[0].store(server.connections.len(), Ordering::SeqCst);
                now_open[1].fetch_max(server.connections.len(), Ordering::SeqCst);
            });
            Served { place, open }
        }

        /// Waits until as many connections as this says are open, and were at the most.
        fn wait_until(&self, is_so: impl Fn(usize, usize) -> bool) {
            // What is open is read last, as it is written first.
            let is_now = || {
                let max = self.open[1].load(Ordering::SeqCst);
                is_so(self.open[0].load(Ordering::SeqCst), max)
            };
            assert!(eventually(Duration::from_secs(60), is_now), "{:?}", self.open);
        }

        fn connect(&self) -> TcpStream {
            let stream = TcpStream::connect(self.place).unwrap();
            stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
            stream
        }

        fn ask(&self, request: &str) -> String {
            let mut stream = self.connect();
            stream.write_all(request.as_bytes()).unwrap();
            let mut text = String::new();
            stream.read_to_string(&mut text).unwrap();
            text
        }
    }

    const GET: &str = "GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n";

    #[test]
    fn what_is_asked_is_answered() {
        let served = Served::new("m 1\n");
        let said = served.ask(GET);
        assert!(said.starts_with("HTTP/1.1 200 OK\r\n") && said.contains("Content-Length: 4\r\n"), "{said}");
        assert!(said.contains("text/plain; version=0.0.4") && said.ends_with("\r\n\r\nm 1\n"), "{said}");
        assert!(served.ask("GET /?x HTTP/1.0\r\n\r\n").ends_with("m 1\n"));
        let said = served.ask("HEAD /metrics HTTP/1.1\r\n\r\n");
        assert!(said.starts_with("HTTP/1.1 200") && said.ends_with("\r\n\r\n"), "{said}");
        for of_proxy in ["http://host:9775/metrics?x", "HTTP://[::1]/", "http://host"] {
            let said = served.ask(&format!("GET {of_proxy} HTTP/1.1\r\n\r\n"));
            assert!(said.ends_with("m 1\n"), "{of_proxy}: {said}");
        }
        for (request, status) in [
            ("GET /other HTTP/1.1\r\n\r\n", "404 Not Found"),
            ("GET http://host/other HTTP/1.1\r\n\r\n", "404 Not Found"),
            ("GET ftp://host/metrics HTTP/1.1\r\n\r\n", "404 Not Found"),
            ("POST /metrics HTTP/1.1\r\nContent-Length: 3\r\n\r\nabc", "405 Method Not Allowed"),
            ("nonsense\r\n\r\n", "400 Bad Request"),
            ("\u{1}\u{2}\n\n", "400 Bad Request"),
            (&"GET /".repeat(5000), "431 Request Header Fields Too Large"),
        ] {
            let said = served.ask(request);
            assert!(said.starts_with(&format!("HTTP/1.1 {status}\r\n")), "{said}");
        }
    }

    #[test]
    fn what_serves_no_more_is_noticed() {
        let (place, thread) = start("127.0.0.1:0".parse().unwrap(), || panic!("a mistake")).unwrap();
        assert_eq!(check(&thread), Ok(()));
        let mut stream = TcpStream::connect(place).unwrap();
        stream.write_all(GET.as_bytes()).unwrap();
        assert!(eventually(Duration::from_secs(60), || check(&thread).is_err()), "it is not noticed");
    }

    #[test]
    fn a_request_may_come_in_parts() {
        let served = Served::new("m 1\n");
        let mut stream = served.connect();
        for part in GET.as_bytes().chunks(7) {
            stream.write_all(part).unwrap();
            thread::sleep(Duration::from_millis(2));
        }
        let mut text = String::new();
        stream.read_to_string(&mut text).unwrap();
        assert!(text.ends_with("m 1\n"));
    }

    #[test]
    fn connections_that_ask_nothing_do_not_keep_a_prometheus_out() {
        let served = Served::new("m 1\n");
        let idle: Vec<TcpStream> = (0..300).map(|_| served.connect()).collect();
        assert!(served.ask(GET).ends_with("m 1\n"));
        assert!(served.open[1].load(Ordering::SeqCst) <= MAX_CONNECTIONS);
        drop(idle);
    }

    #[test]
    fn who_never_stops_sending_is_left_and_keeps_nobody_waiting() {
        let served = Served::new("m 1\n");
        let mut senders = Vec::new();
        for _ in 0..2 {
            let mut stream = served.connect();
            senders.push(thread::spawn(move || {
                let more = vec![b'x'; 1 << 20];
                let begun = Instant::now();
                stream.write_all(GET.as_bytes()).unwrap();
                while stream.write_all(&more).is_ok() {
                    assert!(begun.elapsed() < Duration::from_secs(60), "it is not left");
                }
            }));
        }
        served.wait_until(|_, max| max == 2);
        assert!(served.ask(GET).ends_with("m 1\n"));
        senders.into_iter().for_each(|sender| sender.join().unwrap());
    }

    #[test]
    fn who_never_reads_is_left_and_keeps_nobody_waiting() {
        // More than the kernel's buffers of a connection hold.
        let body = "x".repeat(64 << 20);
        let served = Served::new(&body);
        let mut slow = served.connect();
        slow.write_all(GET.as_bytes()).unwrap();
        // Not the whole body once more, which on a busy machine takes longer than a connection may last.
        assert!(served.ask("HEAD /metrics HTTP/1.1\r\n\r\n").starts_with("HTTP/1.1 200"));
        served.wait_until(|open, max| open == 0 && max > 0);
        let (mut got, mut part) = (0, vec![0; 1 << 20]);
        while let Ok(length @ 1..) = slow.read(&mut part) {
            got += length;
        }
        assert!(got < body.len(), "{got}");
    }
}
