//! From a message's documents to a finished reply: find the command, and take its steps.
//!
//! The order of the steps is a contract; [`run_command`] is the list of them, and each says what must hold before it. Nothing of
//! the request changes anything before its rights are checked, and an operation is registered before it is asked whether this
//! node is the primary.

mod begin;
mod execute;
mod observe;
mod reply;
mod request;

use std::sync::Arc;
use std::time::Duration;

use mayfly_base::{Error, ErrorCode, Result};
use mayfly_service::{Connection, Service};
use mayfly_value::{DocBuilder, RawDoc};
use mayfly_work::FirstTurn;

use crate::context::{Command, Entry, Wait};
use crate::registry;
use crate::request::{DocumentSequence, Request};
use crate::rules::{length, primacy, repeat};

pub use reply::append_failure;

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
    /// The command, and the name that it was called by.
    called: (Option<Entry>, &'a str),
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

    /// Whether the command is expected to take long by its name alone, so that it should wait for a turn before it gets a thread.
    pub fn starts_long(&self) -> bool {
        self.called.0.is_some_and(|entry| length::starts_long(&entry.command.row))
    }

    /// Whether the reply may be large.
    pub fn may_answer_much(&self) -> bool {
        let entry = self.called.0;
        entry.is_some_and(|entry| length::may_answer_much(&entry.command.row, self.body))
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

/// One call of a command: what each of its steps reads.
struct Call<'a> {
    service: &'a Arc<Service>,
    connection: &'a Arc<Connection>,
    incoming: &'a Incoming<'a>,
    command: &'static Command,
    /// The audit log is on.
    is_audited: bool,
    /// A fail point is on.
    may_fail: bool,
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
    let result = find_and_run(service, connection, incoming, &mut doc, &mut after);
    let After { mut outcome, wait, hang_up } = after;
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
        let text = format!("no such command: '{name}'");
        return Err(Error::new(ErrorCode::CommandNotFound, text));
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
    let result = run_command(&call, doc, after)
        .map_err(|error| repeat::label(error, &command.row, incoming.body));
    if result.is_err() {
        service.metrics.command(index).failed.add(1);
    }
    result
}

/// The steps of every command, in their order.
fn run_command(call: &Call<'_>, doc: &mut DocBuilder, after: &mut After) -> Result<()> {
    let db = request::count(call)?;
    // The request stays where it is made: it is long.
    let mut request: Request<'_> = request::parse(call, db)?;
    let (run, authority) = request::authorize(call, &request, after)?;
    request::claim_session(&mut request, &authority)?;
    request::check_concerns(call, &mut request)?;
    let guard = begin::admit(call, &request)?;
    let mut faults = begin::pass_fail_points(call, guard.op(), &request, after)?;
    if let Some(wait) = begin::wait(call, &request)? {
        after.wait = Some(Wait::Data(wait));
        return Ok(());
    }
    let _running = begin::occupy_thread(call, &guard);
    let held = begin::take_sessions(call, guard.op(), &request)?;
    let writing = begin::enter_writers(call, &request, &held)?;
    let view = begin::make_view(call, &request, &held, &mut faults)?;
    let written = execute::Written::before(doc);
    let result = execute::execute(call, (run, &request), (&held, &view), authority, doc);
    let result = execute::leave(call, &request, (&held, view), result, written.grown(doc));
    drop(writing);
    let result = execute::settle(call, &held, result);
    execute::observe(call, (&held, &request), (&result, &written), (doc, after));
    after.hang_up = held.effects.hangs_up()
        || faults.hangs_up()
        // If the audit log cannot be written, no reply is sent.
        || call.is_audited && call.service.audit.has_failed();
    after.outcome = execute::outcome(call, &held, &request);
    result
}
