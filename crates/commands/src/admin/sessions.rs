//! Commands that start, refresh, end and kill logical sessions.

use mayfly_auth::Action;
use mayfly_base::{ErrorCode, Result};
use mayfly_service::{Service, SessionId, SessionOwner};
use mayfly_value::{DocBuilder, RawDoc, RawValue, bson};

use crate::context::{Command, CommandContext};
use crate::diagnostics::local_sessions::named_users;
use crate::request::generic::{claimed, session_id, session_of};
use crate::request::row::{Reads, RowFlags};
use crate::request::{Needs, Request};
use mayfly_value::arguments::error::{missing, wrong_type};

pub(crate) const START: Command =
    Command::new("startSession", "Starts a logical session", run_start)
        .needs(Needs::Nothing)
        .since("3.6");
pub(crate) const REFRESH: Command =
    Command::new("refreshSessions", "Keeps logical sessions alive", run_refresh)
        .needs(Needs::Nothing)
        .since("3.6")
        .flags(RowFlags::STABLE);
pub(crate) const END: Command = Command::new("endSessions", "Ends logical sessions", run_end)
    .needs(Needs::Nothing)
    .since("3.6")
    .flags(RowFlags::BEFORE_AUTH.union(RowFlags::LENIENT).union(RowFlags::STABLE));
pub(crate) const KILL: Command =
    Command::new("killSessions", "Ends logical sessions and their operations", run_kill)
        .needs(Needs::Nothing)
        .since("3.6")
        .flags(RowFlags::LENIENT)
        .reads(Reads::empty());
pub(crate) const KILL_ALL: Command =
    Command::new("killAllSessions", "Ends all logical sessions and their operations", run_kill_all)
        .needs(Needs::Cluster(&[Action::KillAnySession]))
        .since("3.6")
        .flags(RowFlags::LENIENT)
        .reads(Reads::empty());

fn run_start(ctx: &CommandContext<'_>, request: &Request<'_>, doc: &mut DocBuilder) -> Result<()> {
    request.arguments()?;
    let id = bson::Uuid::new().bytes();
    let session = SessionId { id, owner: SessionOwner::of(&ctx.authority) };
    ctx.service.sessions.touch(session, ctx.service.clock.now_ms())?;
    doc.start_document("id").append("id", RawValue::uuid(&id)).end();
    doc.append("timeoutMinutes", mayfly_base::limits::SESSION_TIMEOUT_MINUTES);
    Ok(())
}

fn run_refresh(ctx: &CommandContext<'_>, request: &Request<'_>, _: &mut DocBuilder) -> Result<()> {
    request.arguments()?;
    for session in listed(ctx, request, Action::Impersonate)? {
        ctx.service.sessions.touch(session, ctx.service.clock.now_ms())?;
    }
    Ok(())
}

fn run_end(ctx: &CommandContext<'_>, request: &Request<'_>, _: &mut DocBuilder) -> Result<()> {
    for session in listed(ctx, request, Action::Impersonate)? {
        ctx.service.sessions.end(session);
    }
    Ok(())
}

fn run_kill(ctx: &CommandContext<'_>, request: &Request<'_>, _: &mut DocBuilder) -> Result<()> {
    request.arguments()?;
    let sessions = listed(ctx, request, Action::KillAnySession)?;
    let own = SessionOwner::of(&ctx.authority);
    // An empty list selects all sessions of the user; without access control, all sessions.
    let all = sessions.is_empty();
    kill(ctx.service, ctx.op.id(), |session| match all {
        true => session.owner == own,
        false => sessions.contains(&session),
    });
    for session in sessions {
        ctx.service.sessions.end(session);
    }
    Ok(())
}

fn run_kill_all(ctx: &CommandContext<'_>, request: &Request<'_>, _: &mut DocBuilder) -> Result<()> {
    request.arguments()?;
    let owners = named_users(target_array(request)?, "killAllSessions.users")?;
    kill(ctx.service, ctx.op.id(), |session| owners.is_empty() || owners.contains(&session.owner));
    Ok(())
}

/// The sessions in the command's own value. Sessions of other users need the action `others` on the
/// cluster.
fn listed(
    ctx: &CommandContext<'_>,
    request: &Request<'_>,
    others: Action,
) -> Result<Vec<SessionId>> {
    let mut sessions = Vec::new();
    for element in target_array(request)? {
        let session = match element.value() {
            RawValue::Document(session) => session,
            RawValue::Null | RawValue::Undefined => continue,
            other => {
                let path = format!("{0}.{0}.{1}", request.row.name, element.name());
                return Err(wrong_type(&path, other, "object"));
            }
        };
        sessions.push(claimed(session_id(session)?, &ctx.authority, others)?);
    }
    Ok(sessions)
}

/// The array in the command's own value.
///
/// # Errors
/// 40414 for null, 14 for another type.
pub(super) fn target_array<'a>(request: &Request<'a>) -> Result<RawDoc<'a>> {
    let path = format!("{0}.{0}", request.row.name);
    match request.target() {
        RawValue::Array(array) => Ok(array),
        RawValue::Null | RawValue::Undefined => Err(missing(path)),
        other => Err(wrong_type(path, other, "array")),
    }
}

/// Kills the operations (except the caller's), transactions and cursors of the chosen sessions.
pub(super) fn kill(service: &Service, own: i32, chosen: impl Fn(SessionId) -> bool) {
    service.sessions.transactions.abort(ErrorCode::Interrupted, &chosen);
    service.cursors.kill_of(&chosen);
    for op in service.ops.list() {
        if op.id() != own && session_of(&op).is_some_and(&chosen) {
            op.kill(ErrorCode::Interrupted);
        }
    }
}
