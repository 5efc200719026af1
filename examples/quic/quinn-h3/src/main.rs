//! A server of HTTP/3 on quinn and h3: `serve PORT CONTROL BYTES [RULE]` answers every request with that many bytes.
//! RULE is for a build with our pacer (docs/pacer.md).

use std::error::Error;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;

use bytes::Bytes;
use h3::server::Connection;
use http::Response;
use quinn::congestion::{BbrConfig, ControllerFactory, CubicConfig};
use quinn::crypto::rustls::QuicServerConfig;
use quinn::{Endpoint, Incoming, ServerConfig, TransportConfig};
use rustls::pki_types::PrivatePkcs8KeyDer;

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    match words.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["serve", port, control, bytes, ref rest @ ..] if rest.len() < 2 => {
            if let Some(rule) = rest.first() {
                std::env::set_var("BROBUST_PACER", rule);
            }
            let on = (Ipv4Addr::UNSPECIFIED, port.parse()?).into();
            serve(on, control, vec![0; bytes.parse()?].into()).await
        }
        _ => Err("give: serve PORT CONTROL BYTES [RULE]".into()),
    }
}

async fn serve(on: SocketAddr, control: &str, body: Bytes) -> Result<(), Box<dyn Error>> {
    let made = rcgen::generate_simple_self_signed(["localhost".to_string()])?;
    let key = PrivatePkcs8KeyDer::from(made.key_pair.serialize_der());
    let mut tls = rustls::ServerConfig::builder()
        .with_no_client_auth()
        .with_single_cert(vec![made.cert.der().clone()], key.into())?;
    tls.alpn_protocols = vec![b"h3".to_vec()];
    let mut transport = TransportConfig::default();
    transport.congestion_controller_factory(factory(control)?);
    let mut config = ServerConfig::with_crypto(Arc::new(QuicServerConfig::try_from(tls)?));
    config.transport_config(Arc::new(transport));
    let endpoint = Endpoint::server(config, on)?;
    while let Some(visitor) = endpoint.accept().await {
        let body = body.clone();
        tokio::spawn(async move {
            if let Err(error) = answer(visitor, body).await {
                eprintln!("brobust-quinn-h3: {error}");
            }
        });
    }
    Ok(())
}

/// Answers a visitor's requests, all at once, until it leaves.
async fn answer(visitor: Incoming, body: Bytes) -> Result<(), Box<dyn Error>> {
    let mut connection: Connection<_, Bytes> = Connection::new(h3_quinn::Connection::new(visitor.await?)).await?;
    loop {
        match connection.accept().await {
            Ok(Some(asked)) => {
                let body = body.clone();
                tokio::spawn(async move {
                    // What fails here is that the visitor has left.
                    let Ok((_, mut stream)) = asked.resolve_request().await else { return };
                    let head = Response::builder().header("content-length", body.len()).body(());
                    let Ok(head) = head else { return };
                    if stream.send_response(head).await.is_ok() && stream.send_data(body).await.is_ok() {
                        let _ = stream.finish().await;
                    }
                });
            }
            Ok(None) => return Ok(()),
            Err(error) if error.is_h3_no_error() => return Ok(()),
            Err(error) => return Err(error.into()),
        }
    }
}

fn factory(control: &str) -> Result<Arc<dyn ControllerFactory + Send + Sync>, String> {
    match control {
        "bbr" => Ok(Arc::new(BbrConfig::default())),
        "cubic" => Ok(Arc::new(CubicConfig::default())),
        _ => Err(format!("quinn-h3 has no {control}; it has bbr and cubic")),
    }
}
