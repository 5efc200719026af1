//! Compiles bulk.c against what ngtcp2-sys and aws-lc-sys have built, and makes the receiver's certificate.

use std::{env, error::Error, fs, path::Path};

fn main() -> Result<(), Box<dyn Error>> {
    let directory = env::var("OUT_DIR")?;
    let of_aws_lc = env::vars().find(|(name, _)| name.starts_with("DEP_AWS_LC_") && name.ends_with("_INCLUDE"));
    let mut parameters = rcgen::CertificateParams::new(["localhost".to_string()])?;
    parameters.not_before = rcgen::date_time_ymd(1970, 1, 1); // valid at any date of virtual time
    let key = rcgen::KeyPair::generate()?;
    let made = [
        format!("#define CERTIFICATE {:?}", parameters.self_signed(&key)?.pem()),
        format!("#define KEY {:?}", key.serialize_pem()),
    ];
    fs::write(Path::new(&directory).join("certificate.h"), made.join("\n") + "\n")?;
    cc::Build::new()
        .file("src/bulk.c")
        .include(&directory)
        .include(env::var("DEP_NGTCP2_INCLUDE")?)
        .include(of_aws_lc.ok_or("aws-lc-sys names no headers")?.1)
        .compile("bulk");
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-changed=src/bulk.c");
    Ok(())
}
