//! Numbers for names and seeds.

use std::fs::File;
use std::io::Read;

/// Returns a number that nobody can guess, and that is another one each time.
pub fn drawn() -> u64 {
    let mut bytes = [0; 8];
    // Where there is no /dev, the time has to do.
    match File::open("/dev/urandom").and_then(|mut file| file.read_exact(&mut bytes)) {
        Ok(()) => u64::from_ne_bytes(bytes),
        Err(_) => brobust_contention::clock::now(),
    }
}
