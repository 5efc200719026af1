//! Declares structs of C in Rust, and in tests compares each with what clang makes of it, field by field.
//!
//! The names of the fields come from clang's layouts, their offsets and sizes from a program that it builds. So a field
//! that is added, removed, renamed, moved or swapped with another on one side fails the test, also where the size of the
//! struct stays the same. The Rust side cannot leave a field out: then it does not compile.
//!
//! `headers` says where each shared header is.

mod compiler;
pub mod headers;
mod parse;

pub use compiler::Header;

/// A field of a struct: where it begins, and how many bytes it has.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Field {
    pub offset: usize,
    pub size: usize,
    pub name: String,
}

impl Field {
    pub fn new(name: &str, offset: usize, size: usize) -> Field {
        Field { offset, size, name: name.to_owned() }
    }
}

/// Returns the size of the field that the closure borrows.
pub fn size_of_field<T, U>(_: impl Fn(&T) -> &U) -> usize {
    size_of::<U>()
}

/// Asserts that a struct has the same fields at the same offsets, and the same size, in C and in Rust.
///
/// `assert_same_layout!(headers::CC, "cc_sample", Sample { interval_us, rtt_us, ... });`
///
/// The list has to name every field of the Rust struct, or it does not compile.
#[macro_export]
macro_rules! assert_same_layout {
    ($header:expr, $structure:literal, $type:ident { $($field:ident),+ $(,)? }) => {{
        let _ = |every_field: &$type| {
            let $type { $($field: _),+ } = every_field;
        };
        let ours = vec![$($crate::Field::new(
            stringify!($field),
            ::std::mem::offset_of!($type, $field),
            $crate::size_of_field(|it: &$type| &it.$field),
        )),+];
        $crate::compare(&$header, $structure, ours, ::std::mem::size_of::<$type>());
    }};
}

/// Declares structs of C, and the test that compares each with C, field by field.
///
/// `structs_of_c! { struct Sample = "cc_sample" of CC { interval_us: i64, ... } }` is a public struct with public fields
/// and the layout of struct cc_sample in the header that [`headers::CC`] names.
#[macro_export]
macro_rules! structs_of_c {
    ($($(#[$about:meta])* struct $name:ident = $in_c:literal of $header:ident { $($field:ident: $type:ty,)* })*) => {
        $(#[repr(C)]
        $(#[$about])*
        pub struct $name {
            $(pub $field: $type,)*
        })*

        #[cfg(test)]
        #[test]
        fn every_field_is_where_c_has_it() {
            $($crate::assert_same_layout!($crate::headers::$header, $in_c, $name { $($field),* });)*
        }
    };
}

/// Panics with the first difference between the fields of a struct in Rust and those of the C header.
pub fn compare(header: &Header, structure: &str, mut ours: Vec<Field>, our_size: usize) {
    let mut theirs = header.fields(structure);
    ours.sort();
    theirs.sort();
    for (ours, theirs) in ours.iter().zip(&theirs) {
        assert_eq!(ours, theirs, "struct {structure}: Rust's field on the left, C's on the right");
    }
    assert_eq!(ours.len(), theirs.len(), "struct {structure}: Rust has {ours:?}, C has {theirs:?}");
    assert_eq!(our_size, header.size(structure), "size of struct {structure}: Rust's on the left, C's on the right");
}
