//! A bulk sender and its receiver on s2n-quic: `send ADDRESS PORT SECONDS CONTROL GSO [RULE]` and `receive PORT`.
//! RULE is for a build with our pacer (docs/pacer.md).

use std::error::Error;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use s2n_quic::client::Connect;
use s2n_quic::provider::congestion_controller::{Bbr, Cubic};
use s2n_quic::provider::event::{events, ConnectionInfo, ConnectionMeta, Subscriber};
use s2n_quic::provider::{io, limits};
use s2n_quic::{Client, Server};

/// More than the largest path holds, so that no flow-control window bounds what congestion control allows.
const WINDOW_BYTES: u64 = 64 << 20;
const SEND_BUFFER_BYTES: u32 = 64 << 20;
const BLOCK_BYTES: usize = 65536;

// The sender has to know the receiver's certificate: s2n-quic trusts no other. Everybody knows the key, so that the same
// run sends the same packets wherever it is built.
const CERTIFICATE: &str = include_str!("cert.pem");
const KEY: &str = include_str!("key.pem");

type Outcome = Result<(), Box<dyn Error>>;

#[tokio::main(flavor = "current_thread")]
async fn main() -> Outcome {
    let words: Vec<String> = std::env::args().skip(1).collect();
    match words.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["send", address, port, seconds, control, gso, ref rule @ ..] => {
            if let [rule] = rule {
                std::env::set_var("BROBUST_PACER", rule);
            }
            let to = SocketAddr::new(address.parse()?, port.parse()?);
            let client = client(control, gso == "on")?;
            send(client, to, Duration::from_secs_f64(seconds.parse()?)).await
        }
        ["receive", port] => receive(port.parse()?).await,
        _ => Err("give: send ADDRESS PORT SECONDS CONTROL on|off, or: receive PORT".into()),
    }
}

fn client(control: &str, gso: bool) -> Result<Client, Box<dyn Error>> {
    let io = io::Default::builder().with_receive_address((Ipv4Addr::UNSPECIFIED, 0).into())?.with_gso(gso)?.build()?;
    let limits = limits::Limits::new().with_max_send_buffer_size(SEND_BUFFER_BYTES)?;
    let client = Client::builder().with_tls(CERTIFICATE)?.with_io(io)?.with_limits(limits)?.with_event(Counts)?;
    match control {
        "bbr" => Ok(client.with_congestion_controller(Bbr::default())?.start()?),
        "cubic" => Ok(client.with_congestion_controller(Cubic::default())?.start()?),
        _ => Err(format!("s2n-quic has no {control}; it has bbr and cubic").into()),
    }
}

async fn send(client: Client, to: SocketAddr, time: Duration) -> Outcome {
    let begin = Instant::now();
    let mut connection = client.connect(Connect::new(to).with_server_name("localhost")).await?;
    let mut stream = connection.open_send_stream().await?;
    let mut written = 0;
    while begin.elapsed() < time {
        let left = time - begin.elapsed();
        match tokio::time::timeout(left, stream.send(vec![0; BLOCK_BYTES].into())).await {
            Ok(done) => done?,
            Err(_) => break,
        }
        written += BLOCK_BYTES;
    }
    let [sent, lost] = [&SENT, &LOST].map(|count| count.load(Ordering::Relaxed));
    println!("written {written} bytes, sent {sent} packets, lost {lost}");
    connection.close(0u32.into());
    Ok(())
}

static SENT: AtomicU64 = AtomicU64::new(0);
static LOST: AtomicU64 = AtomicU64::new(0);

/// Counts packets, as the stack sees them.
struct Counts;

impl Subscriber for Counts {
    type ConnectionContext = ();

    fn create_connection_context(&mut self, _: &ConnectionMeta, _: &ConnectionInfo) {}

    fn on_packet_sent(&mut self, _: &mut (), _: &ConnectionMeta, _: &events::PacketSent) {
        SENT.fetch_add(1, Ordering::Relaxed);
    }

    fn on_packet_lost(&mut self, _: &mut (), _: &ConnectionMeta, _: &events::PacketLost) {
        LOST.fetch_add(1, Ordering::Relaxed);
    }
}

async fn receive(port: u16) -> Outcome {
    let io = io::Default::builder().with_receive_address((Ipv4Addr::UNSPECIFIED, port).into())?.build()?;
    let limits = limits::Limits::new().with_data_window(WINDOW_BYTES)?.with_unidirectional_data_window(WINDOW_BYTES)?;
    let mut server = Server::builder().with_tls((CERTIFICATE, KEY))?.with_io(io)?.with_limits(limits)?.start()?;
    let mut connection = server.accept().await.ok_or("closed")?;
    let mut stream = connection.accept_receive_stream().await?.ok_or("closed")?;
    let mut received = 0;
    while let Ok(Some(chunk)) = stream.receive().await {
        received += chunk.len();
    }
    println!("received {received} bytes");
    Ok(())
}
