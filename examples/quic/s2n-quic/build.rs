//! Makes the receiver's certificate, which the sender has to know: s2n-quic trusts no other.

use std::{env, error::Error, fs, path::Path};

fn main() -> Result<(), Box<dyn Error>> {
    let mut parameters = rcgen::CertificateParams::new(["localhost".to_string()])?;
    parameters.not_before = rcgen::date_time_ymd(1970, 1, 1); // valid at any date of virtual time
    let key = rcgen::KeyPair::generate()?;
    let directory = env::var("OUT_DIR")?;
    fs::write(Path::new(&directory).join("cert.pem"), parameters.self_signed(&key)?.pem())?;
    fs::write(Path::new(&directory).join("key.pem"), key.serialize_pem())?;
    println!("cargo::rerun-if-changed=build.rs");
    Ok(())
}
