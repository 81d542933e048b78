//! One 64-bit hash per key, shared by the conflict tracker and the write buffer.
//!
//! Collisions are harmless for both (a false conflict; one more comparison), so a fast hash
//! suffices. Its seed is drawn once per process, so that a client cannot prepare keys that all
//! collide.

use std::hash::{BuildHasher, BuildHasherDefault, Hasher, RandomState};
use std::sync::LazyLock;

use rustc_hash::FxSeededState;

use crate::Keyspace;

static SEED: LazyLock<FxSeededState> =
    LazyLock::new(|| FxSeededState::with_seed(RandomState::new().hash_one(0_u8) as usize));

/// The hash of a key in its keyspace.
pub fn key_hash(keyspace: Keyspace, key: &[u8]) -> u64 {
    let mut hasher = SEED.build_hasher();
    hasher.write_u8(keyspace as u8);
    hasher.write(key);
    hasher.finish()
}

/// The hasher for maps whose keys are such hashes already.
pub(crate) type HashedKeys = BuildHasherDefault<PassThrough>;

/// Returns the hash that it was given.
#[derive(Default)]
pub(crate) struct PassThrough(u64);

impl Hasher for PassThrough {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, _: &[u8]) {
        unreachable!("only u64 keys use this hasher")
    }

    fn write_u64(&mut self, hash: u64) {
        self.0 = hash;
    }
}
