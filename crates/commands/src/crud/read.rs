//! Shared parts of reading commands: refused arguments, hints, and cursors in replies.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use mayfly_base::{Error, Result};
use mayfly_query::{BatchLimit, Cursor, CursorOrigin, Hint};
use mayfly_service::IdleTime;
use mayfly_storage::Collection;
use mayfly_value::{Collation, DocBuilder, RawValue};
use mayfly_work::memory;
use mayfly_work::memory::RetainedBytes;

use crate::context::CommandContext;
use crate::request::Fields;

/// The default size of a cursor's first batch, in documents.
const FIRST_BATCH_DOCUMENTS: usize = 101;

/// Refuses arguments that are not supported, unless they have no effect: null, false, an empty
/// document.
///
/// # Errors
/// 238 NotImplemented.
pub(super) fn refuse(fields: &Fields<'_>, names: &[&str]) -> Result<()> {
    for name in names {
        let harmless = match fields.get(name) {
            None | Some(RawValue::Bool(false)) => true,
            Some(RawValue::Document(value)) => value.is_empty(),
            Some(RawValue::Array(value)) => value.is_empty(),
            Some(_) => false,
        };
        if !harmless {
            return Err(Error::not_implemented(format_args!("the argument '{name}'")));
        }
    }
    Ok(())
}

/// The `hint` argument.
///
/// # Errors
/// Errors of [`Hint::parse`].
pub(super) fn hint(fields: &Fields<'_>) -> Result<Option<Hint>> {
    match fields.get("hint") {
        None => Ok(None),
        Some(value) => Hint::parse(value),
    }
}

/// The `collation` argument.
#[derive(Clone)]
pub(crate) enum Collating {
    /// None was given: that of the collection.
    AsCollection,
    /// This one; `None` is the simple collation.
    By(Option<Arc<Collation>>),
}

impl Collating {
    /// Reads the argument; an empty document counts as none.
    ///
    /// # Errors
    /// 14 TypeMismatch; errors of [`Collation::parse`].
    pub(crate) fn parse(fields: &Fields<'_>) -> Result<Collating> {
        match fields.document("collation")? {
            Some(collation) if !collation.is_empty() => {
                Ok(Collating::By(Collation::parse(collation, "collation")?))
            }
            _ => Ok(Collating::AsCollection),
        }
    }

    /// The collation of an operation on this collection.
    pub(crate) fn over(&self, collection: Option<&Collection>) -> Option<Arc<Collation>> {
        match self {
            Collating::AsCollection => collection?.collation().cloned(),
            Collating::By(collation) => collation.clone(),
        }
    }
}

/// Options of a new cursor.
#[derive(Clone, Copy, Default)]
pub(crate) struct FirstBatch {
    /// `batchSize`, if it was given.
    pub(crate) size: Option<i64>,
    /// Whether the cursor is closed after the first batch.
    pub(crate) single: bool,
    /// Whether the cursor has no timeout.
    pub(crate) no_timeout: bool,
}

impl FirstBatch {
    /// The largest number of documents in the first batch.
    pub(crate) fn documents(&self) -> usize {
        self.size.map_or(FIRST_BATCH_DOCUMENTS, |size| usize::try_from(size).unwrap_or(usize::MAX))
    }
}

/// Appends `cursor: { firstBatch, id, ns }` and registers the cursor if it has more results.
///
/// # Errors
/// Errors of the plan.
pub(crate) fn first_batch(
    ctx: &CommandContext<'_>,
    mut cursor: Cursor,
    batch: FirstBatch,
    reply: &mut DocBuilder,
) -> Result<()> {
    let shown = cursor.namespace.clone();
    let size = batch.documents();
    let (began, reply_before) = (memory::mark(), reply.capacity());
    reply.start_document("cursor").start_array("firstBatch");
    let limit = BatchLimit { documents: Some(size) };
    let count = cursor.fill(ctx.store, limit, reply)?;
    cursor.returned.batches += 1;
    cursor.only_durable = ctx.only_durable;
    note_shown(ctx, &cursor, count);
    reply.end();
    if let Some(token) = cursor.resume_token() {
        reply.append("postBatchResumeToken", &token);
    }
    if let Some(time) = ctx.store.view.cluster_time() {
        if !batch.single {
            cursor.spool_rest(ctx.store, &ctx.service.spill_folder())?;
        }
        reply.append("atClusterTime", RawValue::Timestamp(time));
    }
    let id = if batch.single || cursor.is_done() {
        0
    } else {
        let owner = ctx.cursor_owner();
        cursor.time_left_micros = ctx.op.time_left_micros();
        ctx.op.update_info(|info| {
            let (command, plan_summary) =
                (info.command.as_slice().into(), info.plan_summary.clone());
            cursor.origin = Some(CursorOrigin { command, plan_summary });
        });
        let mut kept = RetainedBytes::default();
        kept.grown_since(began, reply.capacity() - reply_before);
        let now_micros = ctx.op.monotonic_micros();
        let idle = if batch.no_timeout { IdleTime::Unlimited } else { IdleTime::Limited };
        ctx.service.cursors.register((cursor, kept), owner, idle, now_micros)
    };
    reply.append("id", id).append("ns", shown.as_str()).end();
    Ok(())
}

/// Counts the documents of a batch, and makes the reply wait until they are durable if necessary.
pub(super) fn note_shown(ctx: &CommandContext<'_>, cursor: &Cursor, count: usize) {
    ctx.service.metrics.documents.returned.add(count as u64);
    ctx.op.docs_returned.fetch_add(count as u64, Ordering::Relaxed);
    if count > 0
        && let Some(timestamp) = cursor.must_be_durable(&ctx.service.store)
        && !ctx.service.store.is_durable(timestamp)
    {
        ctx.effects.wait_until_durable(timestamp);
    }
}

/// Appends `cursor: { firstBatch: [], id: 0, ns }`.
pub(super) fn empty_cursor(ctx: &CommandContext<'_>, ns: &str, reply: &mut DocBuilder) {
    reply.start_document("cursor").start_array("firstBatch").end();
    if let Some(time) = ctx.store.view.cluster_time() {
        reply.append("atClusterTime", RawValue::Timestamp(time));
    }
    reply.append("id", 0i64).append("ns", ns).end();
}
