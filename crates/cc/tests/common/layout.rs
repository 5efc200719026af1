//! For tests of a struct that stands in C and in Rust: what the C compiler makes of it.

use std::fmt::Write as _;
use std::io::Write as _;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};

/// C code that defines what is asked for, and the compiler's arguments for it.
pub struct C<'a> {
    pub code: &'a str,
    pub arguments: &'a [&'a str],
}

impl C<'_> {
    /// Values of expressions.
    pub fn values(&self, expressions: &[String]) -> Vec<u64> {
        let mut source = format!("{}\n#include <stddef.h>\n#include <stdio.h>\nint main(void)\n{{\n", self.code);
        for expression in expressions {
            writeln!(source, "\tprintf(\"%llu\\n\", (unsigned long long)({expression}));").unwrap();
        }
        source.push_str("}\n");
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let program = std::env::temp_dir().join(format!("brobust-layout-{}-{number}", std::process::id()));
        let compiler = std::env::var("CC").unwrap_or_else(|_| "cc".into());
        let mut compiling = Command::new(compiler)
            .args(["-std=gnu11", "-x", "c", "-", "-o"])
            .arg(&program)
            .args(self.arguments)
            .stdin(Stdio::piped())
            .spawn()
            .expect("there is a C compiler");
        compiling.stdin.take().unwrap().write_all(source.as_bytes()).unwrap();
        assert!(compiling.wait().unwrap().success(), "{source}");
        let output = Command::new(&program).output().unwrap();
        std::fs::remove_file(&program).unwrap();
        String::from_utf8(output.stdout).unwrap().lines().map(|line| line.parse().unwrap()).collect()
    }

    /// Of each field of a structure: offset and size.
    pub fn fields(&self, structure: &str, fields: &[&str]) -> Vec<(usize, usize)> {
        let ask = |field: &&str| {
            let of_null = format!("sizeof(((struct {structure} *)0)->{field})");
            [format!("offsetof(struct {structure}, {field})"), of_null]
        };
        let found = self.values(&fields.iter().flat_map(ask).collect::<Vec<_>>());
        found.chunks(2).map(|pair| (pair[0] as usize, pair[1] as usize)).collect()
    }
}

/// Programs of this process so far.
static NUMBER: AtomicU32 = AtomicU32::new(0);

#[allow(dead_code)] // not all who include this file compare structs
pub fn size_of_field<T, U>(_: impl Fn(&T) -> &U) -> usize {
    size_of::<U>()
}

/// Asserts that a struct is the same in C and in Rust. All fields have to be named, or it does not compile.
#[allow(unused_macros)]
macro_rules! assert_same_layout {
    ($c:expr, $structure:literal, $type:ident, [$($field:ident),+ $(,)?]) => {{
        let _ = |all: &$type| {
            let $type { $($field: _),+ } = all;
        };
        let names = [$(stringify!($field)),+];
        let ours = [$((std::mem::offset_of!($type, $field), layout::size_of_field(|it: &$type| &it.$field))),+];
        for ((name, ours), theirs) in names.iter().zip(ours).zip($c.fields($structure, &names)) {
            assert_eq!(ours, theirs, "offset and size of {}.{name}: ours, C's", $structure);
        }
        let size = $c.values(&[format!("sizeof(struct {})", $structure)]);
        assert_eq!(size, [std::mem::size_of::<$type>() as u64], "size of {}: C's, ours", $structure);
    }};
}
#[allow(unused_imports)]
pub(crate) use assert_same_layout;
