//! Numbers for names and seeds.

use std::hash::{BuildHasher, RandomState};

/// Returns a number that nobody can guess, and that is another one each time: the hash of nothing, with keys that the
/// standard library draws.
pub fn drawn() -> u64 {
    RandomState::new().hash_one(())
}
