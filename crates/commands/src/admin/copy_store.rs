//! `copyStore` and `moveStore`: what `mayflydb copy` asks of the server whose store it copies.
//! Extensions.
//!
//! `copyStore` returns the entries of one point of the store, the log after it, and the records of
//! retryable writes. `moveStore` makes writes wait, lets them go on, or ends the server because the
//! store has another place now.

use std::time::Duration;

use mayfly_auth::Action;
use mayfly_base::{Error, ErrorCode, Result};
use mayfly_service::Actor;
use mayfly_storage::{EntriesPosition, SessionsPart};
use mayfly_value::arguments::{Argument, Fields, Form};
use mayfly_value::{DocBuilder, RawValue};
use mayfly_work::current;

use crate::context::{Command, CommandContext};
use crate::request::row::{Expected, Reads, RowFlags};
use crate::request::{Needs, Request};

pub(super) const COPY: Command =
    Command::new("copyStore", "Returns a part of the store for a copy of it", run_copy)
        .arguments(COPY_ARGUMENTS)
        .needs(Needs::Cluster(&[Action::Backup]))
        .flags(RowFlags::ADMIN_ONLY.union(RowFlags::NOT_PROFILED))
        .reads(Reads::empty())
        .expected(Expected::Long);
pub(super) const MOVE: Command = Command::new(
    "moveStore",
    "Makes writes wait for the end of a copy, and ends the server",
    run_move,
)
.arguments(MOVE_ARGUMENTS)
.needs(Needs::Cluster(&[Action::Backup, Action::Fsync, Action::Shutdown]))
.flags(RowFlags::ADMIN_ONLY)
.reads(Reads::empty())
.expected(Expected::Long);

const BEGIN: &str = "begin";
const CONTINUE: &str = "continue";
const ENTRIES: &str = "entries";
const LOG: &str = "log";
const SESSIONS: &str = "sessions";
const END: &str = "end";
const HOLD: &str = "hold";
const RELEASE: &str = "release";
const FINISH: &str = "finish";

const COPY_ARGUMENTS: &[Argument] = &[
    Argument::choice("step", &[BEGIN, CONTINUE, ENTRIES, LOG, SESSIONS, END]).required(),
    Argument::uuid("copy").required(),
    Argument::new("after", Form::Timestamp),
    Argument::whole("keyspace"),
    Argument::new("key", Form::Binary),
    Argument::whole("since"),
];
const MOVE_ARGUMENTS: &[Argument] = &[
    Argument::choice("step", &[HOLD, RELEASE, FINISH]).required(),
    Argument::uuid("copy").required(),
    Argument::new("time", Form::Timestamp),
    Argument::whole("limitMillis").at_least(1).at_most(60_000),
];

/// Bytes of the log in one reply, before its last entry.
const LOG_BYTES: usize = 4 << 20;
/// How long a hold waits for running writes.
const HOLD_WAIT_MS: i64 = 5_000;
/// The length of a hold without an argument.
const HOLD_MS: i64 = 10_000;

fn time(fields: &Fields<'_>, name: &str) -> Result<u64> {
    match fields.required(name)? {
        RawValue::Timestamp(time) => Ok(time),
        other => Err(fields.wrong(name, other, "timestamp")),
    }
}

fn bytes(bytes: &[u8]) -> RawValue<'_> {
    RawValue::Binary { subtype: 0, bytes }
}

fn binary<'d>(fields: &Fields<'d>, name: &str) -> Option<&'d [u8]> {
    match fields.get(name)? {
        RawValue::Binary { bytes, .. } => Some(bytes),
        _ => None,
    }
}

fn run_copy(ctx: &CommandContext<'_>, request: &Request<'_>, reply: &mut DocBuilder) -> Result<()> {
    let fields = request.arguments()?;
    let copy = fields.uuid("copy").unwrap_or_default();
    let store = &ctx.service.store;
    if store.is_secondary() {
        let text = "a secondary has no log of its own; name the primary";
        return Err(Error::new(ErrorCode::NotWritablePrimary, text));
    }
    match fields.string("step")?.unwrap_or_default() {
        BEGIN => {
            let point = current::wait(|| store.begin_copy(ctx.op, copy))?;
            reply.append("store", RawValue::uuid(&point.store));
            reply.append("time", RawValue::Timestamp(point.time));
            reply.append("goesOn", point.goes_on);
            reply.append("bytes", i64::try_from(point.bytes).unwrap_or(i64::MAX));
        }
        CONTINUE => {
            let identity = store.continue_copy(copy, time(&fields, "after")?)?;
            reply.append("store", RawValue::uuid(&identity));
        }
        ENTRIES => {
            let run = current::wait(|| store.copy_entries(copy, position(&fields)?.as_ref()))?;
            if let Some(run) = run {
                reply.append("run", bytes(&run));
            }
        }
        LOG => {
            let (after, mut entries) = (time(&fields, "after")?, Vec::new());
            let reached = current::wait(|| store.copy_log(copy, after, LOG_BYTES, &mut entries))?;
            reply.append("entries", bytes(&entries));
            reply.append("reached", RawValue::Timestamp(reached));
            reply.append("settled", RawValue::Timestamp(store.oplog().settled()));
        }
        SESSIONS => {
            let since = fields.long("since")?.unwrap_or(0);
            let after = binary(&fields, "key");
            let SessionsPart { run, next } =
                current::wait(|| store.copy_sessions(copy, since, after))?;
            reply.append("run", bytes(&run));
            if let Some(next) = &next {
                reply.append("next", bytes(next));
            }
        }
        _ => store.end_copy(copy),
    }
    Ok(())
}

/// The entry after which a run begins.
fn position(fields: &Fields<'_>) -> Result<Option<EntriesPosition>> {
    let (Some(keyspace), Some(key)) = (fields.long("keyspace")?, binary(fields, "key")) else {
        return Ok(None);
    };
    let position = EntriesPosition::new(keyspace, key.to_vec());
    let unknown = || Error::new(ErrorCode::BadValue, format!("there is no keyspace {keyspace}"));
    position.map(Some).ok_or_else(unknown)
}

fn run_move(ctx: &CommandContext<'_>, request: &Request<'_>, reply: &mut DocBuilder) -> Result<()> {
    let fields = request.arguments()?;
    let copy = fields.uuid("copy").unwrap_or_default();
    let store = &ctx.service.store;
    match fields.string("step")?.unwrap_or_default() {
        HOLD => {
            if request.generic.max_time_ms == 0 {
                ctx.op.set_max_time_ms(HOLD_WAIT_MS);
            }
            let limit = fields.long("limitMillis")?.unwrap_or(HOLD_MS).unsigned_abs();
            let limit = Duration::from_millis(limit);
            let hold = current::wait(|| store.hold_for_copy(ctx.op, copy, limit))?;
            tracing::warn!("writes wait for the end of a copy of the store");
            reply.append("time", RawValue::Timestamp(hold.time));
            if let Some(row) = &hold.suspended {
                reply.append("suspended", bytes(row));
            }
        }
        RELEASE => store.release_after_copy(copy),
        _ => {
            store.become_moved(copy, time(&fields, "time")?)?;
            tracing::warn!("the store was moved to another place by 'mayflydb copy'");
            ctx.service.audit_stop(Actor::Client(ctx.connection));
            ctx.service.shutdown.begin();
        }
    }
    Ok(())
}
