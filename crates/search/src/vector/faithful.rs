//! Whether codes find the nearest vectors of a segment.
//!
//! Codes have one step for all elements of a vector. They lose the differences between vectors that
//! have a few very large elements, or that are far from the origin and near to each other. A sample
//! of the vectors is therefore searched with and without codes.

use super::space::Space;

/// Vectors of the sample that are searched for, and those that are compared with them.
const WANTED: usize = 32;
const COMPARED: usize = 2_000;

/// The nearest vectors that must be found, and the candidates that codes may name for them.
const NEAREST: usize = 10;
const CANDIDATES: usize = 30;

/// The share of the nearest vectors that may be missed is one in this many.
const MISSED: usize = 100;

/// Whether a search by codes, whose candidates are compared again, finds nearly all of the nearest
/// vectors.
pub(crate) fn are_codes_faithful(exact: &Space<'_>, coded: &Space<'_>) -> bool {
    let len = exact.len();
    let sample = |count: usize| (0..count.min(len)).map(move |at| at * len / count.min(len));
    let (mut found, mut all) = (0, 0);
    for wanted in sample(WANTED) {
        // The score by codes, and the exact one.
        let mut scores: Vec<(f32, f32)> = sample(COMPARED)
            .filter(|other| *other != wanted)
            .map(|other| (coded.score(wanted, other), exact.score(wanted, other)))
            .collect();
        let count = NEAREST.min(scores.len());
        if count == 0 {
            continue;
        }
        scores.sort_unstable_by(|left, right| right.1.total_cmp(&left.1));
        let least = scores[count - 1].1;
        // Of equal scores by codes the wrong ones are first.
        scores.sort_unstable_by(|left, right| {
            right.0.total_cmp(&left.0).then(left.1.total_cmp(&right.1))
        });
        let candidates = scores.iter().take(CANDIDATES);
        found += candidates.filter(|score| score.1 >= least).count().min(count);
        all += count;
    }
    (all - found) * MISSED <= all
}
