//! A bulk sender and its receiver on tquic: `send ADDRESS PORT SECONDS CONTROL GSO [qlog]` and `receive PORT`.
//!
//! tquic has no sockets: it hands over packets when they are to leave. Each goes out by a call of its own.

use std::cell::Cell;
use std::error::Error;
use std::io::{self, ErrorKind, Write};
use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::os::fd::AsRawFd;
use std::rc::Rc;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use bytes::Bytes;
use tquic::{
    Config, CongestionControlAlgorithm, Connection, Endpoint, PacketInfo, PacketSendHandler, TlsConfig,
    TransportHandler,
};

/// More than the largest path holds, so that no flow-control window bounds what congestion control allows.
const WINDOW_BYTES: u64 = 64 << 20;
/// A run fails if a program prints more than 16 MiB.
const MOST_QLOG_BYTES: usize = 15 << 20;
const FILES: (&str, &str) = ("/tmp/cert.pem", "/tmp/key.pem");
static BLOCK: [u8; 65536] = [0; 65536];

type Outcome = Result<(), Box<dyn Error>>;

fn main() -> Outcome {
    let words: Vec<String> = std::env::args().skip(1).collect();
    match words.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["send", address, port, seconds, control, _, ref rest @ ..] => {
            let to = SocketAddr::new(address.parse()?, port.parse()?);
            let qlog = rest.contains(&"qlog").then(Qlog::default);
            send(to, Duration::from_secs_f64(seconds.parse()?), control, qlog)
        }
        ["receive", port] => receive(port.parse()?),
        _ => Err("give: send ADDRESS PORT SECONDS CONTROL on|off [qlog], or: receive PORT".into()),
    }
}

fn send(to: SocketAddr, time: Duration, control: &str, qlog: Option<Qlog>) -> Outcome {
    let mut config = config()?;
    config.set_congestion_control_algorithm(match control {
        "bbr" => CongestionControlAlgorithm::Bbr,
        "bbr3" => CongestionControlAlgorithm::Bbr3,
        "cubic" => CongestionControlAlgorithm::Cubic,
        "copa" => CongestionControlAlgorithm::Copa,
        _ => return Err(format!("tquic has no {control}; it has bbr, bbr3, cubic and copa").into()),
    });
    config.set_tls_config(TlsConfig::new_client_config(vec![b"bulk".to_vec()], false)?);
    let socket = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0))?;
    socket.connect(to)?; // which decides its own address
    let end = Instant::now() + time;
    let written = Rc::new(Cell::new(0));
    let mut link = Link::new(config, false, socket, to, written.clone())?;
    let connection = link.endpoint.connect(link.near, to, Some("localhost"), None, None, None)?;
    if let (Some(qlog), Some(connection)) = (&qlog, link.endpoint.conn_get_mut(connection)) {
        connection.set_qlog(Box::new(qlog.clone()), "tquic".into(), String::new());
    }
    while Instant::now() < end {
        link.turn(end)?;
    }
    println!("written {} bytes", written.get());
    if let Some(connection) = link.endpoint.conn_get_mut(connection) {
        let stats = connection.stats();
        println!("sent {} packets, lost {}", stats.sent_count, stats.lost_count);
        qlog.map_or(Ok(()), |one| one.print())?;
        connection.close(true, 0, b"done")?;
    }
    Ok(link.endpoint.process_connections()?)
}

fn receive(port: u16) -> Outcome {
    let made = rcgen::generate_simple_self_signed(["localhost".to_string()])?;
    std::fs::write(FILES.0, made.cert.pem())?;
    std::fs::write(FILES.1, made.key_pair.serialize_pem())?;
    let mut config = config()?;
    config.set_tls_config(TlsConfig::new_server_config(FILES.0, FILES.1, vec![b"bulk".to_vec()], false)?);
    let socket = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, port))?;
    let (_, from) = socket.peek_from(&mut [0; 1])?;
    let mut link = Link::new(config, true, socket, from, Rc::new(Cell::new(0)))?;
    loop {
        link.turn(Instant::now() + Duration::from_secs(60))?;
    }
}

fn config() -> tquic::Result<Config> {
    let mut config = Config::new()?;
    config.set_initial_max_data(WINDOW_BYTES);
    config.set_initial_max_stream_data_uni(WINDOW_BYTES);
    config.set_max_connection_window(WINDOW_BYTES);
    config.set_max_stream_window(WINDOW_BYTES);
    Ok(config)
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
    socket: Rc<UdpSocket>,
    near: SocketAddr,
    far: SocketAddr,
    endpoint: Endpoint,
}

impl Link {
    fn new(
        config: Config,
        server: bool,
        socket: UdpSocket,
        far: SocketAddr,
        bytes: Rc<Cell<usize>>,
    ) -> Result<Link, Box<dyn Error>> {
        socket.set_nonblocking(true)?;
        let near = socket.local_addr()?;
        let socket = Rc::new(socket);
        let sender = Rc::new(Sender { socket: socket.clone(), connected: !server });
        let endpoint = Endpoint::new(Box::new(config), server, Box::new(Bulk(bytes)), sender);
        Ok(Link { socket, near, far, endpoint })
    }

    /// Sends what is due, waits until something happens, but not beyond `end`, and receives what has come.
    fn turn(&mut self, end: Instant) -> Outcome {
        self.endpoint.process_connections()?;
        let left = end.saturating_duration_since(Instant::now());
        wait(&self.socket, self.endpoint.timeout().map_or(left, |time| time.min(left)));
        let (src, dst) = (self.far, self.near);
        let mut packet = [0; 65536];
        loop {
            match self.socket.recv(&mut packet) {
                Ok(size) => {
                    let info = PacketInfo { src, dst, time: Instant::now() };
                    self.endpoint.recv(&mut packet[..size], &info)?;
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(error) => return Err(error.into()),
            }
        }
        self.endpoint.on_timeout(Instant::now());
        Ok(())
    }
}

/// The application at both ends: it writes what the connection takes, and counts it; it reads what has come.
struct Bulk(Rc<Cell<usize>>);

impl Bulk {
    fn write(&self, connection: &mut Connection, stream: u64) {
        while let Ok(bytes @ 1..) = connection.stream_write(stream, Bytes::from_static(&BLOCK), false) {
            self.0.set(self.0.get() + bytes);
        }
        let _ = connection.stream_want_write(stream, true);
    }
}

impl TransportHandler for Bulk {
    fn on_conn_created(&mut self, _: &mut Connection) {}

    fn on_conn_established(&mut self, connection: &mut Connection) {
        if !connection.is_server() {
            if let Ok(stream) = connection.stream_uni_new(0, false) {
                self.write(connection, stream);
            }
        }
    }

    fn on_conn_closed(&mut self, _: &mut Connection) {}

    fn on_stream_created(&mut self, _: &mut Connection, _: u64) {}

    fn on_stream_readable(&mut self, connection: &mut Connection, stream: u64) {
        let mut block = [0; 65536];
        while let Ok((1.., _)) = connection.stream_read(stream, &mut block) {}
    }

    fn on_stream_writable(&mut self, connection: &mut Connection, stream: u64) {
        self.write(connection, stream);
    }

    fn on_stream_closed(&mut self, _: &mut Connection, _: u64) {}

    fn on_new_token(&mut self, _: &mut Connection, _: Vec<u8>) {}
}

struct Sender {
    socket: Rc<UdpSocket>,
    connected: bool,
}

impl PacketSendHandler for Sender {
    fn on_packets_send(&self, packets: &[(Vec<u8>, PacketInfo)]) -> tquic::Result<usize> {
        for (sent, (packet, info)) in packets.iter().enumerate() {
            match if self.connected { self.socket.send(packet) } else { self.socket.send_to(packet, info.dst) } {
                Ok(_) => (),
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(sent),
                Err(error) => return Err(tquic::Error::IoError(error.to_string())),
            }
        }
        Ok(packets.len())
    }
}

/// Waits until a packet has come, or so long, to the nanosecond: timeouts of sockets count in ticks.
fn wait(socket: &UdpSocket, time: Duration) {
    let mut waiting = libc::pollfd { fd: socket.as_raw_fd(), events: libc::POLLIN, revents: 0 };
    let time = libc::timespec { tv_sec: time.as_secs() as i64, tv_nsec: time.subsec_nanos().into() };
    // SAFETY: both point to what lives through the call, and there is one descriptor.
    unsafe { libc::ppoll(&mut waiting, 1, &time, std::ptr::null()) };
}
