//! Readers of the collection of counts: in a write unit under locks, and in a snapshot.

use std::sync::Arc;

use mayfly_base::Result;
use mayfly_encryption::{EscId, EscReader, EscRecord};
use mayfly_storage::{Collection, IdKey, Snapshot, StoreSession, WriteUnit, id_key};
use mayfly_value::RawValue;
use mayfly_work::current;

/// Reads counts in a unit, each under its lock.
pub(super) struct UnitCounts<'u, 's> {
    unit: &'u mut WriteUnit<'s>,
    reads: u64,
}

impl<'u, 's> UnitCounts<'u, 's> {
    /// The reader of a unit over the collection of counts.
    pub(super) fn of(unit: &'u mut WriteUnit<'s>) -> UnitCounts<'u, 's> {
        UnitCounts { unit, reads: 0 }
    }

    /// The number of documents that it has looked up.
    pub(super) fn reads(&self) -> u64 {
        self.reads
    }
}

impl EscReader for UnitCounts<'_, '_> {
    fn read(&mut self, ids: &[EscId]) -> Result<Vec<Option<EscRecord>>> {
        self.reads += ids.len() as u64;
        let mut read = |id: &EscId| {
            current::spend(1)?;
            let Some(key) = self.unit.locate(count_key(id))? else { return Ok(None) };
            let stored = self.unit.read(&key)?;
            stored.map(|stored| EscRecord::parse(stored.as_doc())).transpose()
        };
        ids.iter().map(&mut read).collect()
    }
}

/// Reads counts in one snapshot: a search over several versions could begin before a compaction and
/// end after it, and find nothing.
pub struct SnapshotCounts {
    snapshot: Snapshot,
    /// The collection of counts, if there is one.
    counts: Option<Arc<Collection>>,
}

impl SnapshotCounts {
    /// The reader of a command, in its view.
    ///
    /// # Errors
    /// Errors of the engine.
    pub fn of(
        session: StoreSession<'_>,
        counts: Option<Arc<Collection>>,
    ) -> Result<SnapshotCounts> {
        Ok(SnapshotCounts { snapshot: session.snapshot()?, counts })
    }
}

impl EscReader for SnapshotCounts {
    fn read(&mut self, ids: &[EscId]) -> Result<Vec<Option<EscRecord>>> {
        let Some(counts) = &self.counts else { return Ok(vec![None; ids.len()]) };
        let read = |id: &EscId| {
            current::spend(1)?;
            let Some(key) = self.snapshot.locate_stored(counts, &count_key(id))? else {
                return Ok(None);
            };
            let mut found = None;
            self.snapshot.record(counts, &key, &mut |document| {
                found = Some(EscRecord::parse(document)?);
                Ok(())
            })?;
            Ok(found)
        };
        ids.iter().map(read).collect()
    }
}

/// The ordered key of a document of the counts.
pub(super) fn count_key(id: &EscId) -> IdKey {
    id_key(RawValue::Binary { subtype: 0, bytes: id })
}
