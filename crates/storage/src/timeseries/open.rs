//! A bounded cache of open buckets by meta value, in stripes with a lock each.
//!
//! The cache only saves look-ups. Buckets that are not in it (after a restart, or with too many
//! meta values) are found in the store: by the index on meta and time, or by the order of records
//! if measurements have no meta field.

use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};
use std::sync::atomic::{AtomicU64, Ordering};

use mayfly_buckets::Packed;
use parking_lot::{Mutex, MutexGuard};

use crate::record::RecordKey;

/// The number of stripes. Writers of different stripes do not wait for each other.
const STRIPES: usize = 16;
/// The most meta values in a stripe.
const MAX_PER_STRIPE: usize = 4096;
/// The most buckets of a meta value.
pub(crate) const MAX_PER_META: usize = 4;

/// An open bucket.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct OpenBucket {
    pub(crate) start_ms: i64,
    pub(crate) key: RecordKey,
    /// The content of the bucket. A full bucket is cached too, which saves the search for one with
    /// room.
    pub(crate) packed: Packed,
}

/// One stripe: the open buckets by meta value.
pub(crate) type Stripe = HashMap<Vec<u8>, Vec<OpenBucket>>;

/// The open buckets of a collection.
pub(crate) struct OpenBuckets {
    stripes: [Mutex<Stripe>; STRIPES],
    hasher: RandomState,
    /// The source of the names of new buckets.
    pub(crate) suffixes: Suffixes,
}

impl Default for OpenBuckets {
    fn default() -> OpenBuckets {
        OpenBuckets {
            stripes: Default::default(),
            hasher: RandomState::new(),
            suffixes: Suffixes::default(),
        }
    }
}

impl OpenBuckets {
    /// The number of stripes.
    #[cfg(test)]
    pub(crate) const COUNT: usize = STRIPES;

    /// The stripe of a meta value.
    pub(crate) fn stripe(&self, meta: &[u8]) -> usize {
        self.hasher.hash_one(meta) as usize % STRIPES
    }

    /// Locks stripes, always in the same order.
    pub(crate) fn lock(
        &self,
        stripes: impl Iterator<Item = usize>,
    ) -> HashMap<usize, MutexGuard<'_, Stripe>> {
        let mut numbers: Vec<usize> = stripes.collect();
        numbers.sort_unstable();
        numbers.dedup();
        numbers.into_iter().map(|at| (at, self.stripes[at].lock())).collect()
    }
}

/// A counter for the last 8 bytes of buckets' `_id`s, so that buckets with the same start are
/// sorted by creation. It starts at a random number, as in the reference: two servers over copies
/// of one folder then hardly ever choose the same `_id`.
pub(crate) struct Suffixes(AtomicU64);

impl Default for Suffixes {
    fn default() -> Suffixes {
        Suffixes(AtomicU64::new(rand::random()))
    }
}

impl Suffixes {
    /// The next suffix. A restored bucket may already have it.
    pub(crate) fn next(&self) -> u64 {
        self.0.fetch_add(1, Ordering::Relaxed)
    }

    /// Continues from another random number, because the next suffix was taken.
    pub(crate) fn jump(&self) {
        self.go_on_from(rand::random());
    }

    pub(crate) fn go_on_from(&self, next: u64) {
        self.0.store(next, Ordering::Relaxed);
    }
}

/// Caches the open buckets of a meta value.
pub(crate) fn remember(stripe: &mut Stripe, meta: Vec<u8>, mut open: Vec<OpenBucket>) {
    if stripe.len() >= MAX_PER_STRIPE && !stripe.contains_key(&meta) {
        stripe.clear();
    }
    let surplus = open.len().saturating_sub(MAX_PER_META);
    open.drain(..surplus);
    stripe.insert(meta, open);
}
