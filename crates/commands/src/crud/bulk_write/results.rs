//! The results of a `bulkWrite`: a document per operation, and totals.

use std::collections::VecDeque;

use mayfly_base::{Error, Result};
use mayfly_query::ModifyOutcome;
use mayfly_value::{DocBuf, DocBuilder, RawDoc};

use crate::context::CommandContext;
use crate::context::DocumentChanges;
use crate::crud::write::{clamped, ends_command};

/// The kind of an operation.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum OperationKind {
    Insert,
    Update,
    Delete,
}

/// The result of a successful operation.
pub(super) enum Outcome {
    Inserted,
    Updated(ModifyOutcome),
    Deleted(i64),
}

/// The operations whose results the reply lists.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ListedResults {
    All,
    Errors,
}

/// The results so far.
pub(super) struct Results {
    listed: ListedResults,
    items: VecDeque<DocBuf>,
    counts: Counts,
}

/// The totals in the reply.
#[derive(Default)]
pub(super) struct Counts {
    errors: i64,
    inserted: i64,
    matched: i64,
    modified: i64,
    upserted: i64,
    deleted: i64,
}

impl Results {
    pub(super) fn new(listed: ListedResults) -> Results {
        Results { listed, items: VecDeque::new(), counts: Counts::default() }
    }

    /// Records the result of an operation; returns whether it failed.
    ///
    /// # Errors
    /// An error that ends the whole command.
    pub(super) fn note(
        &mut self,
        ctx: &CommandContext<'_>,
        index: usize,
        kind: OperationKind,
        outcome: Result<Outcome>,
    ) -> Result<bool> {
        match outcome {
            Err(error) if ends_command(ctx, &error) => Err(error),
            Err(error) => {
                ctx.effects.fail_statement();
                self.failed(index, kind, &error);
                Ok(true)
            }
            Ok(outcome) => {
                self.done(index, outcome);
                Ok(false)
            }
        }
    }

    fn done(&mut self, index: usize, outcome: Outcome) {
        let counts = &mut self.counts;
        let mut item = DocBuilder::new();
        item.append("ok", 1.0).append("idx", index as i32);
        match outcome {
            Outcome::Inserted => {
                counts.inserted += 1;
                item.append("n", 1);
            }
            Outcome::Deleted(deleted) => {
                counts.deleted += deleted;
                item.append("n", clamped(deleted));
            }
            Outcome::Updated(ModifyOutcome { matched, modified, upserted }) => {
                counts.matched += matched;
                counts.modified += modified;
                counts.upserted += i64::from(upserted.is_some());
                item.append("n", clamped(matched + i64::from(upserted.is_some())));
                item.append("nModified", clamped(modified));
                if let Some(id) = &upserted {
                    item.start_document("upserted").append("_id", id).end();
                }
            }
        }
        if self.listed == ListedResults::All {
            self.items.push_back(item.finish());
        }
    }

    fn failed(&mut self, index: usize, kind: OperationKind, error: &Error) {
        self.counts.errors += 1;
        let mut item = DocBuilder::new();
        item.append("ok", 0.0).append("idx", index as i32).append("n", 0);
        if kind == OperationKind::Update {
            item.append("nModified", 0);
        }
        item.append("code", error.code().0);
        if let Some(extra) = error.extra().and_then(RawDoc::new) {
            item.append_all(extra);
        }
        item.append("errmsg", error.message());
        self.items.push_back(item.finish());
    }

    pub(super) fn into_parts(self) -> (VecDeque<DocBuf>, Counts) {
        (self.items, self.counts)
    }
}

impl Counts {
    /// The numbers of changed documents.
    pub(super) fn changes(&self) -> DocumentChanges {
        DocumentChanges {
            inserted: self.inserted + self.upserted,
            updated: self.modified,
            deleted: self.deleted,
        }
    }

    pub(super) fn write(&self, reply: &mut DocBuilder) {
        reply.append("nErrors", clamped(self.errors)).append("nInserted", clamped(self.inserted));
        reply.append("nMatched", clamped(self.matched)).append("nModified", clamped(self.modified));
        reply.append("nUpserted", clamped(self.upserted)).append("nDeleted", clamped(self.deleted));
    }
}
