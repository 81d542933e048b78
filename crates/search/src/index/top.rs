//! The best hits of a search: those with the greatest scores, and of equal scores those with the
//! least record keys.

use std::cmp::Ordering;
use std::collections::BinaryHeap;

use super::ranked::{HitOrder, Ranked};
use super::search::{Cursor, Hit};

/// Orders the best hit first.
pub(super) fn order(left: (f32, &[u8]), right: (f32, &[u8])) -> Ordering {
    right.0.total_cmp(&left.0).then_with(|| left.1.cmp(right.1))
}

/// Orders the hit with the greatest score first.
struct ByScore;

impl HitOrder for ByScore {
    fn compare(&self, left: &Hit, right: &Hit) -> Ordering {
        order((left.score, &left.record_key), (right.score, &right.record_key))
    }
}

/// The best hits after a cursor.
pub(super) struct Top<'c> {
    size: usize,
    after: Option<&'c Cursor>,
    heap: BinaryHeap<Ranked<ByScore>>,
    /// Hits with a lower score are not among the best.
    threshold: f32,
}

impl<'c> Top<'c> {
    pub(super) fn new(size: usize, after: Option<&'c Cursor>) -> Top<'c> {
        Top { size, after, heap: BinaryHeap::new(), threshold: f32::NEG_INFINITY }
    }

    /// Hits with a lower score are not among the best.
    pub(super) fn threshold(&self) -> f32 {
        self.threshold
    }

    /// Whether a document with this score can be among the best. Its record key is not needed then.
    #[inline]
    pub(super) fn may_add(&self, score: f32) -> bool {
        score >= self.threshold && self.after.is_none_or(|after| score <= after.score)
    }

    /// Adds a hit, if it is after the cursor and among the best.
    pub(super) fn add(&mut self, score: f32, record_key: &[u8], version_ms: impl FnOnce() -> i64) {
        let is_after = |after: &Cursor| {
            order((after.score, &after.record_key), (score, record_key)) == Ordering::Less
        };
        if self.size == 0 || self.after.is_some_and(|after| !is_after(after)) {
            return;
        }
        if self.heap.len() == self.size {
            let worst = self.heap.peek().map(|worst| (worst.0.score, &worst.0.record_key));
            if worst.is_some_and(|(worst, key)| order((score, record_key), (worst, key)).is_ge()) {
                return;
            }
            self.heap.pop();
        }
        let hit = Hit {
            record_key: record_key.to_vec(),
            version_ms: version_ms(),
            score,
            stored_source: None,
            score_details: None,
            rank: Vec::new(),
            order: 0,
        };
        self.heap.push(Ranked(hit, ByScore));
        if self.heap.len() == self.size {
            self.threshold = self.heap.peek().map_or(f32::NEG_INFINITY, |worst| worst.0.score);
        }
    }

    /// The record keys of the hits, in no order.
    pub(super) fn keys(&self) -> impl Iterator<Item = &[u8]> {
        self.heap.iter().map(|ranked| ranked.0.record_key.as_slice())
    }

    /// The hits, the best one first.
    pub(super) fn into_hits(self) -> Vec<Hit> {
        self.heap.into_sorted_vec().into_iter().map(|ranked| ranked.0).collect()
    }
}

/// The places of the vectors with the greatest approximate scores.
pub(super) struct Candidates {
    size: usize,
    heap: BinaryHeap<(std::cmp::Reverse<u32>, u32)>,
    threshold: u32,
}

impl Candidates {
    pub(super) fn new(size: usize) -> Candidates {
        Candidates { size, heap: BinaryHeap::new(), threshold: 0 }
    }

    /// Whether a place with this score can be among the best.
    #[inline]
    pub(super) fn may_add(&self, score: f32) -> bool {
        score.max(0.0).to_bits() >= self.threshold
    }

    /// Adds a place. Scores are not negative, so their bits have their order.
    #[inline]
    pub(super) fn add(&mut self, score: f32, place: usize) {
        let score = score.max(0.0).to_bits();
        self.heap.push((std::cmp::Reverse(score), place as u32));
        if self.heap.len() > self.size {
            self.heap.pop();
            self.threshold = self.heap.peek().map_or(0, |worst| worst.0.0);
        }
    }

    pub(super) fn into_places(self) -> Vec<usize> {
        let mut places: Vec<usize> =
            self.heap.into_iter().map(|(_, place)| place as usize).collect();
        places.sort_unstable();
        places
    }
}
