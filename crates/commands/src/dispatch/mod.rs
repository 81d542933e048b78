//! From a request to its reply: finds the command and runs its steps.
//!
//! The order of the steps is a contract; [`run_command`] and [`run_admitted`] list them, and the
//! comment of each states its preconditions. A request changes nothing before its rights are
//! checked, and an operation is registered before the check whether this node is the primary.

mod begin;
mod execute;
mod observe;
mod reply;
mod request;
mod trace;

use std::sync::Arc;
use std::time::Duration;

use crate::request::no_such_command;
use mayfly_base::Result;
use mayfly_service::{Authority, CommandTrace, Connection, Service};
use mayfly_value::{DocBuilder, RawDoc};
use mayfly_work::{FirstTurn, OpGuard, WaitingOp};

use crate::context::{Command, Entry, Run, Wait};
use crate::registry;
use crate::request::{DocumentSequence, Request};
use crate::rules::{length, primacy, repeat};

pub use reply::append_failure;

/// A request from the connection's loop.
#[derive(Clone, Copy)]
pub struct Incoming<'a> {
    /// The body of the message, with the command's name as its first field.
    pub body: RawDoc<'a>,
    /// Its document sequences.
    pub sequences: &'a [DocumentSequence<'a>],
    /// The database, if the message has it outside of the command.
    pub legacy_db: Option<&'a str>,
    /// Whether the client accepts further replies.
    pub exhaust_allowed: bool,
    /// The state of a request that runs again.
    pub repeat: Repeat,
    /// The operation of a request that has waited.
    pub waited: Option<&'a WaitingOp>,
    /// The turn to start, if the command had to wait for one
    /// ([`starts_long`](Incoming::starts_long)).
    pub first_turn: Option<&'a FirstTurn>,
    /// The command, and the name in the request.
    called: (Option<Entry>, &'a str),
}

impl<'a> Incoming<'a> {
    /// A request with only a command, which runs for the first time.
    pub fn new(body: RawDoc<'a>) -> Incoming<'a> {
        let name = body.iter().next().map_or("", |element| element.name());
        Incoming {
            body,
            sequences: &[],
            legacy_db: None,
            exhaust_allowed: false,
            repeat: Repeat::default(),
            waited: None,
            first_turn: None,
            called: (registry::find(name), name),
        }
    }

    /// The request as it runs again, with the operation that has waited.
    pub fn again<'w>(&self, waited: Option<&'w WaitingOp>) -> Incoming<'w>
    where
        'a: 'w,
    {
        Incoming { waited, ..*self }
    }

    /// Whether the command is expected to take long, so that it should wait for a turn before it
    /// gets a thread.
    pub fn starts_long(&self, service: &Service) -> bool {
        let entry = self.called.0;
        entry.is_some_and(|entry| length::starts_long(service, &entry.command.row, self.body))
    }

    /// Whether the reply may be large.
    pub fn may_answer_much(&self) -> bool {
        let entry = self.called.0;
        entry.is_some_and(|entry| length::may_answer_much(&entry.command.row, self.body))
    }
}

/// The state of a request that runs more than once.
#[derive(Clone, Copy, Debug, Default)]
pub struct Repeat {
    /// The topology counter in the last streamed reply.
    pub last_counter: Option<i64>,
    /// Whether its wait is over.
    pub waited: bool,
    /// The total time of its waits for data.
    pub waited_for: Duration,
}

/// The next action of the connection's loop.
pub enum Next {
    /// It sends the reply, with the actions of the outcome before and after it.
    Reply(Outcome),
    /// It sends nothing, waits, and dispatches the request again. A wait for data is shown as an
    /// operation.
    Wait(Wait, Option<WaitingOp>),
    /// It closes the connection without a reply.
    HangUp,
}

/// Actions of the connection's loop before and after it sends a reply.
#[derive(Clone, Copy, Debug, Default)]
pub struct Outcome {
    /// Waits for durability of the log before.
    pub wait_durable: bool,
    /// Waits until the log is durable up to this timestamp before; 0 for no wait.
    pub wait_shown: u64,
    /// Flags the reply, and dispatches the request again after it.
    pub more_to_come: bool,
    /// The reply has `ok: 0`.
    pub failed: bool,
    /// Closes the connection after the reply.
    pub close: bool,
    /// Delays the reply.
    pub pause: Duration,
    /// The topology counter in the reply.
    pub counter: Option<i64>,
}

/// The result of a dispatch: the reply, not yet closed, and the next action.
pub struct Dispatched {
    /// The reply; empty if the command waits, and not sent if the connection is closed.
    pub doc: DocBuilder,
    /// The next action of the connection's loop.
    pub next: Next,
    /// The trace of a command that has ended, if it is traced.
    pub trace: Option<Box<CommandTrace>>,
}

/// The decisions of the steps so far about the actions after the command.
#[derive(Default)]
struct After {
    outcome: Outcome,
    wait: Option<Wait>,
    waiting: Option<WaitingOp>,
    hang_up: bool,
    trace: Option<Box<CommandTrace>>,
}

/// The call of a command, as the steps read it.
struct Call<'a> {
    service: &'a Arc<Service>,
    connection: &'a Arc<Connection>,
    incoming: &'a Incoming<'a>,
    command: &'static Command,
    /// Whether the audit log is on.
    is_audited: bool,
    /// Whether a fail point is set.
    may_fail: bool,
}

/// Runs a command, which appends its reply to the empty `doc`.
pub fn dispatch(
    service: &Arc<Service>,
    connection: &Arc<Connection>,
    incoming: &Incoming<'_>,
    mut doc: DocBuilder,
) -> Dispatched {
    let start = doc.len() - 4;
    let mut after = After::default();
    if service.traces.is_on() {
        after.trace = trace::begin(service, incoming);
    }
    let result = find_and_run(service, connection, incoming, &mut doc, &mut after);
    let After { mut outcome, wait, waiting, hang_up, mut trace } = after;
    if let Some(trace) = &mut trace {
        trace::end(trace, service, &result);
    }
    let next = match (result, wait) {
        (Err(error), _) => {
            let Outcome { close, pause, .. } = outcome;
            outcome = Outcome { failed: true, close, pause, ..Outcome::default() };
            service.metrics.asserts.user.add(1);
            doc = reply::rewind(doc, start);
            append_failure(service, &error, &mut doc);
            Next::Reply(outcome)
        }
        (Ok(()), Some(wait)) => {
            doc = reply::rewind(doc, start);
            // The command runs again, and is traced then.
            trace = None;
            Next::Wait(wait, waiting)
        }
        (Ok(()), None) => {
            doc.append("ok", 1.0);
            primacy::append_gossip(service, None, &mut doc);
            Next::Reply(outcome)
        }
    };
    Dispatched { doc, next: if hang_up { Next::HangUp } else { next }, trace }
}

/// Finds the command, runs it, and counts it.
fn find_and_run(
    service: &Arc<Service>,
    connection: &Arc<Connection>,
    incoming: &Incoming<'_>,
    doc: &mut DocBuilder,
    after: &mut After,
) -> Result<()> {
    let (entry, name) = incoming.called;
    let Some(Entry { index, command }) = entry else {
        service.metrics.opcounters.command.add(1);
        return Err(no_such_command(name));
    };
    // A command that runs again after waiting is counted once.
    if !incoming.repeat.waited {
        service.metrics.command(index).total.add(1);
    }
    let call = Call {
        service,
        connection,
        incoming,
        command,
        is_audited: service.audit.is_on(),
        may_fail: service.fail_points.any_on(),
    };
    let result = run_command(&call, doc, after).map_err(|error| {
        let error = primacy::of_lost_store(service, error);
        repeat::label(error, &command.row, incoming.body)
    });
    if result.is_err() {
        service.metrics.command(index).failed.add(1);
    }
    result
}

/// The steps of every command, in order.
fn run_command(call: &Call<'_>, doc: &mut DocBuilder, after: &mut After) -> Result<()> {
    let db = request::count(call)?;
    // Not moved after its construction, because it is large.
    let mut request: Request<'_> = request::parse(call, db)?;
    let (run, authority) = request::authorize(call, &request, after)?;
    request::claim_session(&mut request, &authority)?;
    request::check_concerns(call, &mut request)?;
    let guard = begin::admit(call, &request)?;
    let result = run_admitted(call, (&guard, &request), (run, authority), doc, after);
    if matches!(after.wait, Some(Wait::Data(_))) && result.is_ok() {
        after.waiting = Some(guard.wait());
    }
    result
}

/// The steps of a command that is registered as an operation.
#[inline(always)]
fn run_admitted(
    call: &Call<'_>,
    (guard, request): (&OpGuard, &Request<'_>),
    (run, authority): (Run, Authority),
    doc: &mut DocBuilder,
    after: &mut After,
) -> Result<()> {
    let mut faults = begin::pass_fail_points(call, guard.op(), request, after)?;
    if let Some(wait) = begin::wait(call, guard.op(), request)? {
        after.wait = Some(Wait::Data(wait));
        return Ok(());
    }
    let _running = begin::occupy_thread(call, guard);
    let state = begin::take_sessions(call, guard.op(), request)?;
    let writing = begin::enter_writers(call, request, &state)?;
    let view = begin::make_view(call, request, &state, &mut faults)?;
    let written = execute::Written::before(doc);
    let result = execute::execute(call, (run, request), (&state, &view), authority, doc);
    let result = execute::leave(call, request, (&state, view), result, written.grown(doc));
    drop(writing);
    let result = execute::settle(call, (&state, request), result);
    execute::observe(call, (&state, request), (&result, &written), (doc, after));
    after.hang_up = state.effects.hangs_up()
        || faults.hangs_up()
        // If the audit log cannot be written, no reply is sent.
        || call.is_audited && call.service.audit.has_failed();
    after.outcome = execute::outcome(call, &state, request);
    result
}
