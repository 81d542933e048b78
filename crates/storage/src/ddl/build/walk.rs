//! Reads all records once, and sorts the keys of all indexes.
//!
//! A snapshot lives for one page. A record that changes after it was read, or is inserted before
//! the present position, is noted.

use std::cell::Cell;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use mayfly_base::Result;
use mayfly_kv::{Direction, ScanLimit};

use super::Build;
use crate::index::keygen::KeySet;
use crate::index::sorter::{Scratch, Sorter};
use crate::read::{ScanResult, whole_range};
use crate::record::Record;
use crate::record::error::from_kv;
use crate::record::layout::encode_unique_value;
use crate::write::covered_keys;

const SCANNING: &str = "Index Build: scanning collection";
/// A document with more keys in one index is processed separately.
const MANY_KEYS: usize = 256;
/// The size of a page.
const PAGE: ScanLimit =
    ScanLimit::rows(if cfg!(test) { 7 } else { 10_000 }).bytes(16 << 20).passing();

impl Build<'_> {
    /// For each index: ordered values -> record key and type bits, as in a unique index. Equal
    /// values keep the order of the records, which is that of entries that end in the record key.
    pub(super) fn walk(&mut self) -> Result<Vec<Sorter>> {
        let engine = self.store.engine.clone();
        let scratch: Arc<Scratch> = Arc::new(move |bytes| engine.scratch(bytes).map_err(from_kv));
        let budget = self.store.index_build_bytes() / self.indexes.len();
        let mut sorters: Vec<_> =
            self.indexes.iter().map(|_| Sorter::new(budget, scratch.clone())).collect();
        let known = self.collection.counts.documents.load(Ordering::Acquire);
        let total = u64::try_from(known).unwrap_or(0);
        let done = Cell::new(0);
        let (mut keys, mut value) = (KeySet::default(), Vec::new());
        let mut multikey = vec![0; self.indexes.len()];
        let mut range = whole_range();
        let mut see = |record_key: &[u8], record: Record<'_>| {
            done.set(done.get() + 1);
            for (number, index) in self.indexes.iter().enumerate() {
                covered_keys(index, record, &mut keys)?;
                multikey[number] |= keys.multikey;
                if keys.len() > MANY_KEYS {
                    self.check()?;
                }
                for (values, bits) in keys.iter() {
                    encode_unique_value(&mut value, record_key, bits);
                    sorters[number].push(values, &value, &|| self.check())?;
                }
            }
            Ok(ControlFlow::Continue(()))
        };
        loop {
            self.check()?;
            self.step("page");
            self.show_progress(SCANNING, done.get(), total.max(done.get()));
            let snapshot = self.store.latest()?;
            let forward = Direction::Forward;
            let scanned = snapshot.scan_stored(self.collection, &range, forward, PAGE, &mut see)?;
            match scanned {
                ScanResult::Exhausted => break,
                ScanResult::Paused(last) => range = range.after(&last, forward),
            }
        }
        self.multikey = multikey;
        Ok(sorters)
    }
}
