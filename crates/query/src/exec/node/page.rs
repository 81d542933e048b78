//! Pages: record keys whose documents are read together. An engine reads many keys together in half
//! of the time of single reads, and a networked engine would need one round trip.
//!
//! Documents are returned in the order of their keys. When the consumer stops, the rest of the page
//! was read in vain. A page therefore has at most as many keys as the consumer requests documents,
//! if that number is known, and otherwise starts small. Records that were read but not returned do
//! not count as examined, and are read again over the snapshot of the next batch.

use std::ops::{ControlFlow, Range};

use mayfly_base::Result;
use mayfly_storage::{Collection, FIRST_PAGE, RecordKeys, Store};
use mayfly_value::RawDoc;

use super::{Batch, Node, Row, ScanPosition};

/// Each page has this many times as many keys as the one before, if the number of requested
/// documents is unknown.
const GROWTH: usize = 4;
/// Limit on the keys of a page.
const MOST_KEYS: usize = 256;
/// Limit on the bytes of positions in a page.
const POSITION_BYTES: usize = 1 << 20;
/// Documents between two checks of the deadline.
const CHUNK_DOCUMENTS: u64 = 16;
/// Approximate limit on the bytes of a page's documents, by the sizes seen so far.
const PAGE_BYTES: usize = 1 << 20;

/// The first page over a network, where a page too much costs more than rows in vain.
const REMOTE_FIRST_PAGE: usize = 128;

/// The number of entries, or of documents, that are read first if the number of requested
/// documents is unknown.
pub(super) fn first_page(store: &Store) -> usize {
    match store.is_remote() {
        true => REMOTE_FIRST_PAGE,
        false => FIRST_PAGE,
    }
}

/// A document of a page.
pub(super) struct Shown<'d> {
    /// The index of its key in the page.
    pub(super) at: usize,
    /// The key of its record.
    pub(super) record: &'d [u8],
    pub(super) document: RawDoc<'d>,
    /// Whether it is known to satisfy the filter.
    pub(super) matches: bool,
}

/// Visits the documents of a page. Returns `None` if the document does not satisfy the filter.
pub(super) type PageVisitor<'v> = dyn FnMut(Shown<'_>) -> Result<Option<ControlFlow<()>>> + 'v;

/// Determines how many keys a page takes.
#[derive(Debug)]
pub(super) struct PageSize {
    grown: usize,
    /// Limit on the documents that the consumer accepts.
    requested: Option<u64>,
    /// Documents of this batch that satisfied the filter, and those that did not.
    matched: u64,
    rejected: u64,
    /// Estimated bytes of a document.
    bytes_each: usize,
}

impl Default for PageSize {
    fn default() -> PageSize {
        PageSize { grown: FIRST_PAGE, requested: None, matched: 0, rejected: 0, bytes_each: 0 }
    }
}

impl PageSize {
    /// Starts a batch for a consumer that accepts `requested` documents.
    pub(super) fn begin(&mut self, requested: Option<u64>) {
        (self.requested, self.matched, self.rejected) = (requested, 0, 0);
    }

    /// Estimates the size of documents from that of the collection.
    fn expect(&mut self, store: &Store, collection: &Collection) {
        let documents = usize::try_from(collection.known_documents()).unwrap_or(0).max(1);
        let bytes = usize::try_from(store.data_bytes(collection)).unwrap_or(0);
        self.bytes_each = self.bytes_each.max(bytes / documents);
        self.grown = self.grown.max(first_page(store));
    }

    fn keys(&self) -> usize {
        let keys = match self.requested {
            None => self.grown,
            // A selective filter would make pages of one key, so rejected documents extend the
            // page.
            Some(requested) => {
                let left = requested.saturating_sub(self.matched).saturating_add(self.rejected / 2);
                usize::try_from(left).unwrap_or(MOST_KEYS)
            }
        };
        keys.min(MOST_KEYS).min(PAGE_BYTES / self.bytes_each.max(1)).max(1)
    }
}

/// Record keys whose documents are read together.
pub(super) struct Page {
    pub(super) size: PageSize,
    keys: RecordKeys,
    rows: Vec<WaitingRow>,
    /// The positions of the entries, concatenated.
    positions: Vec<u8>,
    room: usize,
}

/// Data of a row besides its record key.
struct WaitingRow {
    /// Index keys examined for the row.
    examined: u64,
    /// The position of the scan: the range, and the slice of `positions`.
    place: Option<(usize, Range<usize>)>,
    /// Whether the document satisfies the filter according to an entry in this batch's snapshot.
    matches: bool,
}

impl Page {
    /// An empty page.
    pub(super) fn new(collection: &Collection) -> Page {
        let (size, keys) = (PageSize::default(), RecordKeys::of(collection));
        Page { size, keys, rows: Vec::new(), positions: Vec::new(), room: 1 }
    }

    /// Starts a batch. Rows that were not returned in the last batch come first.
    pub(super) fn begin(&mut self, batch: &Batch<'_>) {
        self.size.begin(batch.requested.get());
        self.size.expect(batch.session.store, batch.collection);
        self.room = self.size.keys();
        // The documents may have changed since.
        self.rows.iter_mut().for_each(|row| row.matches = false);
    }

    /// Notes that the document of the last row is known to satisfy the filter in this batch.
    pub(super) fn note_match(&mut self) {
        if let Some(row) = self.rows.last_mut() {
            row.matches = true;
        }
    }

    /// Adds the key of a row. Returns true if the page is full.
    pub(super) fn push(&mut self, row: &Row<'_>) -> bool {
        let Row { record: record_key, keys: examined, place, .. } = *row;
        if self.rows.is_empty() {
            self.keys.reserve(self.room);
            self.rows.reserve(self.room);
            let position = place.as_ref().map_or(0, |place| place.position.len());
            self.positions.reserve((self.room * position).min(POSITION_BYTES));
        }
        self.keys.push(record_key);
        let place = place.map(|place| {
            let start = self.positions.len();
            self.positions.extend_from_slice(place.position);
            (place.range, start..self.positions.len())
        });
        self.rows.push(WaitingRow { examined, place, matches: false });
        self.keys.len() >= self.room || self.positions.len() >= POSITION_BYTES
    }

    pub(super) fn is_empty(&self) -> bool {
        self.keys.is_empty()
    }

    /// The number of waiting rows, and of the index keys examined for them.
    pub(super) fn waiting(&self) -> (u64, u64) {
        (self.rows.len() as u64, self.rows.iter().map(|row| row.examined).sum())
    }

    /// The number of rows after this one.
    pub(super) fn rows_after(&self, last: usize) -> u64 {
        (self.rows.len() - last - 1) as u64
    }

    /// Reads the records and visits their documents. Returns the index of the last one if the
    /// visitor stopped there; otherwise the page is empty afterwards.
    ///
    /// # Errors
    /// Errors of the visitor and of the store.
    pub(super) fn show(
        &mut self,
        batch: &Batch<'_>,
        see: &mut PageVisitor<'_>,
    ) -> Result<Option<usize>> {
        if self.keys.is_empty() {
            return Ok(None);
        }
        let (keys, size, waiting) = (&self.keys, &mut self.size, &self.rows);
        let (mut shown, mut bytes, mut stopped) = (0u64, 0, None);
        batch.snapshot()?.records(batch.collection, keys, &mut |at, document| {
            shown += 1;
            if shown.is_multiple_of(CHUNK_DOCUMENTS) {
                batch.session.op.check()?;
            }
            bytes += document.as_bytes().len();
            let matches = waiting.get(at).is_some_and(|row| row.matches);
            let record = keys.get(at).unwrap_or_default();
            match see(Shown { at, record, document, matches })? {
                None => size.rejected += 1,
                Some(ControlFlow::Continue(())) => size.matched += 1,
                Some(ControlFlow::Break(())) => {
                    stopped = Some(at);
                    return Ok(ControlFlow::Break(()));
                }
            }
            Ok(ControlFlow::Continue(()))
        })?;
        batch.count(0, shown);
        batch.spend(shown);
        size.bytes_each = size.bytes_each.max(bytes / shown.max(1) as usize);
        if keys.len() >= size.grown {
            size.grown = (size.grown * GROWTH).min(MOST_KEYS);
        }
        self.room = size.keys();
        if stopped.is_none() {
            self.clear();
        }
        Ok(stopped)
    }

    /// Removes all rows.
    pub(super) fn clear(&mut self) {
        self.keys.clear();
        self.rows.clear();
        self.positions.clear();
    }

    /// Handles the rows after `last`, which were not returned: the scan goes back to its position,
    /// or, if it cannot, the keys wait for the next batch. Returns true if the scan goes back.
    pub(super) fn leave(&mut self, batch: &Batch<'_>, last: usize, scan: &mut dyn Node) -> bool {
        let rest_from = last + 1;
        let keys = self.rows.iter().skip(rest_from).map(|row| row.examined).sum();
        batch.give_back(keys);
        if let Some((range, position)) = &self.rows[last].place {
            let (range, position) = (*range, self.positions.get(position.clone()));
            let position = position.unwrap_or_default();
            let rows = (self.rows.len() - rest_from) as u64;
            if rows > 0 {
                scan.go_back(ScanPosition { range, position }, (rows, keys));
            }
            self.clear();
            return true;
        }
        let mut left = RecordKeys::of(batch.collection);
        (rest_from..).map_while(|at| self.keys.get(at)).for_each(|key| left.push(key));
        self.rows.drain(..rest_from);
        self.keys = left;
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_takes_as_many_records_as_requested_and_fit() {
        let mut size = PageSize::default();
        assert_eq!(size.keys(), FIRST_PAGE);
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
