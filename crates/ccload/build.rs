//! Compiles every bpf/NAME.bpf.c, and writes the table that `objects.rs` includes: NAME and the compiled object.

use std::env;
use std::fmt::Write;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use libbpf_cargo::SkeletonBuilder;

const SUFFIX: &str = ".bpf.c";

fn main() -> Result<()> {
    let sources = Path::new(&env::var("CARGO_MANIFEST_DIR")?).join("../../bpf").canonicalize()?;
    let out = PathBuf::from(env::var("OUT_DIR")?);
    println!("cargo::rerun-if-changed={}", sources.display());

    let mut table = String::from("&[\n");
    for (name, source) in programs(&sources)? {
        let object = out.join(format!("{name}.bpf.o"));
        SkeletonBuilder::new()
            .source(&source)
            .obj(&object)
            .clang_args(clang_args())
            .build()
            .with_context(|| format!("cannot compile {} (is clang installed?)", source.display()))?;
        writeln!(table, "    ({name:?}, include_bytes!({:?})),", object.display().to_string())?;
    }
    table.push(']');
    fs::write(out.join("objects.rs"), table)?;
    Ok(())
}

fn programs(sources: &Path) -> Result<Vec<(String, PathBuf)>> {
    let mut found = Vec::new();
    for entry in fs::read_dir(sources)? {
        let path = entry?.path();
        println!("cargo::rerun-if-changed={}", path.display());
        if let Some(name) = path.file_name().and_then(|name| name.to_str()?.strip_suffix(SUFFIX)) {
            found.push((name.to_owned(), path.clone()));
        }
    }
    found.sort();
    Ok(found)
}

fn clang_args() -> Vec<String> {
    let arch = env::var("CARGO_CFG_TARGET_ARCH").unwrap_or_default();
    ["-Wall", "-Wextra", "-Wno-unused-parameter", "-Werror", "-mcpu=v3"]
        .map(String::from)
        .into_iter()
        // Debian keeps asm/types.h in a directory that clang does not search for the bpf target.
        .chain([format!("-idirafter/usr/include/{arch}-linux-gnu")])
        .collect()
}
