//! Compiles bulk.c against what ngtcp2-sys and aws-lc-sys have built, and gives it the receiver's certificate. Everybody
//! knows its key, so that the same run sends the same packets wherever it is built.

use std::{env, error::Error, fs, path::Path};

fn main() -> Result<(), Box<dyn Error>> {
    let directory = env::var("OUT_DIR")?;
    let of_aws_lc = env::vars().find(|(name, _)| name.starts_with("DEP_AWS_LC_") && name.ends_with("_INCLUDE"));
    let (certificate, key) = (include_str!("src/cert.pem"), include_str!("src/key.pem"));
    let header = format!("#define CERTIFICATE {certificate:?}\n#define KEY {key:?}\n");
    fs::write(Path::new(&directory).join("certificate.h"), header)?;
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
