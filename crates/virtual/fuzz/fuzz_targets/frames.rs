//! Whatever a kernel leaves where its frames are read is decoded or refused.
#![no_main]
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let _ = brobust_virtual::decode_frames(bytes);
});
