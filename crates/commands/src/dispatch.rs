//! From a message's documents to a finished reply: find the row, parse the generic arguments, register the
//! operation, run the handler, close the reply.

use std::borrow::Cow;
use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

use mayfly_base::{ClientData, Error, ErrorCode, ErrorLabel, Result};
use mayfly_query::Awaited;
use mayfly_service::metrics::Counter;
use mayfly_service::{CheckedOut, Connection, Service, SessionOwner};
use mayfly_storage::{PinnedReads, Writing};
use mayfly_value::{DocBuilder, RawDoc};
use mayfly_work::current::Current;
use mayfly_work::{FirstTurn, OpCtx, OpInfo, current, memory};

use crate::access::{needs, redaction};
use crate::audit;
use crate::diagnostics::observe::Observed;
use crate::faults::{self, Faults};
use crate::length::Work;
use crate::registry::Entry;
use crate::request::DocumentSequence;
use crate::retry::Retry;
use crate::{
    CommandContext, DataWait, Durability, Exhaust, Generic, Handler, OpKind, ReadConcern,
    ReadLevel, Request, Row, RowFlags, Wait, generic, implied, primacy, registry, transaction,
};

/// Longest command that `currentOp` keeps a copy of.
const MAX_SHOWN_COMMAND_BYTES: usize = 4096;

/// A request as the connection loop hands it over.
#[derive(Clone, Copy)]
pub struct Incoming<'a> {
    /// The command.
    pub body: RawDoc<'a>,
    /// Its document sequences.
    pub sequences: &'a [DocumentSequence<'a>],
    /// The database, when the message carries it outside the command.
    pub legacy_db: Option<&'a str>,
    /// The client can take further replies.
    pub exhaust_allowed: bool,
    /// Why it runs again, when it does.
    pub repeat: Repeat,
    /// The turn to begin, where the command had to wait for one ([`starts_long`](Incoming::starts_long)).
    pub first_turn: Option<&'a FirstTurn>,
    /// The command's row, and the name that it was called by.
    pub(crate) called: (Option<Entry>, &'a str),
}

impl<'a> Incoming<'a> {
    /// A command alone, which runs for the first time.
    pub fn new(body: RawDoc<'a>) -> Incoming<'a> {
        let name = body.iter().next().map_or("", |element| element.name());
        Incoming {
            body,
            sequences: &[],
            legacy_db: None,
            exhaust_allowed: false,
            repeat: Repeat::default(),
            first_turn: None,
            called: (registry::find(name), name),
        }
    }
}

/// State of a request that is run more than once.
#[derive(Clone, Copy, Debug, Default)]
pub struct Repeat {
    /// The topology counter that the last streamed reply carried.
    pub last_counter: Option<i64>,
    /// The wait that it asked for is over.
    pub waited: bool,
    /// How long it has waited for data, all waits together.
    pub waited_for: Duration,
}

/// What the connection loop does next.
pub enum Next {
    /// It sends the reply; the outcome says what to do before and after.
    Reply(Outcome),
    /// It sends nothing, waits for this, and dispatches the request again.
    Wait(Wait),
    /// It closes the connection and sends nothing.
    HangUp,
}

/// What the connection loop has to do before or after it sends the reply.
#[derive(Clone, Copy, Debug, Default)]
pub struct Outcome {
    /// Await durability first.
    pub wait_durable: bool,
    /// Await that everything up to this timestamp of the log is durable; 0 for nothing.
    pub wait_shown: u64,
    /// Flag the reply, send it, and dispatch again.
    pub more_to_come: bool,
    /// The reply says `ok: 0`.
    pub failed: bool,
    /// Close the connection after the reply.
    pub close: bool,
    /// Wait so long before the reply.
    pub pause: Duration,
    /// The topology counter in the reply.
    pub counter: Option<i64>,
}

/// The reply's document, not closed yet, and what to do with it.
pub struct Dispatched {
    /// The document; empty where the command waits, and not sent where the connection ends.
    pub doc: DocBuilder,
    /// What to do.
    pub next: Next,
}

/// What the command has decided so far about the time after it.
#[derive(Default)]
struct After {
    outcome: Outcome,
    wait: Option<Wait>,
    hang_up: bool,
}

/// Runs a command. Its reply is written into `doc`, which is empty.
pub fn dispatch(
    service: &Arc<Service>,
    connection: &Arc<Connection>,
    incoming: &Incoming<'_>,
    mut doc: DocBuilder,
) -> Dispatched {
    let start = doc.len() - 4;
    let mut after = After::default();
    let result = run(service, connection, incoming, &mut doc, &mut after);
    let After { mut outcome, wait, hang_up } = after;
    let next = match (result, wait) {
        (Err(error), _) => {
            let Outcome { close, pause, .. } = outcome;
            outcome = Outcome { failed: true, close, pause, ..Outcome::default() };
            service.metrics.asserts.user.add(1);
            doc = rewind(doc, start);
            append_failure(service, &error, &mut doc);
            Next::Reply(outcome)
        }
        (Ok(()), Some(wait)) => {
            doc = rewind(doc, start);
            Next::Wait(wait)
        }
        (Ok(()), None) => {
            doc.append("ok", 1.0);
            primacy::append_gossip(service, None, &mut doc);
            Next::Reply(outcome)
        }
    };
    Dispatched { doc, next: if hang_up { Next::HangUp } else { next } }
}

/// Throws away what was written since the reply began.
fn rewind(doc: DocBuilder, start: usize) -> DocBuilder {
    let mut buffer = doc.finish_buffer();
    buffer.truncate(start);
    DocBuilder::in_buffer(buffer)
}

/// Writes a whole error reply, with the times that every reply carries.
pub fn append_failure(service: &Service, error: &Error, doc: &mut DocBuilder) {
    append_error(doc, error);
    primacy::append_gossip(service, Some(error), doc);
}

/// Writes an error reply: `ok`, `errmsg`, `code`, `codeName`, labels, and the error's further fields.
fn append_error(doc: &mut DocBuilder, error: &Error) {
    let labels = error.label_names();
    if !labels.is_empty() {
        doc.start_array("errorLabels");
        for label in labels {
            doc.push(label);
        }
        doc.end();
    }
    doc.append("ok", 0.0);
    doc.append("errmsg", error.message());
    doc.append("code", error.code().0);
    doc.append("codeName", error.code().name().as_ref());
    if let Some(extra) = error.extra().and_then(RawDoc::new) {
        doc.append_all(extra);
    }
}

fn run(
    service: &Arc<Service>,
    connection: &Arc<Connection>,
    incoming: &Incoming<'_>,
    doc: &mut DocBuilder,
    after: &mut After,
) -> Result<()> {
    let (entry, name) = incoming.called;
    let Some(entry) = entry else {
        service.metrics.opcounters.command.add(1);
        let text = format!("no such command: '{name}'");
        return Err(Error::new(ErrorCode::CommandNotFound, text));
    };
    if !incoming.repeat.waited {
        service.metrics.command(entry.index).total.add(1);
    }
    let result = run_row(service, connection, incoming, entry, name, doc, after)
        .map_err(|error| label(error, incoming.body, entry.row.name));
    if result.is_err() {
        service.metrics.command(entry.index).failed.add(1);
    }
    result
}

fn run_row(
    service: &Arc<Service>,
    connection: &Arc<Connection>,
    incoming: &Incoming<'_>,
    Entry { row, .. }: Entry,
    name: &str,
    doc: &mut DocBuilder,
    after: &mut After,
) -> Result<()> {
    // A command that waited is the same command again.
    if !incoming.repeat.waited
        && !matches!(row.kind, OpKind::Insert | OpKind::Update | OpKind::Delete)
    {
        counter(service, row.kind).add(1);
    }
    let db = database(incoming)?;
    if row.flags.has(RowFlags::ADMIN_ONLY) && db != "admin" {
        let text = format!("{} may only be run against the admin database.", row.name);
        return Err(Error::new(ErrorCode::Unauthorized, text));
    }
    let body = incoming.body;
    // In its place from the beginning: it is long.
    let generic = generic::parse(body, row.name)?;
    let mut request = Request { row, name, db, body, generic, sequences: incoming.sequences };
    // Before anything of the request changes anything.
    let authority = service.access.authority(&service.store, connection)?;
    let audited = service.audit.is_on();
    if audited && service.audit.has_failed() {
        after.hang_up = true;
        let text = "the audit log cannot be written";
        return Err(Error::new(ErrorCode::InterruptedAtShutdown, text));
    }
    let permitted = needs::check(&authority, &request);
    if audited && !incoming.repeat.waited {
        let code = permitted.as_ref().map_or_else(Error::code, |()| ErrorCode::OK);
        audit::authorization(service, connection, &request, code);
    }
    permitted?;
    let Handler::Run(run) = row.handler else {
        return Err(Error::not_implemented(format_args!("the command '{}'", row.name)));
    };
    request.generic.claim_session(&authority)?;
    let generic = &mut request.generic;
    if generic.cluster_time > 0 {
        primacy::note_gossip(service, generic.cluster_time)?;
    }
    if row.kind == OpKind::GetMore && generic.transaction.is_none() {
        // Some drivers send that of their session along; a cursor goes on as it began.
        generic.read_concern = ReadConcern::default();
    }
    match generic.transaction {
        None => generic.read_concern.check(service, row, incoming.body)?,
        Some(_) => transaction::validate(service, generic, (row.name, db, incoming.body))?,
    }
    let writes = row.flags.has(RowFlags::WRITE_CONCERN) || row.flags.has(RowFlags::MAY_WRITE);
    if generic.write_concern.given && !writes {
        let text = "Command does not support writeConcern";
        return Err(Error::new(ErrorCode::InvalidOptions, text));
    }
    if writes && (generic.transaction.is_none() || transaction::is_finishing(row.name)) {
        implied::set_write_concern(service, generic)?;
    }
    let unmet = generic.write_concern.unmet;
    if let Some(unmet) = unmet.filter(|_| service.replica_set.get().is_none()) {
        return Err(unmet.refusal());
    }
    if let Some(session) = generic.lsid {
        service.sessions.touch(session, service.clock.now_ms())?;
    }
    let guard = service.ops.begin(op_info(connection, &request));
    guard.op().set_writes(row.flags.has(RowFlags::WRITE_CONCERN));
    // Behind its registration: a step-down finds it there, or it finds the step-down here.
    primacy::check(service, &request)?;
    let max_time_ms = implied::max_time_ms(service, &request);
    let may_fail = service.fail_points.any_on();
    if max_time_ms > 0 && !row.flags.has(RowFlags::OWN_MAX_TIME) {
        match may_fail {
            true => faults::limited(service, guard.op(), max_time_ms)?,
            false => guard.op().set_max_time_ms(max_time_ms),
        }
    }
    let mut faults = Faults::default();
    if may_fail {
        let waited = incoming.repeat.waited;
        let passed = faults.before(service, connection, guard.op(), &request, waited);
        after.hang_up = faults.hangs_up();
        passed?;
    }
    let time = request.generic.read_concern.time();
    if time > 0
        && let Some(wait) = wait_for(service, time, max_time_ms, incoming.repeat.waited_for)?
    {
        if service.shutdown.is_requested() || connection.close.is_requested() {
            let text = "the wait for a cluster time ends with the server or the connection";
            return Err(Error::new(ErrorCode::InterruptedAtShutdown, text));
        }
        after.wait = Some(Wait::Data(wait));
        return Ok(());
    }
    let pinned = match request.generic.read_concern.level {
        ReadLevel::Snapshot if request.generic.transaction.is_none() => {
            Some(pin_reads(service, &request.generic.read_concern)?)
        }
        _ => None,
    };
    let _entered = current::enter(Current { op: Some(guard.op().clone()) });
    let _counted = memory::begin(service.settings.memory.most_of_operation());
    guard.op().thread.set(true);
    guard.take_turns();
    if let Some(turn) = incoming.first_turn {
        guard.op().thread.begin_with(turn);
    }
    let mut context = CommandContext {
        service,
        op: guard.op(),
        connection,
        authority,
        wait_for_sync: false,
        shown_up_to: 0,
        only_durable: implied::only_durable(service, &request),
        snapshot_time: pinned.as_ref().map(PinnedReads::cluster_time),
        exhaust: Exhaust {
            allowed: incoming.exhaust_allowed,
            last_counter: incoming.repeat.last_counter,
            waited: incoming.repeat.waited,
            ..Exhaust::default()
        },
        close_connection: false,
        pause: Cell::default(),
        faults,
        retry: check_out(service, guard.op(), &request)?,
        transaction: match request.generic.transaction {
            None => None,
            Some(_) => transaction::check_out(service, guard.op(), connection, &request)?,
        },
        session: request.generic.lsid,
        bypass_validation: false,
        keep_empty_timestamps: false,
        collection_uuid: None,
        waited: incoming.repeat.waited_for,
        wait: None,
    };
    let began_at = doc.len();
    let reply_before = doc.capacity();
    let _writing = match may_write(service, guard.op(), row) {
        Ok(writing) => writing,
        Err(error) => {
            context.transaction.iter_mut().for_each(CheckedOut::abort_open);
            return Err(error);
        }
    };
    let _asked = match may_fail {
        true => context.faults.watch_statements(service, &request),
        false => None,
    };
    let statement = match &mut context.transaction {
        Some(session) if !transaction::is_finishing(row.name) => Some(session.enter(guard.op())?),
        _ => None,
    };
    let guarded = || run_guarded(run, &mut context, &request, doc);
    let result = Work::Command(&request).length().run(guarded);
    let result = match (statement, &mut context.transaction) {
        (Some(statement), Some(session)) => {
            // The commit waits for the log.
            context.wait_for_sync = false;
            let grown = doc.capacity().saturating_sub(reply_before);
            transaction::leave(session, statement, guard.op(), grown, result)
        }
        _ => result,
    };
    let result = match &pinned {
        Some(pinned) => result.and_then(|()| pinned.check(&service.store)),
        None => result,
    };
    if let Some(retry) = &context.retry {
        match retry.count_retried() {
            _ if result.is_err() => retry.doubt(),
            0 => {}
            retried => service.metrics.retried_statements.add(retried),
        }
    }
    if context.only_durable && result.is_ok() {
        let shown = context.snapshot_time.unwrap_or_else(|| service.store.last_timestamp());
        if !service.store.is_durable(shown) {
            context.shown_up_to = context.shown_up_to.max(shown);
        }
    }
    after.wait = context.wait.take().filter(|_| result.is_ok());
    if after.wait.is_none() {
        Observed {
            service,
            connection,
            op: guard.op(),
            request: &request,
            reply: doc,
            result: &result,
            began_at,
        }
        .note();
    }
    if audited && after.wait.is_none() {
        audit::finished(service, connection, &request, &result);
    }
    if let (Some(unmet), Ok(())) = (unmet, &result) {
        unmet.append(request.body, doc);
    } else if may_fail && result.is_ok() && after.wait.is_none() {
        faults::after(service, connection, &request, doc);
    }
    // Nobody is told of what is not on record.
    after.hang_up = context.faults.hangs_up() || audited && service.audit.has_failed();
    after.outcome = Outcome {
        wait_durable: context.wait_for_sync,
        wait_shown: context.shown_up_to,
        more_to_come: context.exhaust.more_to_come,
        failed: false,
        close: context.close_connection,
        pause: context.pause.get(),
        counter: context.exhaust.last_counter,
    };
    result
}

/// Codes after which a client sends a repeatable write again. Specification "Retryable Writes", "RetryableWriteError".
pub(crate) const TRY_AGAIN: &[ErrorCode] = &[
    ErrorCode::InterruptedAtShutdown,
    ErrorCode::InterruptedDueToReplStateChange,
    ErrorCode::NotWritablePrimary,
    ErrorCode::NotPrimaryNoSecondaryOk,
    ErrorCode::NotPrimaryOrSecondary,
    ErrorCode::PrimarySteppedDown,
    ErrorCode::ShutdownInProgress,
    ErrorCode::ExceededTimeLimit,
    ErrorCode::HostUnreachable,
    ErrorCode::HostNotFound,
    ErrorCode::NetworkTimeout,
    ErrorCode::SocketException,
];

/// Whether a client sends a command again that ended with this code. Of a transaction only its end is sent again.
pub(crate) fn is_worth_repeating(code: ErrorCode, body: RawDoc<'_>) -> bool {
    let finishing = || body.iter().next().is_some_and(|it| transaction::is_finishing(it.name()));
    TRY_AGAIN.contains(&code)
        && body.get_element("txnNumber").is_some()
        && (body.get_element("autocommit").is_none() || finishing())
}

fn label(error: Error, body: RawDoc<'_>, name: &str) -> Error {
    if body.get_element("autocommit").is_some() {
        return transaction::label(error, name);
    }
    match is_worth_repeating(error.code(), body) {
        true => error.with_label(ErrorLabel::RetryableWrite),
        false => error,
    }
}

/// Pins the reads of a command that asks for those of one time.
#[cold]
fn pin_reads(service: &Service, concern: &ReadConcern) -> Result<PinnedReads> {
    match concern.at {
        0 => service.store.pin_reads(),
        at => service.store.pin_reads_at(at),
    }
}

/// So long a command waits for a time before it looks again whether it has come.
const TIME_STEP: Duration = Duration::from_secs(1);

/// What a command waits for whose read concern names a time that has not come, or in which something is under way.
///
/// # Errors
/// 50 MaxTimeMSExpired when it has waited too long.
#[cold]
fn wait_for(
    service: &Service,
    time: u64,
    max_time_ms: i64,
    waited: Duration,
) -> Result<Option<DataWait>> {
    let store = &service.store;
    // Nobody else lets time go on here; a node that is not the primary waits for the one that is.
    if time > store.last_timestamp()
        && service.is_primary()
        && let Some(_writing) = store.fsync_lock.try_enter()
    {
        store.advance_time(time)?;
    }
    if time <= store.oplog().settled() {
        return Ok(None);
    }
    let left = match max_time_ms {
        0 => TIME_STEP,
        limit => Duration::from_millis(limit.unsigned_abs()).saturating_sub(waited),
    };
    if left.is_zero() {
        let text = "operation exceeded time limit";
        return Err(Error::new(ErrorCode::MaxTimeMSExpired, text));
    }
    Ok(Some(DataWait { awaited: Awaited::Changes, seen: time - 1, longest: left.min(TIME_STEP) }))
}

/// Takes the session of a command that may be sent again.
fn check_out(service: &Service, op: &OpCtx, request: &Request<'_>) -> Result<Option<Retry>> {
    let (Some(session), Some(number)) = (request.generic.lsid, request.generic.txn_number) else {
        return Ok(None);
    };
    if request.generic.transaction.is_some() {
        return Ok(None);
    }
    let name = request.row.name;
    if !request.row.flags.has(RowFlags::RETRYABLE) {
        return Err(Error::new(
            ErrorCode::NotARetryableWriteCommand,
            format!(
                "txnNumber may only be provided for multi-document transactions and retryable write commands. \
                 autocommit:false was not provided, and {name} is not a retryable write command."
            ),
        ));
    }
    if request.generic.write_concern.durability() == Durability::None {
        let text = "Unacknowledged write concerns are not allowed with transaction numbers";
        return Err(Error::new(ErrorCode::InvalidOptions, text));
    }
    let checked_out = service.sessions.check_out(&service.store, op, session, number)?;
    Retry::parse(checked_out, request.body, name).map(Some)
}

/// Waits with a writing command while `fsync` holds its lock.
fn may_write<'s>(service: &'s Service, op: &OpCtx, row: &Row) -> Result<Option<Writing<'s>>> {
    if !row.flags.has(RowFlags::WRITE_CONCERN) {
        return Ok(None);
    }
    let lock = &service.store.fsync_lock;
    match lock.try_enter() {
        Some(writing) => Ok(Some(writing)),
        None => current::wait(|| lock.enter(op)).map(Some),
    }
}

/// A bug in a handler costs its caller an error, not everybody the server.
fn run_guarded(
    run: crate::row::Run,
    context: &mut CommandContext<'_>,
    request: &Request<'_>,
    doc: &mut DocBuilder,
) -> Result<()> {
    match catch_unwind(AssertUnwindSafe(|| run(context, request, doc))) {
        Ok(result) => result,
        Err(panic) => {
            let why = panic
                .downcast_ref::<&str>()
                .map(|text| (*text).to_owned())
                .or_else(|| panic.downcast_ref::<String>().cloned())
                .unwrap_or_else(|| "no message".to_owned());
            context.service.metrics.asserts.msg.add(1);
            let panic = ClientData(&why);
            tracing::error!(command = request.row.name, %panic, "a command panicked");
            Err(Error::internal(format!("internal error in '{}': {why}", request.row.name)))
        }
    }
}

/// The database: `$db`, or the one in the message's own header.
fn database<'a>(incoming: &Incoming<'a>) -> Result<&'a str> {
    let db = match (incoming.legacy_db, incoming.body.get("$db")) {
        (Some(db), _) | (None, Some(mayfly_value::RawValue::String(db))) => db,
        (None, Some(other)) => return Err(crate::fields::wrong_type("$db", other, "string")),
        (None, None) => {
            return Err(Error::new(ErrorCode(40571), "OP_MSG requests require a $db argument"));
        }
    };
    if db.is_empty() || db.contains(['\0', '.', '/', '\\', ' ', '"']) {
        let text = format!("Invalid database name: '{db}'");
        return Err(Error::new(ErrorCode::InvalidNamespace, text));
    }
    Ok(db)
}

/// The counter of a kind of operation.
pub(crate) fn counter(service: &Service, kind: OpKind) -> &Counter {
    let counters = &service.metrics.opcounters;
    match kind {
        OpKind::Insert => &counters.insert,
        OpKind::Query => &counters.query,
        OpKind::Update => &counters.update,
        OpKind::Delete => &counters.delete,
        OpKind::GetMore => &counters.getmore,
        OpKind::Command => &counters.command,
    }
}

#[inline(always)]
fn op_info(connection: &Connection, request: &Request<'_>) -> OpInfo {
    let body = redaction::shown(request.row, request.body);
    // Every command makes this text, and `format!` costs several times as much.
    let ns = [request.db, ".", request.target().as_str().unwrap_or("$cmd")].concat();
    OpInfo {
        desc: connection.desc().clone(),
        op: request.row.kind.op_name(),
        ns,
        command: if body.len() <= MAX_SHOWN_COMMAND_BYTES { body.into_owned() } else { Vec::new() },
        plan_summary: Cow::Borrowed(""),
        connection_id: connection.id,
        client: connection.client.clone(),
        lsid: shown_session(&request.generic),
        progress: None,
        extra: Vec::new(),
    }
}

/// The session as it was sent, and with access control whose it is.
#[inline(always)]
fn shown_session(generic: &Generic<'_>) -> Vec<u8> {
    match (generic.lsid, generic.lsid_doc) {
        (Some(session), _) if session.owner != SessionOwner::NOBODY => session.to_bytes(),
        (_, Some(sent)) => sent.as_bytes().to_vec(),
        (_, None) => Vec::new(),
    }
}
