//! Building an index over present documents while writers go on.
//!
//! 1. The index is registered as not ready: from that moment every write unit maintains its keys.
//! 2. The build walks the records in `_id` order; each batch is a write unit that locks its records, so that a writer
//!    that changes one of them meanwhile conflicts, and one of both runs again over the other's result.
//! 3. When the walk is over the index becomes ready in one catalog change.
//!
//! A build that a crash cut off is forgotten when the store opens again: nobody was told that it exists.

use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use mayfly_base::{OpCtx, Result};
use mayfly_kv::{Direction, Keyspace, ScanLimit};

use crate::Store;
use crate::catalog::{Collection, Index};
use crate::read::{Scanned, whole_range};
use crate::record::RecordKey;
use crate::record::error::from_kv;
use crate::record::layout::prefixed;

/// Records per write unit of a build.
const BATCH_RECORDS: usize = 100;

impl Store {
    pub(crate) fn build_indexes(
        &self,
        op: &OpCtx,
        collection: &Collection,
        building: &[Arc<Index>],
    ) -> Result<()> {
        let result = self
            .walk_records(op, collection, building)
            .and_then(|()| self.finish_building(collection, building));
        if let Err(error) = result {
            for index in building {
                index.runtime.ready.store(false, Ordering::Release);
            }
            self.abandon_building(collection, building)?;
            return Err(error);
        }
        Ok(())
    }

    pub(crate) fn walk_records(
        &self,
        op: &OpCtx,
        collection: &Collection,
        building: &[Arc<Index>],
    ) -> Result<()> {
        let mut range = whole_range();
        loop {
            op.check()?;
            collection.check_alive()?;
            let mut batch: Vec<RecordKey> = Vec::with_capacity(BATCH_RECORDS);
            let limit = ScanLimit { rows: BATCH_RECORDS, bytes: 4 << 20 };
            let scanned = self.snapshot()?.scan_stored(
                collection,
                &range,
                Direction::Forward,
                limit,
                &mut |key, _| {
                    batch.push(key.to_vec());
                    Ok(ControlFlow::Continue(()))
                },
            )?;
            self.backfill(op, collection, building, &batch)?;
            match scanned {
                Scanned::Exhausted => return Ok(()),
                Scanned::Paused(last) => range = range.after(&last, Direction::Forward),
            }
        }
    }

    fn backfill(
        &self,
        op: &OpCtx,
        collection: &Collection,
        building: &[Arc<Index>],
        batch: &[RecordKey],
    ) -> Result<()> {
        self.write(op, collection, |unit| {
            for record_key in batch {
                let key = prefixed(collection.id(), record_key);
                unit.txn.lock(Keyspace::Record, &key).map_err(from_kv)?;
                let Some(stored) = unit.read_stored(record_key)? else { continue };
                for index in building {
                    unit.backfill(index, record_key, stored.record())?;
                }
            }
            Ok(())
        })
    }

    /// Removes indexes that were being built when the server stopped.
    pub(crate) fn forget_unfinished_builds(&self) -> Result<()> {
        for collection in self.collections(None) {
            let unfinished: Vec<_> =
                collection.indexes().into_iter().filter(|index| !index.is_ready()).collect();
            for index in &unfinished {
                tracing::warn!(
                    namespace = %collection.namespace(),
                    index = index.spec.name(),
                    "an index build was cut off by a stop of the server; build it again"
                );
            }
            if !unfinished.is_empty() {
                self.abandon_building(&collection, &unfinished)?;
            }
        }
        Ok(())
    }
}
