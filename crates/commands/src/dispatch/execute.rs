//! The steps from the handler to the reply: execute, settle, observe.

use std::panic::{AssertUnwindSafe, catch_unwind};

use mayfly_base::{ClientData, Error, Result};
use mayfly_service::Authority;
use mayfly_storage::ReadView;
use mayfly_value::DocBuilder;

use super::begin::{self, CommandState};
use super::observe::Observed;
use super::{After, Call, Outcome, trace};
use crate::context::{CommandContext, Run};
use crate::crud::encrypted;
use crate::request::row::{Encrypted, Writes};
use crate::request::{Durability, Request};
use crate::rules::faults::{self};
use crate::rules::length::Work;
use crate::rules::{audit, transaction};

/// The state of the reply before the handler appended to it.
pub(super) struct Written {
    began_at: usize,
    capacity: usize,
}

impl Written {
    /// The current state of the reply.
    pub(super) fn before(doc: &DocBuilder) -> Written {
        Written { began_at: doc.len(), capacity: doc.capacity() }
    }

    /// The memory by which the reply has grown since.
    pub(super) fn grown(&self, doc: &DocBuilder) -> usize {
        doc.capacity().saturating_sub(self.capacity)
    }
}

/// Runs the handler, on another thread if it is expected to take long. The sessions and the view
/// exist.
///
/// # Errors
/// Errors of the handler.
#[inline(always)]
pub(super) fn execute(
    call: &Call<'_>,
    (run, request): (Run, &Request<'_>),
    state: (&CommandState<'_>, &ReadView),
    authority: Authority,
    doc: &mut DocBuilder,
) -> Result<()> {
    let context = begin::context(call, request, state, authority);
    Work::Command(call.service, request).length().run(|| run_guarded(run, &context, request, doc))
}

/// Leaves the view: the transaction of a statement continues or has ended, and pinned reads are
/// still valid. The handler has run; its reply uses `grown` bytes of memory.
///
/// # Errors
/// The error of the handler; 246 SnapshotUnavailable.
#[inline(always)]
pub(super) fn leave(
    call: &Call<'_>,
    request: &Request<'_>,
    (state, view): (&CommandState<'_>, ReadView),
    result: Result<()>,
    grown: usize,
) -> Result<()> {
    match begin::statement_session(state, request) {
        Some(session) => {
            let failed = state.effects.has_failed();
            let session = &mut session.borrow_mut();
            transaction::leave(session, view, state.op, grown, (result, failed))
        }
        None => {
            if let Some(shown) = view.cluster_time() {
                state.effects.read_as_of(shown);
            }
            result.and_then(|()| view.check(&call.service.store))
        }
    }
}

/// Acts on the result: remembers a retryable write, and determines up to which time the reply's
/// documents must be durable. An error gets that of the write concern. The view was left before.
#[inline(always)]
pub(super) fn settle(
    call: &Call<'_>,
    (state, request): (&CommandState<'_>, &Request<'_>),
    result: Result<()>,
) -> Result<()> {
    let service = call.service;
    if let Some(retry) = &state.retry {
        match retry.count_retried() {
            _ if result.is_err() => retry.doubt(),
            0 => {}
            retried => service.metrics.retried_statements.add(retried),
        }
    }
    if state.only_durable && result.is_ok() {
        let read_as_of = state.effects.time_of_reads();
        let shown = read_as_of.unwrap_or_else(|| service.store.last_timestamp());
        if !service.store.is_durable(shown) {
            state.effects.wait_until_durable(shown);
        }
    }
    match (result, request.generic.write_concern.unmet) {
        (Err(error), Some(unmet)) => Err(unmet.add_to(service, request.body, error)),
        (result, _) => result,
    }
}

/// Records the command in metrics, profile and audit log, unless it runs again, and appends the
/// errors of its write concern. The result is final.
#[inline(always)]
pub(super) fn observe(
    call: &Call<'_>,
    (state, request): (&CommandState<'_>, &Request<'_>),
    (result, written): (&Result<()>, &Written),
    (doc, after): (&mut DocBuilder, &mut After),
) {
    let Call { service, connection, .. } = call;
    after.wait = state.effects.take_wait().filter(|_| result.is_ok());
    if after.wait.is_none() {
        let op = state.op;
        let began_at = written.began_at;
        let effects = &state.effects;
        Observed { service, connection, op, request, effects, reply: doc, result, began_at }.note();
        if let Some(trace) = &mut after.trace {
            trace::note(trace, op, request);
        }
        if call.is_audited {
            audit::finished(service, connection, request, result);
        }
    }
    if request.generic.transaction.is_some() && result.is_ok() {
        transaction::append_recovery_token(service, doc);
    }
    if let (Some(unmet), Ok(())) = (request.generic.write_concern.unmet, result) {
        unmet.append(service, request.body, doc);
    } else if call.may_fail && result.is_ok() && after.wait.is_none() {
        faults::after(service, connection, request, doc);
    }
}

/// The outcome of a command that succeeded, for the connection's loop.
#[inline(always)]
pub(super) fn outcome(call: &Call<'_>, state: &CommandState<'_>, request: &Request<'_>) -> Outcome {
    let effects = &state.effects;
    Outcome {
        wait_durable: waits_for_sync(state, request),
        wait_shown: effects.shown_up_to(),
        more_to_come: effects.streams(),
        failed: false,
        close: effects.closes(),
        pause: effects.paused(),
        counter: effects.counter().or(call.incoming.repeat.last_counter),
    }
}

/// Whether the reply waits for a sync of the log: the command's row states that it writes or its
/// operation that it wrote, and the client's write concern asks for it. Statements of a transaction
/// do not wait; the commit does.
#[inline(always)]
fn waits_for_sync(state: &CommandState<'_>, request: &Request<'_>) -> bool {
    match request.row.writes {
        Writes::Nothing => false,
        Writes::Configuration => true,
        Writes::Sometimes | Writes::Settings | Writes::Documents | Writes::Repeatable => {
            state.op.writes()
                && request.generic.write_concern.durability() == Durability::Synced
                && begin::statement_session(state, request).is_none()
        }
    }
}

/// Runs the handler of a command; with encrypted values, after its filters were rewritten.
fn run_rewritten(
    run: Run,
    context: &CommandContext<'_>,
    request: &Request<'_>,
    doc: &mut DocBuilder,
) -> Result<()> {
    // `nsInfo` has the definition, which the parser of generic arguments does not see.
    let may_be = match request.row.encrypted {
        Encrypted::Statements { in_namespaces: true, .. } => true,
        _ => request.generic.is_encrypted,
    };
    if !may_be {
        return run(context, request, doc);
    }
    match encrypted::rewritten(context, request)? {
        None => run(context, request, doc),
        Some(rewritten) => rewritten.with_request(request, |request| run(context, request, doc)),
    }
}

/// Catches a panic of a handler: its client gets an error, and other clients are unaffected.
fn run_guarded(
    run: Run,
    context: &CommandContext<'_>,
    request: &Request<'_>,
    doc: &mut DocBuilder,
) -> Result<()> {
    match catch_unwind(AssertUnwindSafe(|| run_rewritten(run, context, request, doc))) {
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
