//! The steps from the handler to the reply: execute, settle, observe.

use std::cell::RefCell;
use std::panic::{AssertUnwindSafe, catch_unwind};

use mayfly_base::{ClientData, Error, OpCtx, Result, current};
use mayfly_service::{CheckedOut, Service};
use mayfly_storage::{PinnedReads, Writing};
use mayfly_value::DocBuilder;

use super::observe::Observed;
use super::{After, Call, Outcome};
use crate::context::{CommandContext, Run};
use crate::request::row::{InTransaction, Row, Writes};
use crate::request::{Durability, Request};
use crate::rules::faults::{self, Faults};
use crate::rules::length::Work;
use crate::rules::{audit, transaction};

/// A command's context and its request.
type Asked<'s> = (&'s CommandContext<'s>, &'s Request<'s>);

/// The reply before the handler wrote to it.
pub(super) struct Written {
    began_at: usize,
}

impl Written {
    /// The reply as it is now.
    pub(super) fn before(doc: &DocBuilder) -> Written {
        Written { began_at: doc.len() }
    }
}

/// Runs the handler: with the lock of writers, inside its transaction, on a thread of its own where it takes long. The sessions are
/// taken. Its own error is the value; the transaction of a statement that failed has ended.
///
/// # Errors
/// What keeps the handler from running: the end of the operation while `fsync` holds its lock, of the transaction before its statement.
#[inline(always)]
pub(super) fn execute(
    call: &Call<'_>,
    run: Run,
    (context, request): Asked<'_>,
    faults: &mut Faults,
    doc: &mut DocBuilder,
) -> Result<Result<()>> {
    let (service, op) = (call.service, context.op);
    let reply_before = doc.capacity();
    let _writing = match may_write(service, op, request.row) {
        Ok(writing) => writing,
        Err(error) => {
            if let Some(session) = &context.transaction {
                session.borrow_mut().abort_open();
            }
            return Err(error);
        }
    };
    let _asked = match call.may_fail {
        true => faults.watch_statements(service, request),
        false => None,
    };
    let statement = match statement_session(context, request) {
        Some(session) => Some((session, session.borrow_mut().enter(op)?)),
        None => None,
    };
    let guarded = || run_guarded(run, context, request, doc);
    let result = Work::Command(request).length().run(guarded);
    let Some((session, entered)) = statement else { return Ok(result) };
    let grown = doc.capacity().saturating_sub(reply_before);
    let failed = context.effects.has_failed();
    Ok(transaction::leave(&mut session.borrow_mut(), entered, op, grown, (result, failed)))
}

/// What follows from the result: whether pinned reads still hold, what is remembered of a write that can be repeated, and up to
/// which time the reply's documents must be durable. The handler has run and its transaction is left.
#[inline(always)]
pub(super) fn settle(
    call: &Call<'_>,
    (context, _): Asked<'_>,
    pinned: Option<&PinnedReads>,
    result: Result<()>,
) -> Result<()> {
    let service = call.service;
    let result = match pinned {
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
            context.effects.show_up_to(shown);
        }
    }
    result
}

/// Records the command in metrics, profile and audit log, unless it runs again, and adds the errors of its write concern. The result
/// is final.
#[inline(always)]
pub(super) fn observe(
    call: &Call<'_>,
    (context, request): Asked<'_>,
    (result, written): (&Result<()>, &Written),
    (doc, after): (&mut DocBuilder, &mut After),
) {
    let Call { service, connection, .. } = call;
    after.wait = context.effects.take_wait().filter(|_| result.is_ok());
    if after.wait.is_none() {
        let op = context.op;
        let began_at = written.began_at;
        Observed { service, connection, op, request, reply: doc, result, began_at }.note();
        if call.is_audited {
            audit::finished(service, connection, request, result);
        }
    }
    if let (Some(unmet), Ok(())) = (request.generic.write_concern.unmet, result) {
        unmet.append(request.body, doc);
    } else if call.may_fail && result.is_ok() && after.wait.is_none() {
        faults::after(service, connection, request, doc);
    }
}

/// What the connection loop does with the reply of a command that succeeded.
#[inline(always)]
pub(super) fn outcome(context: &CommandContext<'_>, request: &Request<'_>) -> Outcome {
    let effects = &context.effects;
    Outcome {
        wait_durable: waits_for_sync(context, request),
        wait_shown: effects.shown_up_to(),
        more_to_come: effects.streams(),
        failed: false,
        close: effects.closes(),
        pause: effects.paused(),
        counter: effects.counter().or(context.exhaust.last_counter),
    }
}

/// Whether the reply waits until the log is synced: the command's row says that it writes, or its operation that it wrote, and the
/// client asks for it. Statements of a transaction do not wait; the commit does.
#[inline(always)]
fn waits_for_sync(context: &CommandContext<'_>, request: &Request<'_>) -> bool {
    match request.row.writes {
        Writes::Nothing => false,
        Writes::Configuration => true,
        Writes::Sometimes | Writes::Settings | Writes::Documents | Writes::Repeatable => {
            context.op.writes()
                && request.generic.write_concern.durability() == Durability::Synced
                && statement_session(context, request).is_none()
        }
    }
}

/// The session whose transaction the command is a statement of.
#[inline(always)]
fn statement_session<'c>(
    context: &'c CommandContext<'_>,
    request: &Request<'_>,
) -> Option<&'c RefCell<CheckedOut>> {
    let session = context.transaction.as_ref();
    session.filter(|_| request.row.in_transaction != InTransaction::Ends)
}

/// Waits with a writing command while `fsync` holds its lock.
fn may_write<'s>(service: &'s Service, op: &OpCtx, row: &Row) -> Result<Option<Writing<'s>>> {
    if !row.writes.is_certain() {
        return Ok(None);
    }
    let lock = &service.store.fsync_lock;
    match lock.try_enter() {
        Some(writing) => Ok(Some(writing)),
        None => current::wait(|| lock.enter(op)).map(Some),
    }
}

/// A bug in a handler costs its caller an error, and no other client anything.
fn run_guarded(
    run: Run,
    context: &CommandContext<'_>,
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
