//! From record keys to documents, a page of them at a time: an engine reads many keys together for half of what it takes one by
//! one, and a network would have one way for all of them.
//!
//! Documents are shown in the order of their keys. Whoever has seen enough leaves the rest of the page unseen: those records were
//! read for nothing, so a page takes no more keys than documents are wanted, where that is known, and begins small where it is
//! not. What was read and not shown counts as not examined.

use std::ops::ControlFlow;

use mayfly_base::Result;
use mayfly_storage::{Collection, RecordKeys, Snapshot, Store};
use mayfly_value::RawDoc;

use super::Flow;

/// Keys of the first page when nobody says how many documents are wanted; each further one has four times as many.
const FIRST_KEYS: usize = 16;
const GROWTH: usize = 4;
/// Most keys of a page.
const MOST_KEYS: usize = 256;
/// Bytes of a page's documents, about: as many as were met so far.
const PAGE_BYTES: usize = 1 << 20;

/// Sees documents of a page: the place of the key, the key, the document. Answers what comes of it, or nothing when the document
/// does not satisfy the filter.
pub(super) type PageVisitor<'v> = dyn FnMut(usize, &[u8], RawDoc<'_>) -> Result<Option<Flow>> + 'v;

/// How many keys a page takes.
#[derive(Debug)]
pub(super) struct PageSize {
    grown: usize,
    /// Documents that whoever sees them takes at most.
    wanted: Option<u64>,
    /// Documents of this batch that satisfied the filter, and those that did not.
    matched: u64,
    rejected: u64,
    /// Bytes of a document.
    bytes_each: usize,
}

impl Default for PageSize {
    fn default() -> PageSize {
        PageSize { grown: FIRST_KEYS, wanted: None, matched: 0, rejected: 0, bytes_each: 0 }
    }
}

impl PageSize {
    /// A batch begins, for somebody who takes so many documents.
    pub(super) fn begin(&mut self, wanted: Option<u64>) {
        (self.wanted, self.matched, self.rejected) = (wanted, 0, 0);
    }

    /// The documents of this collection are to be expected.
    fn expect(&mut self, store: &Store, collection: &Collection) {
        let documents = usize::try_from(collection.documents_about()).unwrap_or(0).max(1);
        let bytes = usize::try_from(store.data_bytes(collection)).unwrap_or(0);
        self.bytes_each = self.bytes_each.max(bytes / documents);
    }

    fn keys(&self) -> usize {
        let keys = match self.wanted {
            None => self.grown,
            // A filter that lets few through would make pages of one key; so much may be read for nothing.
            Some(wanted) => {
                let left = wanted.saturating_sub(self.matched).saturating_add(self.rejected / 2);
                usize::try_from(left).unwrap_or(MOST_KEYS)
            }
        };
        keys.min(MOST_KEYS).min(PAGE_BYTES / self.bytes_each.max(1)).max(1)
    }
}

/// Keys that wait to be read together.
pub(super) struct Page<'s> {
    snapshot: &'s Snapshot,
    collection: &'s Collection,
    size: &'s mut PageSize,
    keys: RecordKeys,
    room: usize,
    /// Documents that were shown so far.
    pub(super) fetched: u64,
}

impl<'s> Page<'s> {
    /// An empty one.
    pub(super) fn new(
        store: &Store,
        snapshot: &'s Snapshot,
        collection: &'s Collection,
        size: &'s mut PageSize,
    ) -> Page<'s> {
        size.expect(store, collection);
        let (keys, room) = (RecordKeys::of(collection), size.keys());
        Page { snapshot, collection, size, keys, room, fetched: 0 }
    }

    /// Adds a key; true when the page is full.
    pub(super) fn push(&mut self, record_key: &[u8]) -> bool {
        self.keys.push(record_key);
        self.keys.len() >= self.room
    }

    /// Its keys.
    pub(super) fn keys(&self) -> &RecordKeys {
        &self.keys
    }

    /// Reads the records and shows their documents. Gives the place of the last one when that was enough for now; otherwise the
    /// page is empty then.
    ///
    /// # Errors
    /// Those of the visitor and the store.
    pub(super) fn show(&mut self, see: &mut PageVisitor<'_>) -> Result<Option<usize>> {
        let (keys, size) = (&self.keys, &mut *self.size);
        let (mut shown, mut bytes, mut stopped) = (0, 0, None);
        if !keys.is_empty() {
            self.snapshot.records(self.collection, keys, &mut |at, document| {
                shown += 1;
                bytes += document.as_bytes().len();
                match see(at, keys.get(at).unwrap_or_default(), document)? {
                    None => size.rejected += 1,
                    Some(Flow::More) => size.matched += 1,
                    Some(Flow::Pause | Flow::Refused) => {
                        stopped = Some(at);
                        return Ok(ControlFlow::Break(()));
                    }
                }
                Ok(ControlFlow::Continue(()))
            })?;
        }
        self.fetched += shown;
        size.bytes_each = size.bytes_each.max(bytes / shown.max(1) as usize);
        if keys.len() >= size.grown {
            size.grown = (size.grown * GROWTH).min(MOST_KEYS);
        }
        self.room = size.keys();
        if stopped.is_none() {
            self.keys.clear();
        }
        Ok(stopped)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_takes_what_is_wanted_and_what_fits() {
        let mut size = PageSize::default();
        assert_eq!(size.keys(), FIRST_KEYS);
        size.grown = 64;
        assert_eq!(size.keys(), 64);
        size.begin(Some(1));
        assert_eq!(size.keys(), 1);
        size.begin(Some(u64::MAX));
        assert_eq!(size.keys(), MOST_KEYS);
        (size.bytes_each, size.rejected) = (100_000, 7);
        assert_eq!(size.keys(), 10);
        size.bytes_each = 16 << 20;
        assert_eq!(size.keys(), 1, "large documents do not pile up");
        size.bytes_each = 100;
        size.begin(Some(10));
        (size.matched, size.rejected) = (8, 100);
        assert_eq!(
            size.keys(),
            52,
            "a filter that lets little through is no reason for small pages"
        );
    }
}
