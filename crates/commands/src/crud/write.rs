//! Shared parts of write commands: target namespaces, errors per statement, and the shape of the
//! reply.

use mayfly_service::profiler;
use mayfly_storage::StoreSession;
use std::sync::Arc;

use mayfly_base::{Error, ErrorCode, Namespace, Result, limits};
use mayfly_storage::{Collection, OPLOG};
use mayfly_value::{DocBuilder, RawDoc, RawElement, RawValue, ValueBuf};

use crate::context::CommandContext;
use crate::request::{Durability, Fields, Request};
use crate::rules::transaction;

/// The results of a command's statements.
#[derive(Default)]
pub(super) struct WriteResults {
    /// The number of inserted, matched or deleted documents.
    pub(super) n: i64,
    errors: Vec<(usize, Error)>,
    pub(super) upserted: Vec<(usize, ValueBuf)>,
}

impl WriteResults {
    /// Records the error of a statement; returns whether the command ends.
    pub(super) fn fail(
        &mut self,
        ctx: &CommandContext<'_>,
        index: usize,
        error: Error,
        options: WriteOptions,
    ) -> bool {
        self.errors.push((index, error));
        ctx.effects.fail_statement();
        // In a transaction, no statement follows a failed one.
        ctx.store.in_transaction() || options.ordered
    }

    /// The errors with the index of their statement.
    pub(super) fn into_errors(self) -> Vec<(usize, Error)> {
        self.errors
    }

    /// Appends the fields that all write commands have. The reply to an unacknowledged write, if
    /// the client wants one, has none of them.
    pub(super) fn write(
        &self,
        request: &Request<'_>,
        reply: &mut DocBuilder,
        modified: Option<i64>,
    ) {
        let generic = &request.generic;
        let durability = generic.write_concern.durability();
        if durability == Durability::None && generic.transaction.is_none() {
            return;
        }
        reply.append("n", clamped(self.n));
        if !self.upserted.is_empty() {
            reply.start_array("upserted");
            for (index, id) in &self.upserted {
                reply.push_document().append("index", *index as i32).append("_id", id).end();
            }
            reply.end();
        }
        if let Some(modified) = modified {
            reply.append("nModified", clamped(modified));
        }
        if self.errors.is_empty() {
            return;
        }
        reply.start_array("writeErrors");
        let before = reply.len();
        for (index, error) in &self.errors {
            // The full errors of very many statements would exceed the size of a reply.
            if reply.len() - before > MAX_EXPLAINED_BYTES {
                reply.push_document().append("index", *index as i32);
                reply.append("code", error.code().0).append("errmsg", "").end();
                continue;
            }
            reply.push_document().append("index", *index as i32).append("code", error.code().0);
            if let Some(extra) = error.extra().and_then(RawDoc::new) {
                reply.append_all(extra);
            }
            reply.append("errmsg", error.message()).end();
        }
        reply.end();
    }
}

/// The size of errors in a reply beyond which only codes are returned.
const MAX_EXPLAINED_BYTES: usize = 8 << 20;

/// A count as an int32, capped at the largest one.
pub(super) fn clamped(count: i64) -> i32 {
    i32::try_from(count).unwrap_or(i32::MAX)
}

/// Errors that end a whole command instead of being reported for their statement.
pub(super) fn ends_command(ctx: &CommandContext<'_>, error: &Error) -> bool {
    matches!(
        error.code(),
        ErrorCode::MaxTimeMSExpired
            | ErrorCode::Interrupted
            | ErrorCode::InterruptedAtShutdown
            | ErrorCode::InterruptedDueToReplStateChange
            | ErrorCode::NotWritablePrimary
            // It is unknown whether the statement was committed: the client may retry the command.
            | ErrorCode::HostUnreachable
    ) || transaction::ends_statement(ctx.store, error)
}

/// Checks the number of statements.
///
/// # Errors
/// 16 InvalidLength.
pub(super) fn check_count(count: usize) -> Result<()> {
    if count == 0 || count > limits::MAX_WRITE_BATCH_ITEMS {
        return Err(Error::new(
            ErrorCode::InvalidLength,
            format!(
                "Write batch sizes must be between 1 and {}. Got {count} operations.",
                limits::MAX_WRITE_BATCH_ITEMS
            ),
        ));
    }
    Ok(())
}

/// The rules for the documents of a write.
#[derive(Clone, Copy, Default)]
pub(super) struct DocumentRules {
    /// `bypassDocumentValidation`: whether documents may violate the collection's validator.
    pub(super) bypass_validation: bool,
    /// `bypassEmptyTsReplacement`: whether empty timestamps are kept.
    pub(super) keep_empty_timestamps: bool,
}

impl DocumentRules {
    /// Reads both arguments.
    ///
    /// # Errors
    /// 14 TypeMismatch; the second one must be a boolean.
    pub(super) fn parse(fields: &Fields<'_>) -> Result<DocumentRules> {
        Ok(DocumentRules {
            bypass_validation: fields.bool("bypassDocumentValidation")?.unwrap_or(false),
            keep_empty_timestamps: keep_empty_timestamps(fields)?,
        })
    }
}

/// Options of a command with several statements.
#[derive(Clone, Copy)]
pub(super) struct WriteOptions {
    /// `ordered`: whether a failed statement ends the command.
    pub(super) ordered: bool,
    /// The rules for written documents.
    pub(super) rules: DocumentRules,
}

impl WriteOptions {
    /// Reads the arguments.
    ///
    /// # Errors
    /// 14 TypeMismatch.
    pub(super) fn parse(fields: &Fields<'_>) -> Result<WriteOptions> {
        let ordered = fields.bool("ordered")?.unwrap_or(true);
        Ok(WriteOptions { ordered, rules: DocumentRules::parse(fields)? })
    }
}

/// The name of the argument that keeps empty timestamps.
const KEEP_EMPTY_TIMESTAMPS: &str = "bypassEmptyTsReplacement";

/// Reads `bypassEmptyTsReplacement`: whether empty timestamps are kept.
///
/// # Errors
/// 14 TypeMismatch, also for numbers.
pub(super) fn keep_empty_timestamps(fields: &Fields<'_>) -> Result<bool> {
    match fields.get(KEEP_EMPTY_TIMESTAMPS) {
        None => Ok(false),
        Some(RawValue::Bool(keep)) => Ok(keep),
        Some(other) => Err(fields.wrong(KEEP_EMPTY_TIMESTAMPS, other, "bool")),
    }
}

/// The documents of `arrayFilters`; elements that are null are skipped.
///
/// # Errors
/// 14 TypeMismatch.
pub(super) fn array_filters<'a>(fields: &Fields<'a>) -> Result<Vec<RawDoc<'a>>> {
    let filters = fields.array("arrayFilters")?.unwrap_or(RawDoc::EMPTY);
    let document = |element: RawElement<'a>| match element.value() {
        RawValue::Document(filter) => Some(Ok(filter)),
        RawValue::Null | RawValue::Undefined => None,
        other => {
            let name = format!("arrayFilters.{}", element.name());
            Some(Err(fields.wrong(&name, other, "object")))
        }
    };
    filters.iter().filter_map(document).collect()
}

/// System collections of user databases that applications may write to.
const WRITABLE_SYSTEM: &[&str] = &["system.js", "system.views", "system.users", "system.roles"];

/// Refuses namespaces that clients must not create. The collection of the profiler can be created,
/// although clients cannot write to it.
///
/// # Errors
/// 73 InvalidNamespace.
pub(crate) fn check_creatable(ns: &Namespace) -> Result<()> {
    match ns.collection() {
        profiler::COLLECTION => Ok(()),
        _ => check_writable(ns),
    }
}

/// Refuses namespaces that clients must not write to.
///
/// # Errors
/// 73 InvalidNamespace.
pub(crate) fn check_writable(ns: &Namespace) -> Result<()> {
    let collection = ns.collection();
    let invalid = |text: String| Err(Error::new(ErrorCode::InvalidNamespace, text));
    if ns.as_str() == OPLOG {
        return invalid(format!("cannot write to {ns}"));
    }
    if collection.starts_with('$') || collection.contains(".$") {
        return invalid(format!("Invalid namespace specified '{ns}'"));
    }
    let internal = matches!(ns.db(), "admin" | "config" | "local");
    if collection.starts_with("system.") && !internal && !WRITABLE_SYSTEM.contains(&collection) {
        return invalid(format!("cannot write to '{ns}'"));
    }
    Ok(())
}

/// Refuses definitions of system collections in a transaction.
///
/// # Errors
/// 263 OperationNotSupportedInTransaction.
pub(crate) fn check_definable(ctx: &CommandContext<'_>, ns: &Namespace) -> Result<()> {
    match ctx.store.in_transaction() && ns.collection().starts_with("system.") {
        true => Err(Error::new(
            ErrorCode::OperationNotSupportedInTransaction,
            format!("Cannot create system collection {ns} within a transaction."),
        )),
        false => Ok(()),
    }
}

/// Whether a write failed because its collection was dropped. A dropped index is different: a
/// second run over the same collection would change documents twice.
pub(super) fn was_dropped(store: StoreSession<'_>, error: &Error, collection: &Collection) -> bool {
    let code = error.code();
    // In a transaction it is a conflict.
    !store.in_transaction()
        && collection.is_dropped()
        && matches!(code, ErrorCode::NamespaceNotFound | ErrorCode::QueryPlanKilled)
}

/// Runs a write; if the collection is dropped concurrently, runs it again on a new one.
pub(super) fn on_collection<T>(
    ctx: &CommandContext<'_>,
    ns: &Namespace,
    mut act: impl FnMut(&Arc<Collection>) -> Result<T>,
) -> Result<T> {
    let mut tries = 0;
    loop {
        let (collection, _) = ctx.service.store.get_or_create(ctx.store.view, ns)?;
        match act(&collection) {
            Err(error) if tries < 10 && was_dropped(ctx.store, &error, &collection) => tries += 1,
            other => return other,
        }
    }
}
