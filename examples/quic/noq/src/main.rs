//! A bulk sender and its receiver on noq: `send ADDRESS PORT SECONDS CONTROL GSO` and `receive PORT`.

use std::error::Error;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::{Duration, Instant};

use noq::congestion::{Bbr3Config, ControllerFactory, CubicConfig, NewRenoConfig};
use noq::crypto::rustls::QuicClientConfig;
use noq::{ClientConfig, Endpoint, PathId, ServerConfig, TransportConfig, VarInt};
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::pki_types::{CertificateDer, PrivatePkcs8KeyDer, ServerName, UnixTime};
use rustls::{DigitallySignedStruct, SignatureScheme};

/// More than the largest path holds, so that no flow-control window bounds what congestion control allows.
const WINDOW_BYTES: u32 = 64 << 20;

type Outcome = Result<(), Box<dyn Error>>;

#[tokio::main(flavor = "current_thread")]
async fn main() -> Outcome {
    let words: Vec<String> = std::env::args().skip(1).collect();
    match words.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["send", address, port, seconds, control, gso] => {
            let to = SocketAddr::new(address.parse()?, port.parse()?);
            send(to, Duration::from_secs_f64(seconds.parse()?), control, gso == "on").await
        }
        ["receive", port] => receive(port.parse()?).await,
        _ => Err("give: send ADDRESS PORT SECONDS CONTROL on|off, or: receive PORT".into()),
    }
}

async fn send(to: SocketAddr, time: Duration, control: &str, gso: bool) -> Outcome {
    let mut transport = TransportConfig::default();
    transport
        .congestion_controller_factory(factory(control)?)
        .send_window(WINDOW_BYTES.into())
        .enable_segmentation_offload(gso);
    let tls = rustls::ClientConfig::builder()
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(AnyServer))
        .with_no_client_auth();
    let mut config = ClientConfig::new(Arc::new(QuicClientConfig::try_from(tls)?));
    config.transport_config(Arc::new(transport));
    let endpoint = Endpoint::client((Ipv4Addr::UNSPECIFIED, 0).into())?;
    endpoint.set_default_client_config(config);
    let begin = Instant::now();
    let connection = endpoint.connect(to, "localhost")?.await?;
    let mut stream = connection.open_uni().await?;
    let block = [0; 65536];
    let mut written = 0;
    while begin.elapsed() < time {
        let left = time - begin.elapsed();
        match tokio::time::timeout(left, stream.write(&block)).await {
            Ok(bytes) => written += bytes?,
            Err(_) => break,
        }
    }
    let (all, path) = (connection.stats(), connection.path_stats(PathId::ZERO).unwrap_or_default());
    println!(
        "written {written} bytes, sent {} packets, lost {}, cwnd {} bytes, rtt {} us, mtu {}",
        all.sent_packets,
        all.lost_packets,
        path.cwnd,
        path.rtt.as_micros(),
        path.current_mtu
    );
    connection.close(0u32.into(), b"done");
    endpoint.wait_idle().await;
    Ok(())
}

fn factory(control: &str) -> Result<Arc<dyn ControllerFactory + Send + Sync>, String> {
    match control {
        "bbr3" => Ok(Arc::new(Bbr3Config::default())),
        "cubic" => Ok(Arc::new(CubicConfig::default())),
        "reno" => Ok(Arc::new(NewRenoConfig::default())),
        _ => Err(format!("noq has no {control}; it has bbr3, cubic and reno")),
    }
}

async fn receive(port: u16) -> Outcome {
    let made = rcgen::generate_simple_self_signed(["localhost".to_string()])?;
    let key = PrivatePkcs8KeyDer::from(made.key_pair.serialize_der());
    let mut config = ServerConfig::with_single_cert(vec![made.cert.der().clone()], key.into())?;
    let mut transport = TransportConfig::default();
    transport.receive_window(VarInt::from_u32(WINDOW_BYTES)).stream_receive_window(VarInt::from_u32(WINDOW_BYTES));
    config.transport_config(Arc::new(transport));
    let endpoint = Endpoint::server(config, (Ipv4Addr::UNSPECIFIED, port).into())?;
    let connection = endpoint.accept().await.ok_or("closed")?.await?;
    let mut stream = connection.accept_uni().await?;
    let mut received = 0;
    while let Ok(Some(chunk)) = stream.read_chunk(usize::MAX).await {
        received += chunk.len();
    }
    println!("received {received} bytes");
    Ok(())
}

/// Who the server is does not matter here.
#[derive(Debug)]
struct AnyServer;

impl ServerCertVerifier for AnyServer {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn verify_tls13_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        vec![SignatureScheme::ECDSA_NISTP256_SHA256]
    }
}
