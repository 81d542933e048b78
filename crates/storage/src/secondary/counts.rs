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
