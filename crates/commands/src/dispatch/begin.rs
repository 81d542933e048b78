//! The steps before the handler: admit, pass the fail points, wait, occupy the thread, take the
//! sessions, enter the writers, make the view and the context.

use std::cell::RefCell;
use std::sync::Arc;
use std::time::Duration;

use mayfly_base::{Error, ErrorCode, Result};
use mayfly_query::AwaitedEvent;
use mayfly_service::{Authority, CheckedOut, Connection, Service, SessionOwner};
use mayfly_storage::{ReadView, StoreSession, WritingCommand};
use mayfly_work::OpGuard;
use mayfly_work::current::Current;
use mayfly_work::{OpCtx, OpInfo, PlanSummary, current, memory};

use super::{After, Call};
use crate::context::{CommandContext, DataWait, Effects, Exhaust, Retry};
use crate::registry;
use crate::request::row::{InTransaction, Writes};
use crate::request::{Durability, Generic, ReadConcern, ReadLevel, Request, RowFlags};
use crate::rules::faults::{self, Faults};
use crate::rules::{implied, primacy, redaction, transaction};

/// The largest command that is copied for `currentOp`.
const MAX_SHOWN_COMMAND_BYTES: usize = 4096;

/// Registers the operation, checks that this node may run it, and sets its deadline. The request
/// was checked before; `killOp` and a step-down can find the operation from now on.
///
/// # Errors
/// 10107 NotWritablePrimary, 13435 NotPrimaryNoSecondaryOk; 50 MaxTimeMSExpired of a fail point.
#[inline(always)]
pub(super) fn admit(call: &Call<'_>, request: &Request<'_>) -> Result<OpGuard> {
    let service = call.service;
    let info = op_info(call.connection, request);
    let guard = match call.incoming.waited {
        None => service.ops.begin(info),
        Some(waited) => service.ops.go_on(waited, info),
    };
    guard.op().set_writes(request.row.writes.is_certain());
    // After the registration: either a step-down finds the operation, or the operation finds the
    // step-down.
    primacy::check(service, request)?;
    let max_time_ms = implied::max_time_ms(service, request);
    if max_time_ms > 0 && !request.row.flags.contains(RowFlags::OWN_MAX_TIME) {
        match call.may_fail {
            true => faults::limited(service, guard.op(), max_time_ms)?,
            false => guard.op().set_max_time_ms(max_time_ms),
        }
    }
    Ok(guard)
}

/// Passes the fail points before a command. The operation is registered, because a fail point can
/// block it.
///
/// # Errors
/// The error that a fail point requests.
#[inline(always)]
pub(super) fn pass_fail_points(
    call: &Call<'_>,
    op: &OpCtx,
    request: &Request<'_>,
    after: &mut After,
) -> Result<Faults> {
    let mut faults = Faults::default();
    if call.may_fail && !call.incoming.repeat.waited {
        let passed = faults.before(call.service, call.connection, op, request);
        after.hang_up = faults.hangs_up();
        passed?;
    }
    Ok(faults)
}

/// The wait of a command whose read concern names a time in the future. The command has read
/// nothing yet and runs again from the beginning.
///
/// # Errors
/// 50 MaxTimeMSExpired after the timeout, 11600 when the server or the connection ends, 11601 when
/// the operation was killed while it waited.
#[inline(always)]
pub(super) fn wait(call: &Call<'_>, op: &OpCtx, request: &Request<'_>) -> Result<Option<DataWait>> {
    match request.generic.read_concern.time() {
        0 => Ok(None),
        time => {
            op.check_ended()?;
            wait_for(call, request, time)
        }
    }
}

/// The state of the thread while a command runs.
pub(super) struct Running {
    _counted: memory::Counted,
    _entered: current::Entered,
}

/// Assigns the thread to the operation: its memory and working time are counted from now on.
#[inline(always)]
pub(super) fn occupy_thread(call: &Call<'_>, guard: &OpGuard) -> Running {
    let entered = current::enter(Current { op: Some(guard.op().clone()) });
    let counted = memory::begin(call.service.settings.memory.most_of_operation());
    guard.op().thread.set(true);
    guard.take_turns();
    if let Some(turn) = call.incoming.first_turn {
        guard.op().thread.begin_with(turn);
    }
    Running { _counted: counted, _entered: entered }
}

/// The state of a running command that the steps after the handler need.
pub(super) struct CommandState<'a> {
    pub(super) op: &'a Arc<OpCtx>,
    /// The session of a retryable write.
    pub(super) retry: Option<Retry>,
    /// The session of a statement in a transaction.
    pub(super) transaction: Option<RefCell<CheckedOut>>,
    /// Whether the reply must only contain durable data.
    pub(super) only_durable: bool,
    pub(super) effects: Effects,
}

/// Checks out the session of a retryable write or of a statement. The thread belongs to the
/// operation, because this can block.
///
/// # Errors
/// Errors of sessions: 50768 NotARetryableWriteCommand, 225 TransactionTooOld, 251
/// NoSuchTransaction.
#[inline(always)]
pub(super) fn take_sessions<'a>(
    call: &Call<'a>,
    op: &'a Arc<OpCtx>,
    request: &Request<'_>,
) -> Result<CommandState<'a>> {
    let Call { service, connection, .. } = *call;
    Ok(CommandState {
        op,
        retry: check_out(service, op, request)?,
        transaction: match request.generic.transaction {
            None => None,
            Some(_) => transaction::check_out(service, op, connection, request)?.map(RefCell::new),
        },
        only_durable: implied::only_durable(service, request),
        effects: Effects::default(),
    })
}

/// Makes a write command wait while `fsync` holds its lock. The sessions were checked out: a
/// transaction whose statement cannot run is aborted.
///
/// # Errors
/// The operation is interrupted while it waits.
/// The end of the operation while it waits.
#[inline(always)]
pub(super) fn enter_writers<'a>(
    call: &Call<'a>,
    request: &Request<'_>,
    state: &CommandState<'_>,
) -> Result<Option<WritingCommand<'a>>> {
    if !request.row.writes.is_certain() {
        return Ok(None);
    }
    let lock = &call.service.store.fsync_lock;
    let entered = match lock.try_enter() {
        Some(writing) => return Ok(Some(writing)),
        None => current::wait(|| lock.enter(state.op)).map(Some),
    };
    if let (Err(_), Some(session)) = (&entered, &state.transaction) {
        session.borrow_mut().abort_open();
    }
    entered
}

/// The command's view of the store: a fixed time for read concern `snapshot`, the transaction for a
/// statement, otherwise the committed state at each read. The time has come, and the sessions were
/// checked out.
///
/// # Errors
/// 239 SnapshotTooOld; 251 NoSuchTransaction when the transaction has ended meanwhile.
#[inline(always)]
pub(super) fn make_view(
    call: &Call<'_>,
    request: &Request<'_>,
    state: &CommandState<'_>,
    faults: &mut Faults,
) -> Result<ReadView> {
    let generic = &request.generic;
    let mut view = match statement_session(state, request) {
        Some(session) => session.borrow_mut().enter(state.op)?,
        None if generic.read_concern.level == ReadLevel::Snapshot
            && generic.transaction.is_none() =>
        {
            pin(call.service, &generic.read_concern)?
        }
        None => ReadView::now(),
    };
    if call.may_fail {
        faults.watch_statements(call.service, request, &mut view);
    }
    Ok(view)
}

/// The session of the transaction to which the command belongs as a statement.
#[inline(always)]
pub(super) fn statement_session<'h>(
    state: &'h CommandState<'_>,
    request: &Request<'_>,
) -> Option<&'h RefCell<CheckedOut>> {
    let session = state.transaction.as_ref();
    session.filter(|_| request.row.in_transaction != InTransaction::Ends)
}

/// Builds the handler's context.
#[inline(always)]
pub(super) fn context<'a>(
    call: &Call<'a>,
    request: &Request<'_>,
    (state, view): (&'a CommandState<'a>, &'a ReadView),
    authority: Authority,
) -> CommandContext<'a> {
    let Call { service, connection, incoming, .. } = *call;
    CommandContext {
        service,
        commands: registry::table(),
        op: state.op,
        store: StoreSession::new(&service.store, state.op, view),
        connection,
        authority,
        only_durable: state.only_durable,
        exhaust: Exhaust {
            allowed: incoming.exhaust_allowed,
            last_counter: incoming.repeat.last_counter,
            waited: incoming.repeat.waited,
        },
        retry: state.retry.as_ref(),
        transaction: state.transaction.as_ref(),
        session: request.generic.lsid,
        write_concern: request.generic.write_concern,
        waited: incoming.repeat.waited_for,
        effects: &state.effects,
    }
}

#[cold]
fn pin(service: &Service, concern: &ReadConcern) -> Result<ReadView> {
    match concern.at {
        0 => service.store.pin_reads(),
        at => service.store.pin_reads_at(at),
    }
}

/// The interval at which a command that waits for a time checks it again.
const TIME_STEP: Duration = Duration::from_secs(1);

#[cold]
fn wait_for(call: &Call<'_>, request: &Request<'_>, time: u64) -> Result<Option<DataWait>> {
    let service = call.service;
    let store = &service.store;
    // Cluster time only advances with writes; a node that is not the primary waits for the primary.
    if time > store.last_timestamp()
        && service.is_primary()
        && let Some(_writing) = store.fsync_lock.try_enter()
    {
        store.advance_time(time)?;
    }
    if time <= store.oplog().settled() {
        return Ok(None);
    }
    let waited = call.incoming.repeat.waited_for;
    let left = match implied::max_time_ms(service, request) {
        0 => TIME_STEP,
        limit => Duration::from_millis(limit.unsigned_abs()).saturating_sub(waited),
    };
    if left.is_zero() {
        let text = "operation exceeded time limit";
        return Err(Error::new(ErrorCode::MaxTimeMSExpired, text));
    }
    if service.shutdown.has_begun() || call.connection.close.is_requested() {
        let text = "the wait for a cluster time ends with the server or the connection";
        return Err(Error::new(ErrorCode::InterruptedAtShutdown, text));
    }
    Ok(Some(DataWait {
        awaited: AwaitedEvent::Changes,
        cursor: None,
        seen: time - 1,
        longest: left.min(TIME_STEP),
    }))
}

/// Checks out the session of a retryable command.
fn check_out(service: &Service, op: &OpCtx, request: &Request<'_>) -> Result<Option<Retry>> {
    let (Some(session), Some(number)) = (request.generic.lsid, request.generic.txn_number) else {
        return Ok(None);
    };
    if request.generic.transaction.is_some() {
        return Ok(None);
    }
    let name = request.row.name;
    if request.row.writes != Writes::Repeatable {
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

#[inline(always)]
fn op_info(connection: &Connection, request: &Request<'_>) -> OpInfo {
    let body = redaction::shown_request(request);
    // Built for every command; `format!` costs several times as much.
    let ns = [request.db, ".", request.target().as_str().unwrap_or("$cmd")].concat();
    OpInfo {
        desc: connection.desc().clone(),
        op: request.row.kind.op_name(),
        ns,
        command: if body.len() <= MAX_SHOWN_COMMAND_BYTES { body.into_owned() } else { Vec::new() },
        originating_command: None,
        plan_summary: PlanSummary::NONE,
        connection_id: connection.id,
        client: connection.client.clone(),
        lsid: shown_session(&request.generic),
        progress: None,
        extra: Vec::new(),
    }
}

/// The session as it was sent; with access control including its owner.
#[inline(always)]
fn shown_session(generic: &Generic<'_>) -> Vec<u8> {
    match (generic.lsid, generic.lsid_doc) {
        (Some(session), _) if session.owner != SessionOwner::NONE => session.to_bytes(),
        (_, Some(sent)) => sent.as_bytes().to_vec(),
        (_, None) => Vec::new(),
    }
}
