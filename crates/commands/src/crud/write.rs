//! What the write commands share: where their statements go, per-item errors, and the shape of the reply.

use mayfly_storage::StoreSession;
use std::sync::Arc;

use mayfly_base::{Error, ErrorCode, Namespace, Result, limits};
use mayfly_storage::{Collection, OPLOG};
use mayfly_value::{DocBuilder, RawDoc, RawElement, RawValue, ValueBuf};

use crate::context::CommandContext;
use crate::request::Fields;
use crate::rules::transaction;

/// Results of the statements of one command.
#[derive(Default)]
pub(super) struct WriteResults {
    /// Documents inserted, matched or deleted.
    pub(super) n: i64,
    errors: Vec<(usize, Error)>,
    pub(super) upserted: Vec<(usize, ValueBuf)>,
}

impl WriteResults {
    /// Notes the error of a statement. True when the command goes no further.
    pub(super) fn fail(
        &mut self,
        ctx: &CommandContext<'_>,
        index: usize,
        error: Error,
        options: WriteOptions,
    ) -> bool {
        self.errors.push((index, error));
        ctx.effects.fail_statement();
        // Inside a transaction nothing is done after a failure.
        ctx.store.in_transaction() || options.ordered
    }

    /// The errors, by the index of their statement.
    pub(super) fn into_errors(self) -> Vec<(usize, Error)> {
        self.errors
    }

    /// Writes the fields that all write commands have.
    pub(super) fn write(&self, reply: &mut DocBuilder, modified: Option<i64>) {
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
            // Explanations of very many errors would make a reply that no client takes.
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

/// So much is said about errors; of further ones only the code.
const MAX_EXPLAINED_BYTES: usize = 8 << 20;

/// A count as replies have it.
pub(super) fn clamped(count: i64) -> i32 {
    i32::try_from(count).unwrap_or(i32::MAX)
}

/// Errors that end a whole command instead of being reported beside their statement.
pub(super) fn ends_command(ctx: &CommandContext<'_>, error: &Error) -> bool {
    matches!(
        error.code(),
        ErrorCode::MaxTimeMSExpired
            | ErrorCode::Interrupted
            | ErrorCode::InterruptedAtShutdown
            | ErrorCode::InterruptedDueToReplStateChange
            | ErrorCode::NotWritablePrimary
            // Nobody knows whether the statement was committed: the client may send the command again.
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

/// The rules that the documents of a write are checked by.
#[derive(Clone, Copy, Default)]
pub(super) struct DocumentRules {
    /// `bypassDocumentValidation`: documents need not follow the collection's rules.
    pub(super) bypass_validation: bool,
    /// `bypassEmptyTsReplacement`: empty timestamps stay as they are.
    pub(super) keep_empty_timestamps: bool,
}

impl DocumentRules {
    /// Reads both arguments.
    ///
    /// # Errors
    /// 14 TypeMismatch; numbers are no flags in the second.
    pub(super) fn parse(fields: &Fields<'_>) -> Result<DocumentRules> {
        Ok(DocumentRules {
            bypass_validation: fields.bool("bypassDocumentValidation")?.unwrap_or(false),
            keep_empty_timestamps: keep_empty_timestamps(fields)?,
        })
    }
}

/// How a command of several statements runs them.
#[derive(Clone, Copy)]
pub(super) struct WriteOptions {
    /// `ordered`: no statement follows one that failed.
    pub(super) ordered: bool,
    /// The rules for its documents.
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

/// The argument of writes that keeps empty timestamps.
const KEEP_EMPTY_TIMESTAMPS: &str = "bypassEmptyTsReplacement";

/// The `bypassEmptyTsReplacement` argument: whether empty timestamps are kept.
///
/// # Errors
/// 14 TypeMismatch; numbers are no flags here.
pub(super) fn keep_empty_timestamps(fields: &Fields<'_>) -> Result<bool> {
    match fields.get(KEEP_EMPTY_TIMESTAMPS) {
        None => Ok(false),
        Some(RawValue::Bool(keep)) => Ok(keep),
        Some(other) => Err(fields.wrong(KEEP_EMPTY_TIMESTAMPS, other, "bool")),
    }
}

/// The documents of `arrayFilters`.
///
/// # Errors
/// 14 TypeMismatch.
pub(super) fn array_filters<'a>(fields: &Fields<'a>) -> Result<Vec<RawDoc<'a>>> {
    let filters = fields.array("arrayFilters")?.unwrap_or(RawDoc::EMPTY);
    let document = |element: RawElement<'a>| match element.value() {
        RawValue::Document(filter) => Ok(filter),
        other => Err(fields.wrong(&format!("arrayFilters.{}", element.name()), other, "object")),
    };
    filters.iter().map(document).collect()
}

/// System collections of a user's database that applications write to.
const WRITABLE_SYSTEM: &[&str] = &["system.js", "system.views", "system.users", "system.roles"];

/// Refuses namespaces that nobody writes to.
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

/// Whether a write failed because its collection went away. That an index did is something else: a second run over the
/// same collection would change documents twice.
pub(super) fn was_dropped(store: StoreSession<'_>, error: &Error, collection: &Collection) -> bool {
    let code = error.code();
    // In a transaction it is a conflict.
    !store.in_transaction()
        && collection.is_dropped()
        && matches!(code, ErrorCode::NamespaceNotFound | ErrorCode::QueryPlanKilled)
}

/// Runs a write; when the collection is dropped under it, once more over a new one.
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
