//! That a difference between C and Rust is found: the checks of the real structs would be worth nothing otherwise.

use brobust_layout::{assert_same_layout, compare, Field, Header};

const C: Header = Header {
    code: "struct pair { unsigned one; unsigned other; }; enum kind { PAIR_ONE, PAIR_OTHER = 5, };",
    arguments: &[],
};

#[repr(C)]
struct Pair {
    one: u32,
    other: u32,
}

#[repr(C)]
struct Swapped {
    other: u32,
    one: u32,
}

#[repr(C)]
struct Longer {
    one: u32,
    other: u32,
    third: u32,
}

const THING: Header = Header {
    code: "
        struct other_thing { int x; };
        struct thing {
            unsigned long long a, b[4U << 20][2];
            unsigned char low_bits : 4, high_bits : 4;
            const char *name;
            struct other_thing in, *out;
            void (*call)(struct thing *, int);
            union { unsigned bytes; struct { short low, high; }; };
            struct { int inner; } named;
        };
    ",
    arguments: &[],
};

#[test]
fn every_field_is_found_in_its_order() {
    let names: Vec<String> = THING.fields("thing").into_iter().map(|field| field.name).collect();
    assert_eq!(names, ["a", "b", "name", "in", "out", "call", "bytes", "low", "high", "named"]);
}

#[test]
fn the_same_struct_passes() {
    assert_same_layout!(C, "pair", Pair { one, other });
}

#[test]
#[should_panic(expected = "struct pair")]
fn two_fields_of_the_same_size_that_are_swapped_are_found() {
    assert_same_layout!(C, "pair", Swapped { other, one });
}

#[test]
#[should_panic(expected = "struct pair: Rust has")]
fn a_field_that_c_does_not_have_is_found() {
    assert_same_layout!(C, "pair", Longer { one, other, third });
}

#[test]
#[should_panic(expected = "struct pair: Rust has")]
fn a_field_that_rust_does_not_have_is_found_also_where_the_size_is_the_same() {
    compare(&C, "pair", vec![Field::new("one", 0, 4)], 8);
}

#[test]
fn a_struct_of_numbered_fields_has_each_number_in_its_field() {
    assert_eq!(C.numbered("pair", &["other", "one"]), [2_u32.to_ne_bytes(), 1_u32.to_ne_bytes()].concat());
}

#[test]
fn an_enum_is_told_with_its_numbers() {
    assert_eq!(C.enumerators("kind"), [("PAIR_ONE".to_owned(), 0), ("PAIR_OTHER".to_owned(), 5)]);
}
