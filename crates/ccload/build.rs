//! Compiles as BPF every control of cc/controls, every policy of cc/beside_kernel_bbr and every shadow of cc/hosts/bpf,
//! and writes the table that `objects.rs` includes: the name of each and the compiled object.

use std::env;
use std::fmt::Write;
use std::fs;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::SystemTime;

use anyhow::{Context, Result};
use libbpf_cargo::SkeletonBuilder;

fn main() -> Result<()> {
    let cc = Path::new(&env::var("CARGO_MANIFEST_DIR")?).join("../../cc").canonicalize()?;
    let host = cc.join("hosts/bpf");
    let repository = cc.parent().context("cc/ is in the repository")?;
    let out = PathBuf::from(env::var("OUT_DIR")?);
    println!("cargo::rerun-if-changed={}", cc.display());

    let mut sources = programs(&host, ".bpf.c")?;
    let mut controls = programs(&cc.join("controls"), ".c")?;
    controls.extend(programs(&cc.join("beside_kernel_bbr"), ".c")?);
    for (name, control) in controls {
        // libbpf-cargo takes no other suffix.
        let source = out.join(format!("{name}.bpf.c"));
        fs::write(&source, format!("#include {:?}\n", control.display().to_string()))?;
        sources.push((name, source));
    }
    let others = other_builds(&out);
    let compile = |(name, source): &(String, PathBuf)| -> Result<()> {
        let object = out.join(format!("{name}.bpf.o"));
        let dependencies = object.with_extension("d");
        if is_current(&object, &cc, repository) {
            return Ok(());
        }
        if let Some(theirs) = compiled_by(&others, name, &cc, repository) {
            if fs::copy(theirs.with_extension("d"), &dependencies).and(fs::copy(theirs, &object)).is_ok() {
                return Ok(());
            }
        }
        let listing = [String::from("-MD"), format!("-MF{}", dependencies.display())];
        SkeletonBuilder::new()
            .source(source)
            .obj(&object)
            .clang_args(clang_args(&host, repository, &out).into_iter().chain(listing))
            .build()
            .with_context(|| format!("cannot compile {} (is clang installed?)", source.display()))
    };
    // On as many CPUs as there are.
    let cpus = thread::available_parallelism().map_or(1, |cpus| cpus.get());
    thread::scope(|scope| {
        let parts = sources.chunks(sources.len().div_ceil(cpus).max(1));
        let started: Vec<_> = parts.map(|part| scope.spawn(move || part.iter().try_for_each(compile))).collect();
        started.into_iter().try_for_each(|thread| thread.join().expect("a compilation has panicked"))
    })?;
    let mut table = String::from("&[\n");
    for (name, _) in sources {
        let object = out.join(format!("{name}.bpf.o"));
        writeln!(table, "    ({name:?}, include_bytes!({:?})),", object.display().to_string())?;
    }
    table.push(']');
    fs::write(out.join("objects.rs"), table)?;
    Ok(())
}

/// Says whether an object is newer than this script, than Cargo.lock, which decides whose headers of libbpf it includes,
/// and than every file of cc/ that clang says it was compiled from, so that a change in one control costs one
/// compilation, not twenty.
fn is_current(object: &Path, cc: &Path, repository: &Path) -> bool {
    let (Some(compiled), Ok(listing)) = (changed(object), fs::read_to_string(object.with_extension("d"))) else {
        return false;
    };
    let mut ours = listing.split_whitespace().map(PathBuf::from).filter(|file| file.starts_with(cc)).peekable();
    let more = ["crates/ccload/build.rs", "Cargo.lock"].map(|file| repository.join(file));
    // In a path with a space clang writes a backslash before it, so none of the names is found: then compile.
    ours.peek().is_some() && ours.chain(more).all(|file| changed(&file).is_some_and(|changed| changed < compiled))
}

/// Returns where cargo keeps what this script made for another profile, or for clippy.
fn other_builds(out: &Path) -> Vec<PathBuf> {
    let entries = |directory: &Path| fs::read_dir(directory).into_iter().flatten().flatten().map(|entry| entry.path());
    // target/PROFILE/build/PACKAGE-HASH/out
    let Some(target) = out.ancestors().nth(4) else { return Vec::new() };
    entries(target)
        .flat_map(|profile| entries(&profile.join("build")))
        .filter(|package| package.file_name().is_some_and(|name| name.to_string_lossy().starts_with("brobust-ccload-")))
        .map(|package| package.join("out"))
        .filter(|other| other != out)
        .collect()
}

/// Returns an object that another build has compiled, if it is current: it would be the same here, byte by byte. The
/// table is the last that is written: an object that is newer may be half a one, of a build that runs beside this.
fn compiled_by(others: &[PathBuf], name: &str, cc: &Path, repository: &Path) -> Option<PathBuf> {
    others.iter().find_map(|other| {
        let object = other.join(format!("{name}.bpf.o"));
        let is_whole = changed(&object)? <= changed(&other.join("objects.rs"))?;
        (is_whole && is_current(&object, cc, repository)).then_some(object)
    })
}

fn changed(file: &Path) -> Option<SystemTime> {
    fs::metadata(file).ok()?.modified().ok()
}

fn programs(sources: &Path, suffix: &str) -> Result<Vec<(String, PathBuf)>> {
    let mut found = Vec::new();
    for entry in fs::read_dir(sources)? {
        let path = entry?.path();
        if let Some(name) = path.file_name().and_then(|name| name.to_str()?.strip_suffix(suffix)) {
            found.push((name.to_owned(), path.clone()));
        }
    }
    found.sort();
    Ok(found)
}

fn clang_args(host: &Path, repository: &Path, out: &Path) -> Vec<String> {
    let arch = env::var("CARGO_CFG_TARGET_ARCH").unwrap_or_default();
    ["-Wall", "-Wextra", "-Wno-unused-parameter", "-Werror", "-mcpu=v3"]
        .map(String::from)
        .into_iter()
        // Debian keeps asm/types.h in directories that clang does not search for the bpf target: the second is that of a
        // compiler for another architecture.
        .chain([
            format!("-idirafter/usr/include/{arch}-linux-gnu"),
            format!("-idirafter/usr/{arch}-linux-gnu/include"),
            format!("-I{}", host.display()),
        ])
        // An object names the source of each instruction. Without the builder's directories it is the same everywhere.
        .chain(
            [(repository, "/brobust"), (out, "/brobust/generated")]
                .map(|(path, name)| format!("-ffile-prefix-map={}={name}", path.display())),
        )
        .collect()
}
