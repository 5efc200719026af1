//! Copies cc/, kernel/, examples/quic/ and crates/pacer/src to where pyproject.toml takes them into a wheel: kernels,
//! modules and QUIC programs are built from them, and a wheel has no repository beside it
//! (python/brobust/kernels/our_files.py).

use std::env;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

fn main() -> io::Result<()> {
    let variable = |name| env::var_os(name).map(PathBuf::from).ok_or_else(|| io::Error::other(name));
    let repository = variable("CARGO_MANIFEST_DIR")?.join("../..").canonicalize()?;
    let copies = variable("OUT_DIR")?.join("sources");
    if copies.exists() {
        fs::remove_dir_all(&copies)?; // files that are gone
    }
    for name in ["cc", "kernel", "examples/quic", "crates/pacer/src"] {
        println!("cargo::rerun-if-changed={}", repository.join(name).display());
        copy(&repository.join(name), &copies.join(name))?;
    }
    Ok(())
}

fn copy(from: &Path, to: &Path) -> io::Result<()> {
    fs::create_dir_all(to)?;
    for entry in fs::read_dir(from)? {
        let entry = entry?;
        let there = to.join(entry.file_name());
        if entry.file_type()?.is_dir() {
            copy(&entry.path(), &there)?;
        } else {
            fs::copy(entry.path(), there)?;
        }
    }
    Ok(())
}
