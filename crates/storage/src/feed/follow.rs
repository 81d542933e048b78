//! Reads the log after an index's position.

use std::collections::HashSet;
use std::ops::ControlFlow;

use mayfly_base::Result;
use mayfly_value::{RawDoc, RawValue};

use super::{FeedJob, FeedStep};
use crate::catalog::FeedRow;
use crate::oplog::{LogEntry, LogOperation};
use crate::record::IdKey;

/// The most documents that one step indexes, unless one entry of the log names more.
const STEP_DOCUMENTS: usize = if cfg!(test) { 10 } else { 2_000 };
/// The most entries that one step reads.
const STEP_ENTRIES: usize = if cfg!(test) { 50 } else { 20_000 };
/// The number of operations between two checks of the deadline.
const CHECK_EVERY: usize = 256;

/// What a part of the log says about one collection.
#[derive(Default)]
struct LogPart {
    /// The documents that it names.
    ids: HashSet<IdKey>,
    entries: usize,
    operations: usize,
    /// Whether the collection was renamed.
    renamed: bool,
    /// Whether the step's limit was reached before the end of the log.
    is_long: bool,
}

impl FeedJob<'_> {
    /// Indexes the documents that the next part of the log names.
    pub(super) fn follow(&self) -> Result<FeedStep> {
        let log = &self.store.oplog;
        let Some(after) = self.feed.reached(log, self.collection) else {
            return Ok(FeedStep::More);
        };
        let mut part = LogPart::default();
        let reached = log.read_changes(after, &mut |entry| self.read(entry, &mut part))?;
        if part.renamed {
            self.feed.end_watch();
        }
        let row = FeedRow { position: reached, filled: true };
        let mut ids: Vec<IdKey> = part.ids.into_iter().collect();
        ids.sort_unstable();
        // The row need not be written for entries about other collections: after a restart the step
        // reads them again.
        match ids.is_empty() && !part.is_long {
            true => self.feed.note(row),
            false => self.apply(&ids, Some(row))?,
        }
        Ok(if part.is_long { FeedStep::More } else { FeedStep::Current })
    }

    fn read(&self, entry: &LogEntry<'_>, part: &mut LogPart) -> Result<ControlFlow<()>> {
        part.entries += 1;
        entry.operations(&mut |operation| {
            part.operations += 1;
            if part.operations.is_multiple_of(CHECK_EVERY) {
                self.op.check()?;
            }
            self.read_operation(operation, part)?;
            Ok(ControlFlow::Continue(()))
        })?;
        part.is_long = part.ids.len() >= STEP_DOCUMENTS || part.entries >= STEP_ENTRIES;
        Ok(if part.is_long { ControlFlow::Break(()) } else { ControlFlow::Continue(()) })
    }

    fn read_operation(&self, operation: &LogOperation<'_>, part: &mut LogPart) -> Result<()> {
        let uuid = match operation.get("ui") {
            Some(RawValue::Binary { bytes, .. }) => bytes,
            _ => return Ok(()),
        };
        if *uuid != self.collection.uuid() {
            return Ok(());
        }
        let in_document = |document: RawDoc<'_>| {
            let id = document.get("_id").unwrap_or(RawValue::Null);
            self.collection.id_key(id)
        };
        let id = match operation.get("op").and_then(RawValue::as_str) {
            Some("i" | "d") => in_document(operation.object()?.as_doc()),
            Some("u") => match operation.get("o2").and_then(RawValue::as_document) {
                Some(named) => in_document(named),
                None => in_document(operation.object()?.as_doc()),
            },
            Some("c") => {
                part.renamed |= operation.object()?.as_doc().get("renameCollection").is_some();
                return Ok(());
            }
            _ => return Ok(()),
        };
        part.ids.insert(id);
        Ok(())
    }
}
