//! Updates and deletes. A search finds the records; a write unit then reads each record again and
//! checks the filter before it changes it, so that no concurrent write is lost.

mod change;
mod encrypted;
mod find_and_modify;
mod record;
mod scan;
mod shown;
mod together;
mod units;
mod upsert;

use mayfly_storage::StoreSession;
use std::sync::Arc;

use mayfly_base::Result;
use mayfly_mql::Update;
use mayfly_storage::{Collection, RecordKey, WriteUnit};
use mayfly_value::{DocBuf, ValueBuf};

use crate::language::CanonicalQuery;
use crate::memory::Budget;
use change::{Change, Deletion, change_one, delete_one};
pub use encrypted::{
    EncryptedWrites, SnapshotCounts, StateCollections, Upkeep, UpkeepFigures, UpkeepKind,
};
pub use find_and_modify::{FindAndModifySpec, FoundAndModified, find_and_modify};
pub(crate) use record::Images;
pub use record::{Image, Repeatable};
use scan::{SearchAgain, WriteTarget, for_each_record};
pub(crate) use shown::ReturnedVersion;
pub use together::{SingleWrite, Unmatched, WriteKind, write_together};
pub use units::UNIT_WRITES;
use units::{UnitTarget, UnitWrite, change_all};
pub(crate) use upsert::{Upserted, upsert_one};

/// Limit on the retries of a single-document write whose record was changed by another writer.
pub(crate) const MAX_LOST_RACES: usize = 1000;

/// One update statement.
pub struct UpdateSpec {
    /// The filter, and the order for a single-document update.
    pub query: CanonicalQuery,
    /// The update to apply.
    pub update: Update,
    /// Whether all documents are updated, or the first.
    pub multi: bool,
    /// Whether to insert a document if none matches.
    pub upsert: bool,
    /// The document that an upsert inserts (`upsertSupplied`), if it is given.
    pub supplied: Option<DocBuf>,
    /// The `_id` of an upserted document if query and update do not determine it.
    pub new_id: [u8; 12],
    /// How a retryable single-document statement is recorded.
    pub repeatable: Option<Repeatable>,
    /// Whether documents bypass validation.
    pub bypass_validation: bool,
    /// Memory and files for the search of a multi-document update.
    pub budget: Budget,
    /// The encrypted fields of the collection, if the command has encrypted values. Such an update
    /// concerns one document.
    pub encrypted: Option<Arc<EncryptedWrites>>,
}

impl UpdateSpec {
    /// What its units write to.
    fn target<'t>(&'t self, collection: &'t Collection) -> UnitTarget<'t> {
        let others = self.encrypted.as_ref().map_or(&[][..], |encrypted| encrypted.others());
        UnitTarget { collection, others }
    }
}

/// One delete statement.
pub struct DeleteSpec {
    /// The filter, and the order for a single-document delete.
    pub query: CanonicalQuery,
    /// Whether all documents are deleted, or the first.
    pub multi: bool,
    /// How a retryable single-document statement is recorded.
    pub repeatable: Option<Repeatable>,
    /// Memory and files for the search of a multi-document delete.
    pub budget: Budget,
}

/// The outcome of a statement.
#[derive(Debug, Default)]
pub struct ModifyOutcome {
    /// Number of documents that matched.
    pub matched: i64,
    /// Number of documents that changed.
    pub modified: i64,
    /// `_id` of the document that was inserted.
    pub upserted: Option<ValueBuf>,
}

/// A document before and after a write. An insert has no earlier version, and an unchanged document
/// no later one.
pub(crate) struct Versions {
    pub(crate) before: Option<DocBuf>,
    pub(crate) after: Option<DocBuf>,
}

/// Runs an update statement. The collection must exist if `upsert` is set.
///
/// # Errors
/// Errors of the update language, of storage, and of the operation's deadline. Changes before an
/// error persist.
pub fn update(
    session: StoreSession<'_>,
    collection: &Arc<Collection>,
    spec: &UpdateSpec,
) -> Result<ModifyOutcome> {
    update_with(session, collection, spec, ReturnedVersion::nothing(&spec.query), &mut |_| {})
}

/// Runs an update statement, and calls `seen` for every document that matched or was inserted.
pub(crate) fn update_with(
    session: StoreSession<'_>,
    collection: &Arc<Collection>,
    spec: &UpdateSpec,
    shown: ReturnedVersion<'_>,
    seen: &mut dyn FnMut(Versions),
) -> Result<ModifyOutcome> {
    for lost_races in 0.. {
        let outcome = update_found(session, collection, spec, shown, seen)?;
        if outcome.matched > 0 || !spec.upsert {
            return Ok(outcome);
        }
        match upsert_one(session, collection, spec, shown)? {
            Upserted::Inserted { id, document } => {
                seen(Versions { before: None, after: Some(document) });
                return Ok(ModifyOutcome { upserted: Some(id), ..ModifyOutcome::default() });
            }
            Upserted::WasThere(error) if lost_races >= MAX_LOST_RACES => return Err(error),
            // Another writer inserted the document first: update that one, unless it was deleted
            // again.
            Upserted::WasThere(_) => session.op.check()?,
        }
    }
    unreachable!("the races that may be lost are counted")
}

fn update_found(
    session: StoreSession<'_>,
    collection: &Arc<Collection>,
    spec: &UpdateSpec,
    shown: ReturnedVersion<'_>,
    seen: &mut dyn FnMut(Versions),
) -> Result<ModifyOutcome> {
    let UpdateSpec { query, multi, budget, .. } = spec;
    let target = WriteTarget { query, multi: *multi, budget, again: SearchAgain::UntilFirst };
    let mut outcome = ModifyOutcome::default();
    let change = |unit: &mut WriteUnit<'_>, key: &RecordKey, room| {
        change_one(unit, key, spec, shown, session.op.now_ms(), room).map(UnitWrite::from)
    };
    for_each_record(session, collection, target, &mut |found| {
        let matched = outcome.matched;
        change_all(session, spec.target(collection), found, &change, &mut |change| match change {
            Change::Gone | Change::NoRoom => {}
            Change::Same(before) => {
                outcome.matched += 1;
                seen(Versions { before: Some(before), after: None });
            }
            Change::Written { before, after } => {
                outcome.matched += 1;
                outcome.modified += 1;
                seen(Versions { before: Some(before), after: Some(after) });
            }
        })?;
        Ok(outcome.matched > matched)
    })?;
    Ok(outcome)
}

/// Runs a delete statement. Returns the number of deleted documents.
///
/// # Errors
/// Errors of storage and of the operation's deadline.
pub fn delete(
    session: StoreSession<'_>,
    collection: &Arc<Collection>,
    spec: &DeleteSpec,
) -> Result<i64> {
    let mut deleted = 0;
    let shown = ReturnedVersion::nothing(&spec.query);
    delete_with(session, collection, spec, shown, &mut |_| deleted += 1)?;
    Ok(deleted)
}

/// Runs a delete statement, and calls `seen` for every deleted document.
fn delete_with(
    session: StoreSession<'_>,
    collection: &Arc<Collection>,
    spec: &DeleteSpec,
    shown: ReturnedVersion<'_>,
    seen: &mut dyn FnMut(DocBuf),
) -> Result<()> {
    let DeleteSpec { query, multi, budget, .. } = spec;
    let target = WriteTarget { query, multi: *multi, budget, again: SearchAgain::Always };
    let change = |unit: &mut WriteUnit<'_>, key: &RecordKey, room| {
        delete_one(unit, key, spec, shown, room).map(UnitWrite::from)
    };
    for_each_record(session, collection, target, &mut |found| {
        let mut acted = false;
        change_all(session, UnitTarget::only(collection), found, &change, &mut |gone| {
            if let Deletion::Done(document) = gone {
                acted = true;
                seen(document);
            }
        })?;
        Ok(acted)
    })
}
