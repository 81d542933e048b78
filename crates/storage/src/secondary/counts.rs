//! The counts of large collections, which the owner writes for its secondaries.
//!
//! ```text
//! catalog  | 'u' | collection id |   documents, bytes, the owner's term; 8 bytes each, little-endian
//! ```
//!
//! A secondary would otherwise count the documents of a collection each time it is asked how many
//! there are. The owner writes the rows of collections that have changed at most once a second,
//! with the settled timestamp, so they may be a second old. Small collections have no row: counting
//! them is cheap. Neither have those whose number the owner itself does not know, after a crash.
//! Rows of an earlier term are ignored, and the next owner removes them.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use mayfly_base::Result;
use mayfly_kv::{Guard, Keyspace, Txn};

use crate::Store;
use crate::catalog::counts::ShownSize;
use crate::record::error::from_kv;
use crate::record::layout::catalog_key;

/// Collections with fewer documents have no row.
const LARGE: i64 = if cfg!(test) { 10 } else { 10_000 };
/// The pause between two looks at the counts.
const PAUSE: Duration = Duration::from_secs(1);
/// Most rows that are written together.
const MOST_ROWS: usize = 1000;

/// The rows that the owner has written.
#[derive(Default)]
pub(crate) struct ShownCounts {
    /// Documents and bytes by collection.
    written: HashMap<u64, (i64, i64)>,
    looked: Option<Instant>,
    /// Whether there were commits since the last look, or rows are left to write.
    has_news: bool,
}

/// Rows to write: `None` removes the row.
pub(crate) type ChangedCounts = Vec<(u64, Option<(i64, i64)>)>;

impl ShownCounts {
    /// Notes a commit.
    pub(crate) fn note_commit(&mut self) {
        self.has_news = true;
    }

    /// How long it is until the next look; `None` without news.
    pub(crate) fn next_look(&self) -> Option<Duration> {
        let since = self.looked.map_or(PAUSE, |looked| looked.elapsed());
        self.has_news.then(|| PAUSE.saturating_sub(since))
    }

    /// Makes the next look due at once.
    #[cfg(test)]
    pub(crate) fn look_now(&mut self) {
        self.looked = None;
    }

    /// The rows that have to change.
    pub(crate) fn changed(&self, store: &Store) -> ChangedCounts {
        let mut present: HashMap<u64, (i64, i64)> = HashMap::new();
        for collection in store.catalog.all().values() {
            let (documents, bytes) = collection.known_size();
            if documents >= LARGE {
                present.insert(collection.id(), (documents, bytes));
            }
        }
        let gone = self.written.keys().filter(|id| !present.contains_key(id));
        let gone = gone.map(|id| (*id, None));
        let changed = present.iter().filter(|(id, size)| self.written.get(id) != Some(size));
        let changed = changed.map(|(id, size)| (*id, Some(*size)));
        gone.chain(changed).take(MOST_ROWS).collect()
    }

    /// Notes that these rows were written.
    pub(crate) fn wrote(&mut self, changed: ChangedCounts) {
        (self.looked, self.has_news) = (Some(Instant::now()), changed.len() == MOST_ROWS);
        for (id, size) in changed {
            match size {
                Some(size) => self.written.insert(id, size),
                None => self.written.remove(&id),
            };
        }
    }
}

/// Writes rows of the owner of this term.
pub(super) fn put_counts(txn: &mut dyn Txn, changed: &ChangedCounts, term: i64) -> Result<()> {
    for (id, size) in changed {
        let key = catalog_key::shown_counts(*id);
        match size {
            Some((documents, bytes)) => {
                let row = ShownSize { documents: *documents, bytes: *bytes, term };
                txn.put(Keyspace::Catalog, &key, &row.encode(), Guard::Derived)
            }
            None => txn.delete(Keyspace::Catalog, &key, Guard::Derived),
        }
        .map_err(from_kv)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use mayfly_kv::{RoundTripCounter, RoundTrips, TxnOptions};
    use mayfly_value::bson::doc;

    use super::*;
    use crate::testing::{self, Fixture, ns};
    use crate::{ReadView, StoreOptions, StoreRole};

    #[test]
    fn a_secondary_shows_the_size_of_a_large_collection_without_counting() {
        let (engine, clock) = (testing::memory(), testing::clock());
        let of = |role| StoreOptions { background: false, role, ..StoreOptions::default() };
        let owner = testing::open_with(engine.clone(), clock.clone(), of(StoreRole::Owner));
        let counter = Arc::<RoundTripCounter>::default();
        let counted = Arc::new(RoundTrips::new(engine.clone(), counter.clone()));
        let secondary = testing::open_with(counted, clock.clone(), of(StoreRole::Secondary));
        let size = |of: &Fixture| {
            of.store.latest().unwrap();
            let collection = of.store.collection(&ReadView::now(), &ns("d.c")).unwrap();
            counter.take();
            let (documents, bytes) = of.store.recent_size(&of.op, &collection).unwrap();
            (documents, bytes, counter.take())
        };
        let rows = || {
            let txn = engine.begin(TxnOptions::READ_ONLY).unwrap();
            crate::catalog::rows(&*txn, b'u').unwrap().len()
        };
        let mut counts = ShownCounts::default();
        let mut settle = || {
            // As if a second had passed.
            counts.note_commit();
            counts.look_now();
            owner.store.write_settled(owner.store.oplog().settled(), &mut counts).unwrap();
        };
        (0..9).for_each(|id| owner.insert("d.c", &doc! { "_id": id }).unwrap());
        settle();
        assert_eq!((rows(), size(&secondary).0), (0, 9), "a small collection is counted");
        (9..30).for_each(|id| owner.insert("d.c", &doc! { "_id": id }).unwrap());
        assert_eq!(size(&secondary).0, 30);
        settle();
        let (documents, bytes, _) = size(&owner);
        assert_eq!((documents, bytes, 1), size(&secondary));
        // The row is as old as its owner's last look.
        owner.insert("d.c", &doc! { "_id": 30 }).unwrap();
        assert_eq!(size(&secondary).0, 30);
        settle();
        assert_eq!(size(&secondary).0, 31);
        owner.store.drop_collection(&ns("d.c")).unwrap();
        settle();
        assert_eq!(rows(), 0);
        (0..31).for_each(|id| owner.insert("d.c", &doc! { "_id": id }).unwrap());
        settle();
        assert_eq!(rows(), 1);
        // Another owner, after a crash of this one, does not know the number.
        let next = testing::open_with(engine.clone(), clock, of(StoreRole::Owner));
        assert_eq!((rows(), size(&secondary).0), (0, 31));
        drop(next);
    }
}
