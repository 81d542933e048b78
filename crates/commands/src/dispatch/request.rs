//! The steps before any change: count, parse, authorize, claim the session, check the concerns.

use mayfly_base::{Error, ErrorCode, Result};
use mayfly_service::Authority;

use super::{After, Call, Incoming};
use crate::context::{Handler, Run, counter};
use crate::registry;
use crate::request::row::InTransaction;
use crate::request::{OpKind, ReadConcern, Request, RowFlags, generic};
use crate::rules::rights::check;
use crate::rules::{audit, implied, primacy, raw_data, transaction};
use mayfly_value::arguments::error::wrong_type;

/// Counts the command, and reads its database. This is the first step, so that commands which other
/// steps refuse are counted as well.
///
/// # Errors
/// 40571 without a database, 73 for an invalid one, 13 for one on which the command does not run.
#[inline(always)]
pub(super) fn count<'a>(call: &Call<'a>) -> Result<&'a str> {
    let row = &call.command.row;
    // Commands that write documents count documents instead.
    if !call.incoming.repeat.waited
        && !matches!(row.kind, OpKind::Insert | OpKind::Update | OpKind::Delete)
    {
        counter(call.service, row.kind).add(1);
    }
    let db = database(call.incoming)?;
    if row.flags.contains(RowFlags::ADMIN_ONLY) && db != "admin" {
        let text = format!("{} may only be run against the admin database.", row.name);
        return Err(Error::new(ErrorCode::Unauthorized, text));
    }
    Ok(db)
}

/// Parses the generic arguments.
///
/// # Errors
/// The reference's errors for each argument.
#[inline(always)]
pub(super) fn parse<'a>(call: &Call<'a>, db: &'a str) -> Result<Request<'a>> {
    let (row, body) = (&call.command.row, call.incoming.body);
    let (_, name) = call.incoming.called;
    let generic = generic::parse(body, row)?;
    let (sequences, uuid, names_buckets) = (call.incoming.sequences, None, false);
    let mut request = Request { row, name, db, body, generic, sequences, uuid, names_buckets };
    if request.generic.raw_data {
        request.names_buckets = raw_data::names_series(&call.service.store, &request);
    }
    Ok(request)
}

/// Checks the client's rights. The request has changed nothing before; a refused command only
/// changes the audit log.
///
/// # Errors
/// 13 Unauthorized; 238 for a command that is not implemented; 11600 when the audit log cannot be
/// written.
#[inline(always)]
pub(super) fn authorize(
    call: &Call<'_>,
    request: &Request<'_>,
    after: &mut After,
) -> Result<(Run, Authority)> {
    let Call { service, connection, .. } = call;
    let authority = service.access.authority(&service.store, connection)?;
    if call.is_audited && service.audit.has_failed() {
        after.hang_up = true;
        let text = "the audit log cannot be written";
        return Err(Error::new(ErrorCode::InterruptedAtShutdown, text));
    }
    let permitted = check::check(&authority, request, registry::row);
    if call.is_audited && !call.incoming.repeat.waited {
        let code = permitted.as_ref().map_or_else(Error::code, |()| ErrorCode::OK);
        audit::authorized(service, connection, request, code);
    }
    permitted?;
    match call.command.handler {
        Handler::Run(run) => Ok((run, authority)),
        Handler::Missing => {
            Err(Error::not_implemented(format_args!("the command '{}'", request.row.name)))
        }
    }
}

/// Binds the session to the client's user. The command is allowed.
///
/// # Errors
/// 13 Unauthorized for a session of another user.
#[inline(always)]
pub(super) fn claim_session(request: &mut Request<'_>, authority: &Authority) -> Result<()> {
    request.generic.claim_session(authority)
}

/// Checks read and write concern and the use in a transaction, sets the default write concern, and
/// keeps the session alive. The session belongs to the client.
///
/// # Errors
/// 72 InvalidOptions for unsupported concerns; 263 for commands that a transaction does not allow.
#[inline(always)]
pub(super) fn check_concerns(call: &Call<'_>, request: &mut Request<'_>) -> Result<()> {
    let service = call.service;
    let (row, db, body) = (request.row, request.db, request.body);
    let generic = &mut request.generic;
    if generic.cluster_time > 0 {
        primacy::note_gossip(service, generic.cluster_time)?;
    }
    if row.kind == OpKind::GetMore && generic.transaction.is_none() {
        // Some drivers send the read concern of their session, but a cursor keeps its own.
        generic.read_concern = ReadConcern::default();
    }
    match generic.transaction {
        None => generic.read_concern.check(service, row, body)?,
        Some(_) => transaction::validate(service, generic, (row, db, body))?,
    }
    let takes_concern = row.writes.takes_concern();
    if generic.write_concern.given && !takes_concern {
        let text = "Command does not support writeConcern";
        return Err(Error::new(ErrorCode::InvalidOptions, text));
    }
    let acknowledges = generic.transaction.is_none() || row.in_transaction == InTransaction::Ends;
    if takes_concern && acknowledges {
        implied::set_write_concern(service, generic)?;
    }
    if let Some(session) = generic.lsid {
        service.sessions.touch(session, service.clock.now_ms())?;
    }
    Ok(())
}

/// The database: `$db`, or the one in the header of the message.
#[inline]
fn database<'a>(incoming: &Incoming<'a>) -> Result<&'a str> {
    let db = match (incoming.legacy_db, incoming.body.get("$db")) {
        (Some(db), _) | (None, Some(mayfly_value::RawValue::String(db))) => db,
        (None, Some(other)) => return Err(wrong_type("$db", other, "string")),
        (None, None) => {
            return Err(Error::new(ErrorCode(40571), "OP_MSG requests require a $db argument"));
        }
    };
    let is_special = |byte| matches!(byte, b'\0' | b'.' | b'/' | b'\\' | b' ' | b'"');
    if db.is_empty() || db.bytes().any(is_special) {
        let text = format!("Invalid database name: '{db}'");
        return Err(Error::new(ErrorCode::InvalidNamespace, text));
    }
    Ok(db)
}
