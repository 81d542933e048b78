//! A histogram of latencies. Manual: "db.collection.latencyStats()", "histogram": each range is
//! twice as wide as the previous one, with half-steps between two milliseconds and a second.

/// The lower bounds of the ranges, in microseconds.
const LOWER_BOUNDS: [i64; RANGES] = lower_bounds();

const RANGES: usize = 51;
/// The bounds that a half-step follows.
const HALF_STEPS: std::ops::RangeInclusive<i64> = 2048..=1 << 20;

const fn lower_bounds() -> [i64; RANGES] {
    let mut bounds = [0; RANGES];
    let (mut at, mut bound) = (1, 2);
    while at < RANGES {
        bounds[at] = bound;
        at += 1;
        if bound >= *HALF_STEPS.start() && bound <= *HALF_STEPS.end() && at < RANGES {
            bounds[at] = bound + bound / 2;
            at += 1;
        }
        bound *= 2;
    }
    bounds
}

/// The number of operations in each range.
#[derive(Clone, Debug)]
pub struct Histogram([u32; RANGES]);

impl Default for Histogram {
    fn default() -> Histogram {
        Histogram([0; RANGES])
    }
}

impl Histogram {
    pub(crate) fn add(&mut self, micros: i64) {
        let at = LOWER_BOUNDS.partition_point(|bound| *bound <= micros).saturating_sub(1);
        self.0[at] = self.0[at].saturating_add(1);
    }

    /// The lower bounds (inclusive) and counts of all ranges that have operations.
    pub fn ranges(&self) -> impl Iterator<Item = (i64, i64)> {
        let counted = LOWER_BOUNDS.into_iter().zip(self.0.iter().map(|count| i64::from(*count)));
        counted.filter(|(_, count)| *count > 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_double_with_half_steps_in_the_middle() {
        let expected = [0, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 3072, 4096, 6144, 8192];
        assert_eq!(LOWER_BOUNDS[..16], expected);
        assert_eq!(LOWER_BOUNDS[28..33], [786_432, 1_048_576, 1_572_864, 2_097_152, 4_194_304]);
        let mut histogram = Histogram::default();
        for micros in [0, 1, 2, 3, 3071, 3072, i64::MAX, -1] {
            histogram.add(micros);
        }
        let ranges: Vec<(i64, i64)> = histogram.ranges().collect();
        assert_eq!(ranges[..4], [(0, 3), (2, 2), (2048, 1), (3072, 1)]);
        assert_eq!(ranges.len(), 5);
    }
}
