//! A Bloom filter with ten bits per key and about one percent false positives.

use std::hash::BuildHasher;

use foldhash::quality::RandomState;

const BITS_PER_KEY: usize = 10;
const PROBES: u64 = 4;

/// The set of keys, as bits.
#[derive(Debug)]
pub(crate) struct Bloom {
    words: Vec<u64>,
    state: RandomState,
}

impl Bloom {
    /// An empty filter for this many keys.
    pub(crate) fn new(keys: u64) -> Bloom {
        let bits = usize::try_from(keys).unwrap_or(usize::MAX / 64).saturating_mul(BITS_PER_KEY);
        Bloom { words: vec![0; bits / 64 + 1], state: RandomState::default() }
    }

    fn places(&self, key: &[u8]) -> impl Iterator<Item = (usize, u64)> + use<> {
        let (hash, bits) = (self.state.hash_one(key), self.words.len() as u64 * 64);
        // An odd step reaches other bits at each probe.
        let step = hash.rotate_left(32) | 1;
        (0..PROBES).map(move |probe| {
            let bit = hash.wrapping_add(step.wrapping_mul(probe)) % bits;
            ((bit / 64) as usize, 1 << (bit % 64))
        })
    }

    pub(crate) fn add(&mut self, key: &[u8]) {
        for (word, bit) in self.places(key) {
            self.words[word] |= bit;
        }
    }

    /// False when the key is certainly absent.
    pub(crate) fn may_have(&self, key: &[u8]) -> bool {
        self.places(key).all(|(word, bit)| self.words[word] & bit != 0)
    }

    /// Memory of the filter in bytes.
    pub(crate) fn memory_bytes(&self) -> usize {
        self.words.len() * 8
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_key_is_missed_and_false_positives_are_rare() {
        let mut bloom = Bloom::new(10_000);
        (0..10_000u64).for_each(|n| bloom.add(&n.to_be_bytes()));
        assert!((0..10_000u64).all(|n| bloom.may_have(&n.to_be_bytes())));
        let wrong = (10_000..110_000u64).filter(|n| bloom.may_have(&n.to_be_bytes())).count();
        assert!(wrong < 3_000, "{wrong}");
        assert!(!Bloom::new(0).may_have(b"x"));
    }
}
