//! A bulk sender and its receiver on ngtcp2: bulk.c, which is C as ngtcp2 is. Cargo fetches and builds both.

use std::ffi::{c_char, c_int, CString};

// What bulk.c calls.
use {aws_lc_sys as _, ngtcp2_sys as _};

extern "C" {
    fn bulk(count: c_int, words: *const *const c_char) -> c_int;
}

fn main() {
    let words: Vec<CString> = std::env::args().filter_map(|word| CString::new(word).ok()).collect();
    let pointers: Vec<*const c_char> = words.iter().map(|word| word.as_ptr()).collect();
    // SAFETY: the words live through the call, and `bulk` only reads them.
    std::process::exit(unsafe { bulk(pointers.len() as c_int, pointers.as_ptr()) })
}
