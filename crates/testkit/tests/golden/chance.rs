//! Random choices, the same for each seed.

use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};

pub(crate) struct Chance(SmallRng);

impl Chance {
    pub(crate) fn from_seed(seed: u64) -> Chance {
        Chance(SmallRng::seed_from_u64(seed))
    }

    /// A number below `most`.
    pub(crate) fn below(&mut self, most: usize) -> usize {
        self.0.random_range(0..most)
    }

    pub(crate) fn pick<'t>(&mut self, from: &[&'t str]) -> &'t str {
        from[self.below(from.len())]
    }
}
