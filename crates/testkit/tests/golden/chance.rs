//! Pseudo-random numbers that are the same for the same seed.

pub(crate) struct Chance(u64);

impl Chance {
    pub(crate) fn from_seed(seed: u64) -> Chance {
        Chance(seed)
    }

    /// A number below `most`.
    pub(crate) fn below(&mut self, most: usize) -> usize {
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        ((self.0 >> 33) as usize) % most
    }

    pub(crate) fn pick<'t>(&mut self, from: &[&'t str]) -> &'t str {
        from[self.below(from.len())]
    }
}
