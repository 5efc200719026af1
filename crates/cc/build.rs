//! Compiles every cc/controls/NAME.c for this machine, and writes the table that `lib.rs` includes.

use std::env;
use std::fmt::Write;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::exit;

use anyhow::Result;

fn main() -> Result<()> {
    let sources = PathBuf::from(env::var("CARGO_MANIFEST_DIR")?).join("../../cc").canonicalize()?;
    let out = PathBuf::from(env::var("OUT_DIR")?);
    println!("cargo::rerun-if-changed={}", sources.display());

    let mut externs = String::new();
    let mut table = String::new();
    for name in controls(&sources)? {
        // One library each: a control's parameters have names that others have too, in sections of their own.
        let mut build = cc::Build::new();
        if env::var("PROFILE")? == "debug" {
            // Tests and the fuzzer stop where C leaves undefined what happens. Traps, since they need no runtime.
            build.flag("-fsanitize=undefined").flag("-fsanitize-undefined-trap-on-error");
        }
        let file = sources.join("controls").join(format!("{name}.c"));
        build
            .file(&file)
            .include(sources.join("hosts/program"))
            .define("CC_PARAM_SECTION", format!("\"cc_params_{name}\"").as_str())
            .warnings_into_errors(true)
            .extra_warnings(true)
            .flag("-std=gnu11");
        if let Err(failed) = build.try_compile(&name) {
            // What a build script says last is what cargo shows last, below more than a thousand lines of its own. An
            // error that is returned would have a backtrace below it, where the environment asks for those.
            eprintln!("{}", first_error(&build, &file).unwrap_or_else(|| failed.to_string()));
            exit(1);
        }
        writeln!(externs, "    static {name}_operations: abi::Operations;")?;
        writeln!(table, "    Control(&raw const {name}_operations),")?;
    }
    let text = format!("unsafe extern \"C\" {{\n{externs}}}\n\nstatic CONTROLS: &[Control] = &[\n{table}];\n");
    fs::write(out.join("controls.rs"), text)?;
    Ok(())
}

/// Compiles a file once more. Returns the first line in which the compiler finds an error.
fn first_error(build: &cc::Build, file: &Path) -> Option<String> {
    let mut command = build.try_get_compiler().ok()?.to_command();
    let said = command.arg("-fsyntax-only").arg(file).output().ok()?.stderr;
    String::from_utf8_lossy(&said).lines().find(|line| line.contains(" error: ")).map(str::to_owned)
}

fn controls(sources: &Path) -> Result<Vec<String>> {
    let mut names: Vec<String> = fs::read_dir(sources.join("controls"))?
        .filter_map(|entry| Some(entry.ok()?.file_name().to_str()?.strip_suffix(".c")?.to_owned()))
        .collect();
    names.sort();
    Ok(names)
}
