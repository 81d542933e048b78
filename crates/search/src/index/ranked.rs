//! A hit in a heap of the best hits.

use std::cmp::Ordering;

use super::search::Hit;

/// The order of a search's hits, the best one first.
pub(super) trait HitOrder {
    fn compare(&self, left: &Hit, right: &Hit) -> Ordering;
}

/// A hit and the order in which it is compared: the worst hit is the greatest.
pub(super) struct Ranked<O>(pub(super) Hit, pub(super) O);

impl<O: HitOrder> Ord for Ranked<O> {
    fn cmp(&self, other: &Ranked<O>) -> Ordering {
        self.1.compare(&self.0, &other.0)
    }
}

impl<O: HitOrder> PartialOrd for Ranked<O> {
    fn partial_cmp(&self, other: &Ranked<O>) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl<O: HitOrder> Eq for Ranked<O> {}

impl<O: HitOrder> PartialEq for Ranked<O> {
    fn eq(&self, other: &Ranked<O>) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}
