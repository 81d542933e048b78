//! Random numbers for `$rand` and `$sampleRate`: fast, different in every process and thread, of no use for secrets.

use std::cell::Cell;
use std::hash::{BuildHasher, RandomState};

/// A number from 0 (inclusive) to 1 (exclusive).
pub fn random_unit() -> f64 {
    thread_local!(static STATE: Cell<u64> = Cell::new(RandomState::new().hash_one(0_u64)));
    let bits = STATE.with(|state| {
        // SplitMix64: a counter whose bits are mixed.
        let next = state.get().wrapping_add(0x9E37_79B9_7F4A_7C15);
        state.set(next);
        let mixed = (next ^ (next >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^ (mixed >> 31)
    });
    // 53 bits fill a double exactly.
    (bits >> 11) as f64 / (1_u64 << 53) as f64
}
