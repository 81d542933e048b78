//! A graph over the vectors of a segment (HNSW): each vector is linked with near ones, and a search
//! goes along the links to nearer and nearer vectors.
//!
//! A vector is on level 0, and on each next level with a probability of one in `edges`. The upper
//! levels lead a search quickly to the neighbourhood; on level 0 it collects its candidates.
//!
//! ```text
//!  Links    level 0: for each vector  count u32 | 2 * edges places, u32 each
//!  Upper    edges u32 | entry u32 | levels of the entry u32 | number of vectors n u32
//!           their places, u32 each, ascending | n + 1 offsets of lists, u32 each
//!           lists, for each vector from level 1 up: count u32 | edges places, u32 each
//! ```
//! All places are those of the vectors in their section.

mod build;
mod search;
#[cfg(test)]
mod tests;

pub(crate) use build::{GraphBuilder, GraphOptions};
pub(crate) use search::Graph;

/// A vector with its score, as one number: the bits of the score, then the place. Scores are not
/// negative, so their bits have their order, and heaps compare one number.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Scored(u64);

impl Scored {
    #[inline]
    fn new(score: f32, place: u32) -> Scored {
        Scored((u64::from(score.max(0.0).to_bits()) << 32) | u64::from(place))
    }

    /// The bits of the score.
    #[inline]
    fn bits(self) -> u32 {
        (self.0 >> 32) as u32
    }

    #[inline]
    fn place(self) -> u32 {
        self.0 as u32
    }
}

/// The vectors that a search has seen.
struct Visited(Vec<u64>);

impl Visited {
    fn new(len: usize) -> Visited {
        Visited(vec![0; len.div_ceil(64)])
    }

    /// Adds a vector. Returns whether it is new.
    #[inline]
    fn insert(&mut self, place: u32) -> bool {
        let bit = 1 << (place % 64);
        match self.0.get_mut(place as usize / 64) {
            Some(word) => {
                let is_new = *word & bit == 0;
                *word |= bit;
                is_new
            }
            None => false,
        }
    }
}
