//! A bulk sender and its receiver on quiche: `send ADDRESS PORT SECONDS CONTROL GSO [txtime] [qlog]` and `receive PORT`.
//!
//! quiche has no sockets and no timers. It says when its next packet is to leave; this waits until then, or with
//! `txtime` leaves the waiting to the kernel (SO_TXTIME, which takes the qdisc fq).

use std::error::Error;
use std::io::{self, ErrorKind, Write};
use std::mem::size_of_val;
use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::os::fd::AsRawFd;
use std::ptr::{addr_of, addr_of_mut};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use quiche::{Config, Connection, ConnectionId, QlogLevel, RecvInfo};

/// More than the largest path holds, so that no flow-control window bounds what congestion control allows.
const WINDOW_BYTES: u64 = 64 << 20;
/// With cubic and reno quiche fills the window to its last byte. Given less than this, it would do so with small packets.
const LEAST_BYTES: usize = 4096;
/// The first stream of a client in one direction.
const STREAM: u64 = 2;
/// A run fails if a program prints more than 16 MiB.
const MOST_QLOG_BYTES: usize = 15 << 20;
const FILES: (&str, &str) = ("/tmp/cert.pem", "/tmp/key.pem");

type Outcome = Result<(), Box<dyn Error>>;

fn main() -> Outcome {
    let words: Vec<String> = std::env::args().skip(1).collect();
    match words.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["send", address, port, seconds, control, gso, ref rest @ ..] => {
            let to = SocketAddr::new(address.parse()?, port.parse()?);
            let (txtime, qlog) = (rest.contains(&"txtime"), rest.contains(&"qlog").then(Qlog::default));
            send(to, Duration::from_secs_f64(seconds.parse()?), control, gso == "on", txtime, qlog)
        }
        ["receive", port] => receive(port.parse()?),
        _ => Err("give: send ADDRESS PORT SECONDS CONTROL on|off [txtime] [qlog], or: receive PORT".into()),
    }
}

fn config() -> Result<Config, quiche::Error> {
    let mut config = Config::new(quiche::PROTOCOL_VERSION)?;
    config.set_application_protos(&[b"bulk"])?;
    config.set_initial_max_data(WINDOW_BYTES);
    config.set_initial_max_stream_data_uni(WINDOW_BYTES);
    config.set_max_connection_window(WINDOW_BYTES);
    config.set_max_stream_window(WINDOW_BYTES);
    config.set_initial_max_streams_uni(1);
    config.verify_peer(false);
    Ok(config)
}

fn send(to: SocketAddr, time: Duration, control: &str, gso: bool, txtime: bool, qlog: Option<Qlog>) -> Outcome {
    let mut config = config()?;
    config.set_cc_algorithm_name(control)?;
    if control == "bbr" {
        // quiche takes no more data than the window has room for. Where that is not quite full, it would hold the
        // application to be the limit, and bbr would stay in STARTUP.
        config.set_send_capacity_factor(2.0);
    }
    let socket = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0))?;
    socket.connect(to)?;
    if txtime {
        let clock = [libc::CLOCK_MONOTONIC as u32, 0];
        set(&socket, libc::SO_TXTIME, &clock)?;
    }
    let end = Instant::now() + time;
    let id = ConnectionId::from_ref(&[1; 16]);
    let mut connection = quiche::connect(Some("localhost"), &id, socket.local_addr()?, to, &mut config)?;
    if let Some(qlog) = &qlog {
        connection.set_qlog_with_level(Box::new(qlog.clone()), "quiche".into(), String::new(), QlogLevel::Core);
    }
    let info = RecvInfo { from: to, to: socket.local_addr()? };
    let mut link = Link { socket, connection, info, gso, txtime };
    let (mut written, block) = (0, [0; 65536]);
    while Instant::now() < end && !link.connection.is_closed() {
        if link.connection.is_established() {
            // The first write begins the stream.
            while written == 0 || link.connection.stream_writable(STREAM, LEAST_BYTES)? {
                match link.connection.stream_send(STREAM, &block, false) {
                    Ok(bytes) => written += bytes,
                    Err(quiche::Error::Done) => break,
                    Err(error) => return Err(error.into()),
                }
            }
        }
        link.turn(end)?;
    }
    let stats = link.connection.stats();
    println!("written {written} bytes, sent {} packets, lost {}", stats.sent, stats.lost);
    if let Some(path) = link.connection.path_stats().next() {
        println!("cwnd {} bytes, rtt {} us, mtu {}", path.cwnd, path.rtt.as_micros(), path.pmtu);
    }
    qlog.map_or(Ok(()), |one| one.print())?;
    link.connection.close(true, 0, b"done")?;
    link.send_what_may_leave().map(|_| ())
}

fn receive(port: u16) -> Outcome {
    let made = rcgen::generate_simple_self_signed(["localhost".to_string()])?;
    std::fs::write(FILES.0, made.cert.pem())?;
    std::fs::write(FILES.1, made.key_pair.serialize_pem())?;
    let mut config = config()?;
    config.load_cert_chain_from_pem_file(FILES.0)?;
    config.load_priv_key_from_pem_file(FILES.1)?;
    let socket = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, port))?;
    let (_, from) = socket.peek_from(&mut [0; 1])?;
    let id = ConnectionId::from_ref(&[2; 16]);
    let connection = quiche::accept(&id, None, socket.local_addr()?, from, &mut config)?;
    let info = RecvInfo { from, to: socket.local_addr()? };
    let mut link = Link { socket, connection, info, gso: false, txtime: false };
    let mut block = [0; 65536];
    while !link.connection.is_draining() && !link.connection.is_closed() {
        link.turn(Instant::now() + Duration::from_secs(60))?;
        while let Ok((1.., _)) = link.connection.stream_recv(STREAM, &mut block) {}
    }
    Ok(())
}

/// qlog, kept until the end: a write during the run would cost CPU time.
#[derive(Clone, Default)]
struct Qlog(Arc<Mutex<Vec<u8>>>);

impl Write for Qlog {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().map_err(|_| ErrorKind::Other)?.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Qlog {
    /// Prints its head, the first event and all metrics, as far as MOST_QLOG_BYTES hold them.
    fn print(&self) -> io::Result<()> {
        let all = self.0.lock().map_err(|_| ErrorKind::Other)?;
        let (mut printed, mut output) = (0, io::stdout().lock());
        for (number, record) in all.split_inclusive(|byte| *byte == b'\n').enumerate() {
            if number < 2 || record.windows(15).any(|part| part == b"metrics_updated") {
                printed += record.len();
                if printed > MOST_QLOG_BYTES {
                    break;
                }
                output.write_all(record)?;
            }
        }
        output.flush()
    }
}

struct Link {
    socket: UdpSocket,
    connection: Connection,
    /// How its packets come.
    info: RecvInfo,
    gso: bool,
    txtime: bool,
}

impl Link {
    /// Sends what may leave, waits until something happens, but not beyond `end`, and receives what has come.
    fn turn(&mut self, end: Instant) -> Outcome {
        let departure = self.send_what_may_leave()?;
        let timeout = self.connection.timeout().map(|wait| Instant::now() + wait);
        let until = [Some(end), timeout, departure].into_iter().flatten().min().unwrap_or(end);
        wait(&self.socket, until.saturating_duration_since(Instant::now()));
        let mut packet = [0; 65536];
        self.socket.set_nonblocking(true)?;
        loop {
            match self.socket.recv(&mut packet) {
                Ok(size) => drop(self.connection.recv(&mut packet[..size], self.info)),
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(error) => return Err(error.into()),
            }
        }
        if self.connection.timeout().is_some_and(|wait| wait.is_zero()) {
            self.connection.on_timeout();
        }
        Ok(())
    }

    /// Sends packets until the next has to wait, and returns until when. As quiche's own server does, one call sends
    /// up to a send quantum by GSO, at the time of its first packet.
    fn send_what_may_leave(&mut self) -> Result<Option<Instant>, Box<dyn Error>> {
        let mut packets = [0; 65536];
        loop {
            let ahead = if self.txtime { self.connection.max_release_into_future() } else { Duration::ZERO };
            let release = self.connection.get_next_release_time().and_then(|one| one.time(Instant::now()));
            if let Some(late) = release.filter(|time| *time > Instant::now() + ahead) {
                return Ok(Some(late - ahead));
            }
            let largest = self.connection.max_send_udp_payload_size();
            let quantum = if self.gso { (self.connection.send_quantum() / largest).clamp(1, 48) * largest } else { 1 };
            let mut size = 0;
            while size < quantum {
                match self.connection.send(&mut packets[size..size + largest]) {
                    Ok((bytes, _)) => {
                        size += bytes;
                        if bytes < largest {
                            break; // only the last one may be shorter: the kernel cuts all at one size
                        }
                    }
                    Err(quiche::Error::Done) => break,
                    Err(error) => return Err(error.into()),
                }
            }
            if size == 0 {
                return Ok(None);
            }
            self.transmit(&packets[..size], largest, release)?;
        }
    }

    fn transmit(&self, bytes: &[u8], segment: usize, release: Option<Instant>) -> Outcome {
        if self.connection.is_server() {
            self.socket.send_to(bytes, self.info.from)?; // not connected, it does not learn that the sender has gone
            return Ok(());
        }
        let mut part = libc::iovec { iov_base: bytes.as_ptr() as *mut _, iov_len: bytes.len() };
        let mut control = [0u64; 16];
        // SAFETY: the kernel reads `part` and what `control` holds, which is larger than both messages.
        unsafe {
            let mut message: libc::msghdr = std::mem::zeroed();
            (message.msg_iov, message.msg_iovlen) = (&mut part, 1);
            (message.msg_control, message.msg_controllen) = (control.as_mut_ptr().cast(), size_of_val(&control));
            let mut next = libc::CMSG_FIRSTHDR(&message);
            let mut used = 0;
            if bytes.len() > segment {
                used += put(next, libc::SOL_UDP, libc::UDP_SEGMENT, segment as u16);
                next = libc::CMSG_NXTHDR(&message, next);
            }
            if self.txtime {
                let wait = release.map_or(Duration::ZERO, |time| time.saturating_duration_since(Instant::now()));
                used += put(next, libc::SOL_SOCKET, libc::SO_TXTIME, monotonic_ns() + wait.as_nanos() as u64);
            }
            message.msg_controllen = used;
            match libc::sendmsg(self.socket.as_raw_fd(), &message, 0) {
                0.. => Ok(()),
                _ => Err(io::Error::last_os_error().into()),
            }
        }
    }
}

/// Writes a control message and returns how much room it takes.
///
/// # Safety
/// There is room for it at `header`.
unsafe fn put<T>(header: *mut libc::cmsghdr, level: i32, kind: i32, value: T) -> usize {
    let size = size_of_val(&value) as u32;
    (*header).cmsg_level = level;
    (*header).cmsg_type = kind;
    (*header).cmsg_len = libc::CMSG_LEN(size) as usize;
    libc::CMSG_DATA(header).cast::<T>().write_unaligned(value);
    libc::CMSG_SPACE(size) as usize
}

fn set<T>(socket: &UdpSocket, option: i32, value: &T) -> Outcome {
    // SAFETY: `value` lives through the call.
    let status = unsafe {
        let size = size_of_val(value) as u32;
        libc::setsockopt(socket.as_raw_fd(), libc::SOL_SOCKET, option, addr_of!(*value).cast(), size)
    };
    if status == 0 {
        Ok(())
    } else {
        Err(io::Error::last_os_error().into())
    }
}

fn monotonic_ns() -> u64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `time` lives through the call.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, addr_of_mut!(time)) };
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

/// Waits until a packet has come, or so long, to the nanosecond: timeouts of sockets count in ticks.
fn wait(socket: &UdpSocket, time: Duration) {
    let mut waiting = libc::pollfd { fd: socket.as_raw_fd(), events: libc::POLLIN, revents: 0 };
    let time = libc::timespec { tv_sec: time.as_secs() as i64, tv_nsec: time.subsec_nanos().into() };
    // SAFETY: both point to what lives through the call, and there is one descriptor.
    unsafe { libc::ppoll(&mut waiting, 1, &time, std::ptr::null()) };
}
