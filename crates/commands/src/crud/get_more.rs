//! `getMore` and `killCursors`.

use mayfly_value::arguments::{Argument, error::wrong_type};
use std::time::Duration;

use mayfly_auth::{Action, Target};
use mayfly_base::{Error, ErrorCode, ErrorLabel, Namespace, Result};
use mayfly_query::{AwaitedEvent, BatchLimit, Cursor};
use mayfly_service::{CursorOwner, Cursors};
use mayfly_value::{DocBuilder, RawValue};
use mayfly_work::memory;

use super::read::note_shown;
use crate::context::{Command, CommandContext, DataWait, Wait};
use crate::request::row::{Expected, InTransaction, Names, Reads, RowFlags};
use crate::request::{Needs, OpKind, Request};
use crate::rules::rights::demands;

pub(crate) const ROW: Command = Command::new("getMore", "Returns the next batch of a cursor", run)
    .arguments(ARGUMENTS)
    .needs(Needs::Demands(demands::get_more))
    .since("3.2")
    .flags(RowFlags::OWN_MAX_TIME.union(RowFlags::STABLE))
    .in_transaction(InTransaction::Statement)
    .names(Names::Field("collection"))
    .expected(Expected::Batch)
    .kind(OpKind::GetMore);
pub(crate) const KILL_CURSORS: Command = Command::new("killCursors", "Closes cursors", kill)
    .arguments(&[Argument::array("cursors").required()])
    .needs(Needs::InHandler)
    .since("3.2")
    .flags(RowFlags::STABLE)
    .reads(Reads::empty())
    .in_transaction(InTransaction::LaterStatement);

fn cursor_namespace(request: &Request<'_>, collection: &str) -> Result<Namespace> {
    Namespace::new(request.db, collection)
}
const ARGUMENTS: &[Argument] = &[
    Argument::string("collection").required(),
    Argument::whole("batchSize").at_least(0),
    Argument::whole("term").unstable(),
    Argument::document("lastKnownCommittedOpTime").unstable(),
];

fn run(ctx: &CommandContext<'_>, request: &Request<'_>, reply: &mut DocBuilder) -> Result<()> {
    let fields = request.arguments()?;
    let id = match request.target() {
        RawValue::Int64(id) => id,
        other => {
            return Err(fields.wrong_or_missing("getMore", other, "long"));
        }
    };
    let collection = fields.string("collection")?.ok_or_else(|| fields.missing("collection"))?;
    let ns = cursor_namespace(request, collection)?;
    let size = match fields.long("batchSize")? {
        None | Some(0) => None,
        Some(size) => usize::try_from(size).ok(),
    };
    let cursors = &ctx.service.cursors;
    let began = memory::mark();
    let reply_before = reply.capacity();
    let (mut cursor, mut kept) = cursors
        .take(id, &ns, &ctx.cursor_owner(), ctx.op.monotonic_micros())
        .map_err(|error| match error.code() {
            // The cursor existed when the wait began.
            ErrorCode::CursorNotFound if !ctx.waited.is_zero() => Error::new(
                ErrorCode::CursorKilled,
                "operation was interrupted because the cursor was killed",
            ),
            _ => error,
        })?;
    let mut taken = CursorInUse { cursors, id: Some(id) };
    if let Err(refused) = check_max_time(&cursor, request) {
        // The request is wrong, not the cursor: it stays open.
        taken.id = None;
        cursors.put_back(id, (cursor, kept), ctx.op.monotonic_micros());
        return Err(refused);
    }
    // It may have been killed while it waited for data.
    ctx.op.check_ended()?;
    ctx.op.update_info(|info| {
        info.ns = ns.as_str().to_owned();
        if let Some(origin) = &cursor.origin {
            info.originating_command = Some(origin.command.clone());
            info.plan_summary = origin.plan_summary.clone();
        }
    });
    if ctx.service.fail_points.any_on() && ctx.waited.is_zero() {
        crate::rules::faults::get_more(ctx).map_err(|error| label_resumable(error, &cursor))?;
    }
    reply.start_document("cursor").start_array("nextBatch");
    let limit = BatchLimit { documents: size };
    fill(ctx, request, (id, &mut cursor), limit, reply)
        .map_err(|error| label_resumable(error, &cursor))?;
    reply.end();
    if let Some(token) = cursor.resume_token() {
        reply.append("postBatchResumeToken", &token);
    }
    taken.id = None;
    kept.grown_since(began, reply.capacity() - reply_before);
    let open = cursors.put_back(id, (cursor, kept), ctx.op.monotonic_micros());
    if open && ctx.exhaust.allowed {
        // The connection's loop runs the command again for the next batch.
        ctx.effects.stream();
    }
    reply.append("id", if open { id } else { 0 }).append("ns", ns.as_str()).end();
    Ok(())
}

/// The default wait of a cursor that awaits data.
const AWAIT_DATA: Duration = Duration::from_secs(1);
/// The interval at which a wait for a commit on a collection ends, to check that the collection
/// still exists.
const AWAIT_STEP: Duration = Duration::from_secs(1);

/// Checks that `maxTimeMS` is given only for a cursor that awaits data.
///
/// # Errors
/// 2 BadValue.
fn check_max_time(cursor: &Cursor, request: &Request<'_>) -> Result<()> {
    match cursor.awaited() {
        None if request.generic.max_time_ms > 0 => Err(Error::bad_value(
            "cannot set maxTimeMS on getMore command for a non-awaitData cursor",
        )),
        _ => Ok(()),
    }
}

/// Fills a batch. For a cursor that awaits data, `maxTimeMS` is the longest wait; of other cursors
/// the deadline is the remaining time of the command that opened the cursor (time between
/// batches does not count). The connection's loop does the waiting and runs the command
/// again, so that a waiting cursor needs no thread.
fn fill(
    ctx: &CommandContext<'_>,
    request: &Request<'_>,
    (id, cursor): (i64, &mut Cursor),
    limit: BatchLimit,
    reply: &mut DocBuilder,
) -> Result<()> {
    let store = &ctx.service.store;
    let max_time_ms = request.generic.max_time_ms;
    let Some(awaited) = cursor.awaited() else {
        let left_micros = cursor.time_left_micros;
        let limit_ms = left_micros.map_or(0, |micros| (micros / 1000).max(1));
        if limit_ms > 0 {
            match ctx.service.fail_points.any_on() {
                true => crate::rules::faults::limited(ctx.service, ctx.op, limit_ms)?,
                false => ctx.op.set_max_time_ms(limit_ms),
            }
        }
        let count = cursor.fill(ctx.store, limit, reply)?;
        if left_micros.is_some() {
            cursor.time_left_micros = ctx.op.time_left_micros().or(left_micros);
        }
        cursor.returned.batches += 1;
        note_shown(ctx, cursor, count);
        return Ok(());
    };
    let longest = match max_time_ms {
        0 => AWAIT_DATA,
        given => Duration::from_millis(given.unsigned_abs()),
    };
    let left = longest.saturating_sub(ctx.waited);
    let seen = awaited.seen(store);
    let count = cursor.fill(ctx.store, limit, reply)?;
    note_shown(ctx, cursor, count);
    let seen = cursor.reached().unwrap_or(seen);
    cursor.empty_up_to = (count == 0).then_some(seen);
    if count == 0 && !cursor.is_done() && !left.is_zero() && !ctx.service.shutdown.has_begun() {
        let longest = match awaited {
            AwaitedEvent::Collection(_) => left.min(AWAIT_STEP),
            // A dropped collection is a change.
            AwaitedEvent::Changes | AwaitedEvent::Events(_) => left,
        };
        ctx.effects.wait_for(Wait::Data(DataWait { awaited, cursor: Some(id), seen, longest }));
    } else {
        cursor.returned.batches += 1;
    }
    Ok(())
}

/// Codes after which a client resumes a change stream. Specification "Change Streams", "Resumable
/// Error".
const RESUMABLE: &[ErrorCode] = &[
    ErrorCode::HostUnreachable,
    ErrorCode::HostNotFound,
    ErrorCode::OBSOLETE_StaleShardVersion,
    ErrorCode::NetworkTimeout,
    ErrorCode::ShutdownInProgress,
    ErrorCode::FailedToSatisfyReadPreference,
    ErrorCode::StaleEpoch,
    ErrorCode::PrimarySteppedDown,
    ErrorCode::RetryChangeStream,
    ErrorCode::ExceededTimeLimit,
    ErrorCode::SocketException,
    ErrorCode::NotWritablePrimary,
    ErrorCode::StaleConfig,
    ErrorCode::InterruptedAtShutdown,
    ErrorCode::InterruptedDueToReplStateChange,
    ErrorCode::NotPrimaryNoSecondaryOk,
    ErrorCode::NotPrimaryOrSecondary,
];

/// Adds the label that makes clients resume a change stream to an error of its batch.
fn label_resumable(error: Error, cursor: &Cursor) -> Error {
    match RESUMABLE.contains(&error.code()) && cursor.reached().is_some() {
        true => error.with_label(ErrorLabel::ResumableChangeStream),
        false => error,
    }
}

/// A cursor in use; if its batch fails in any way, it is closed.
struct CursorInUse<'c> {
    cursors: &'c Cursors,
    id: Option<i64>,
}

impl Drop for CursorInUse<'_> {
    fn drop(&mut self) {
        if let Some(id) = self.id {
            self.cursors.forget(id);
        }
    }
}

fn kill(ctx: &CommandContext<'_>, request: &Request<'_>, reply: &mut DocBuilder) -> Result<()> {
    let fields = request.arguments()?;
    match request.target() {
        RawValue::String(collection) => drop(cursor_namespace(request, collection)?),
        other => return Err(fields.wrong("killCursors", other, "string")),
    }
    let list = fields.array("cursors")?.ok_or_else(|| fields.missing("cursors"))?;
    let mut ids = Vec::new();
    for element in list {
        match element.value() {
            RawValue::Int64(id) => ids.push(id),
            RawValue::Null | RawValue::Undefined => {}
            other => {
                let path = format!("killCursors.cursors.{}", element.name());
                return Err(wrong_type(path, other, "long"));
            }
        }
    }
    let asker = ctx.cursor_owner().user;
    let may = |owner: &CursorOwner, ns: &Namespace| {
        let collection = Target::Collection(ns.db(), ns.collection());
        owner.user == asker || ctx.authority.allows(collection, Action::KillAnyCursor)
    };
    let result = ctx.service.cursors.kill(&ids, may);
    let mut list = |name: &str, ids: &[i64]| {
        reply.start_array(name);
        ids.iter().for_each(|id| {
            reply.push(*id);
        });
        reply.end();
    };
    list("cursorsKilled", &result.killed);
    list("cursorsNotFound", &result.not_found);
    list("cursorsAlive", &[]);
    list("cursorsUnknown", &[]);
    Ok(())
}
