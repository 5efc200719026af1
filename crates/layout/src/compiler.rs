//! Asks clang.

use std::ffi::OsStr;
use std::fmt::Write as _;
use std::io::Write as _;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};

use crate::{parse, Field};

/// C code that includes a header, and the compiler's arguments for it.
pub struct Header {
    pub code: &'static str,
    pub arguments: &'static [&'static str],
}

/// Counts the programs that this process has compiled, to name their files.
static PROGRAMS: AtomicU32 = AtomicU32::new(0);

impl Header {
    /// Returns the fields of a struct in the order in which the header has them.
    pub fn fields(&self, structure: &str) -> Vec<Field> {
        let layouts = ["-fsyntax-only", "-Xclang", "-fdump-record-layouts-complete"];
        let names = parse::field_names(&self.compile(&layouts, self.code), structure);
        let ask = |name: &String| {
            [
                format!("__builtin_offsetof(struct {structure}, {name})"),
                format!("sizeof(((struct {structure} *)0)->{name})"),
            ]
        };
        let values = self.values(&names.iter().flat_map(ask).collect::<Vec<_>>());
        let fields = names.iter().zip(values.chunks(2));
        fields.map(|(name, pair)| Field::new(name, pair[0] as usize, pair[1] as usize)).collect()
    }

    /// Returns the size of a struct in bytes.
    pub fn size(&self, structure: &str) -> usize {
        self.values(&[format!("sizeof(struct {structure})")])[0] as usize
    }

    /// Returns the names of an enum and their numbers, in the order in which the header has them.
    pub fn enumerators(&self, name: &str) -> Vec<(String, u64)> {
        // Without comments and macros.
        let names = parse::enumerator_names(&self.compile(&["-E", "-P"], self.code), name);
        let values = self.values(&names);
        names.into_iter().zip(values).collect()
    }

    /// Returns a struct's bytes in which each field holds its place in `fields`, counted from 1, and all others are 0.
    pub fn numbered(&self, structure: &str, fields: &[&str]) -> Vec<u8> {
        let known = self.fields(structure);
        let mut bytes = vec![0; self.size(structure)];
        for (number, name) in (1_u64..).zip(fields) {
            let Some(field) = known.iter().find(|field| field.name == *name) else {
                panic!("struct {structure} has no field {name}; it has {known:?}")
            };
            let value = match field.size {
                1 => vec![number as u8],
                2 => (number as u16).to_ne_bytes().to_vec(),
                4 => (number as u32).to_ne_bytes().to_vec(),
                _ => number.to_ne_bytes().to_vec(),
            };
            bytes[field.offset..field.offset + value.len()].copy_from_slice(&value);
        }
        bytes
    }

    /// Returns the values of expressions.
    pub fn values(&self, expressions: &[impl AsRef<str>]) -> Vec<u64> {
        let mut source = format!("{}\n#include <stdio.h>\nint main(void)\n{{\n", self.code);
        for expression in expressions {
            writeln!(source, "\tprintf(\"%llu\\n\", (unsigned long long)({}));", expression.as_ref()).unwrap();
        }
        source.push_str("}\n");
        let number = PROGRAMS.fetch_add(1, Ordering::Relaxed);
        let program = std::env::temp_dir().join(format!("brobust-layout-{}-{number}", std::process::id()));
        self.compile(&["-o".as_ref(), program.as_os_str()], &source);
        let output = Command::new(&program).output().unwrap();
        std::fs::remove_file(&program).unwrap();
        String::from_utf8(output.stdout).unwrap().lines().map(|line| line.parse().unwrap()).collect()
    }

    fn compile(&self, arguments: &[impl AsRef<OsStr>], source: &str) -> String {
        let mut compiling = Command::new("clang")
            .args(["-std=gnu11", "-x", "c", "-"])
            .args(arguments)
            .args(self.arguments)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("clang is installed");
        compiling.stdin.take().unwrap().write_all(source.as_bytes()).unwrap();
        let output = compiling.wait_with_output().unwrap();
        assert!(output.status.success(), "clang refuses\n{source}");
        String::from_utf8(output.stdout).unwrap()
    }
}
