//! Compiles the recorder's BPF program and generates its Rust skeleton.
use std::env;
use std::path::PathBuf;

use libbpf_cargo::SkeletonBuilder;

const SOURCE: &str = "src/recorder.bpf.c";
const HEADER: &str = "src/recorder.bpf.h";

fn main() {
    let out_dir = env::var_os("OUT_DIR").expect("cargo sets OUT_DIR for build scripts");
    let here = env::var("CARGO_MANIFEST_DIR").expect("cargo sets CARGO_MANIFEST_DIR for build scripts");
    // The object names the source of each instruction. Without the builder's directory it is the same everywhere.
    let map = format!("-ffile-prefix-map={here}=/brobust/crates/contention");
    let skeleton = PathBuf::from(out_dir).join("recorder.skel.rs");
    SkeletonBuilder::new()
        .source(SOURCE)
        .clang_args(["-Wall", "-Werror", &map])
        .build_and_generate(skeleton)
        .expect("compiling src/recorder.bpf.c needs clang 14 or later with the bpf target");
    println!("cargo:rerun-if-changed={SOURCE}");
    println!("cargo:rerun-if-changed={HEADER}");
}
