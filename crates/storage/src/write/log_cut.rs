//! Cuts the operation log when the disk is nearly full.
//!
//! A deleted document that the log refers to stays until the log is cut, and a drop copies all such
//! documents. On a full disk deletions would free no room. Therefore the whole log is cut first, so
//! that no entry refers to what is deleted afterwards. Readers of the log that had not come that
//! far end with 286 ChangeStreamHistoryLost, as they do when the log is too short.

use std::sync::atomic::Ordering;

use mayfly_base::Result;
use mayfly_kv::{Guard, KeyRange, Keyspace, TxnOptions};

use super::Writer;
use crate::catalog::note_stored;
use crate::oplog::visit_all;
use crate::record::error::from_kv;
use crate::record::layout::catalog_key;
use crate::shared::change_version;

/// A smaller log is not cut, because it refers to little.
const LITTLE_BYTES: u64 = 4 << 20;
/// Deletions fill the log repeatedly; cuts are logged at most this often, in microseconds.
const WARN_EVERY_MICROS: i64 = 60_000_000;

/// The text of the log's entry about the cut.
const NOTE: &str = "the operation log was cut, because the disk is nearly full";

impl Writer {
    /// Cuts the log when the disk is nearly full. Called before a unit that may delete.
    #[inline]
    pub(crate) fn yield_log(&self) {
        if self.engine.is_nearly_full() {
            self.yield_log_now();
        }
    }

    #[cold]
    fn yield_log_now(&self) {
        let cut = self.cut_large_log().unwrap_or_else(|error| {
            tracing::warn!(%error, "the operation log could not be cut, although the disk is nearly full");
            false
        });
        let first = !self.noticed_full.swap(true, Ordering::Relaxed);
        // The sweeper frees the log's space.
        if cut || first {
            self.oplog.trim();
        }
        // Due documents are deleted at once.
        if first {
            self.ttl_params.wake();
        }
    }

    /// Cuts the whole log if it has grown enough since the last cut; returns whether it did.
    ///
    /// # Errors
    /// Errors of the engine.
    pub(crate) fn cut_large_log(&self) -> Result<bool> {
        if self.oplog.logged_bytes() < LITTLE_BYTES {
            return Ok(false);
        }
        let _one_cuts = self.oplog.cutting.lock();
        // Another unit may have cut it meanwhile.
        match self.oplog.logged_bytes() < LITTLE_BYTES {
            true => Ok(false),
            false => self.cut_locked().map(|()| true),
        }
    }

    /// Cuts the whole log, up to all earlier commits. A note about the cut is the first entry of
    /// the rest.
    ///
    /// # Errors
    /// Errors of the engine.
    pub(crate) fn cut_log_whole(&self) -> Result<()> {
        let _one_cuts = self.oplog.cutting.lock();
        self.cut_locked()
    }

    fn cut_locked(&self) -> Result<()> {
        let Some(cut) = self.oplog.whole_cut() else { return Ok(()) };
        self.note_cut(cut, Some(NOTE))?;
        self.oplog.cuts_for_room.fetch_add(1, Ordering::Relaxed);
        let now = self.clock.monotonic_micros();
        let warned = &self.oplog.warned_of_cut_micros;
        if now - warned.load(Ordering::Relaxed) >= WARN_EVERY_MICROS {
            warned.store(now, Ordering::Relaxed);
            tracing::warn!(
                upTo = cut >> 32,
                "the operation log is cut, because the disk is nearly full; change streams that have not read it yet end"
            );
        }
        Ok(())
    }

    /// Writes the cut at this timestamp into the catalog, before entries are removed, with an
    /// optional note in the log.
    pub(crate) fn note_cut(&self, last: u64, note: Option<&str>) -> Result<()> {
        let mut gone = Vec::new();
        let txn = self.engine().begin(TxnOptions::READ_ONLY).map_err(from_kv)?;
        let range = KeyRange {
            start: catalog_key::segment(0),
            end: catalog_key::segment(last.saturating_add(1)),
        };
        visit_all(&*txn, Keyspace::Catalog, range, &mut |key, _| {
            gone.push(key.to_vec());
            Ok(())
        })?;
        drop(txn);
        let feeds = self.feeds_to_store(last);
        self.change_begun(|txn, oplog| {
            for (fed, row) in &feeds {
                let key = catalog_key::feed(fed.id);
                let value = fed.row_value(*row);
                txn.put(Keyspace::Catalog, &key, &value, Guard::Checked).map_err(from_kv)?;
            }
            for key in &gone {
                txn.delete(Keyspace::Catalog, key, Guard::Checked).map_err(from_kv)?;
            }
            if let Some(note) = note {
                oplog.note(note);
            }
            change_version(txn).map_err(from_kv)?;
            let value = last.to_be_bytes();
            txn.put(Keyspace::Catalog, catalog_key::OPLOG_CUT, &value, Guard::Checked)
                .map_err(from_kv)
        })?;
        note_stored(&feeds);
        self.oplog.set_cut(last);
        self.oplog.forget_segments(last);
        Ok(())
    }
}
