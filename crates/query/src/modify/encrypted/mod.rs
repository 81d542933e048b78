//! Writes to collections with encrypted fields: the state of the values is written in the same unit
//! as the document.
//!
//! ```text
//!  db.c                 {_id: 1, name: BinData(6, stored value), __safeContent__: [tag]}
//!  db.enxcol_.c.esc     {_id: BinData(0, HMAC(.., count))}
//!  db.enxcol_.c.ecoc    {_id: ObjectId, fieldName: "name", value: BinData(0, ..)}
//! ```
//!
//! The unit plans the write ([`plan_write`]) over its own transaction, and reads each document of
//! the counts under its lock, also one that does not exist. Two units that insert the same value
//! with the same contention factor read the same next count, and one of them fails with a conflict.
//! Its body then runs again over a new snapshot and plans with the new count. The same holds if a
//! compaction has replaced counts by an anchor meanwhile, because the search reads the position of
//! the next anchor under its lock, too. In a client's transaction the conflict ends the
//! transaction.

use std::sync::Arc;

use mayfly_base::{Error, ErrorCode, Namespace, Result};
use mayfly_encryption::{EncryptedFields, esc_document, plan_write};
use mayfly_storage::{Collection, OtherCollection, WriteUnit};
use mayfly_value::{DocBuf, RawDoc, new_object_id};

mod reader;
#[cfg(test)]
mod tests;
mod upkeep;

pub use reader::SnapshotCounts;
use reader::UnitCounts;
pub use upkeep::{Upkeep, UpkeepFigures, UpkeepKind};

/// The encrypted fields of a command's collection, and the collections with their state.
pub struct EncryptedWrites {
    fields: EncryptedFields,
    /// The collection of counts and the queue of compaction.
    others: [OtherCollection; 2],
    /// The time in the ids of queue entries, in milliseconds since 1970.
    now_ms: i64,
}

/// The two collections with the state of encrypted fields.
pub struct StateCollections {
    /// `enxcol_.NAME.esc`: how often each value was inserted.
    pub counts: (Namespace, Arc<Collection>),
    /// `enxcol_.NAME.ecoc`: the queue of compaction.
    pub queue: (Namespace, Arc<Collection>),
}

impl EncryptedWrites {
    /// The writes of a command with this definition.
    pub fn new(fields: EncryptedFields, state: StateCollections, now_ms: i64) -> EncryptedWrites {
        let StateCollections { counts, queue } = state;
        let others = [(counts.0, Ok(counts.1)), (queue.0, Ok(queue.1))];
        EncryptedWrites { fields, others, now_ms }
    }

    /// The collections that a unit needs besides that of the documents.
    pub fn others(&self) -> &[OtherCollection] {
        &self.others
    }

    /// Inserts a document with payloads.
    ///
    /// # Errors
    /// Errors of [`EncryptedWrites::planned`] and of [`WriteUnit::insert`].
    pub fn insert(&self, unit: &mut WriteUnit<'_>, document: RawDoc<'_>) -> Result<()> {
        let planned = self.planned(unit, None, document)?;
        unit.insert(planned.as_doc())
    }

    /// Plans the write of a document and writes the state of its values. Returns the document to
    /// store.
    ///
    /// # Errors
    /// Errors of [`plan_write`]; 112 WriteConflict; 6346807 for a collection without encrypted
    /// fields.
    pub fn planned(
        &self,
        unit: &mut WriteUnit<'_>,
        before: Option<RawDoc<'_>>,
        after: RawDoc<'_>,
    ) -> Result<DocBuf> {
        unit.write_planned_tags()?;
        let [(counts, _), (queue, _)] = &self.others;
        let plan = unit.within(counts, |unit| {
            let (reader, iv) = (&mut UnitCounts::of(unit), &mut || rand::random());
            let plan = plan_write(before, after, &self.fields, reader, iv)?;
            for id in &plan.counts {
                unit.insert(esc_document(id).as_doc()).map_err(plan_again)?;
            }
            Ok(plan)
        })?;
        if !plan.queue.is_empty() {
            unit.within(queue, |unit| {
                plan.queue.iter().try_for_each(|entry| {
                    unit.insert(entry.document(new_object_id(self.now_ms)).as_doc())
                })
            })?;
        }
        Ok(plan.document)
    }
}

/// A count that another writer has taken is a conflict: the unit plans again.
fn plan_again(error: Error) -> Error {
    match error.code() {
        ErrorCode::DuplicateKey => {
            Error::new(ErrorCode::WriteConflict, "an encrypted value was inserted concurrently")
        }
        _ => error,
    }
}
