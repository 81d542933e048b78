//! Which work is expected to take long, and which reply to be large. No other file decides that.
//!
//! Short work runs on the thread that read the message, because handing the thread over costs more than a find of one document does.
//! Long work announces itself before it starts, and the runtime gives the other tasks of this thread to another one. Work that was
//! expected to be short and takes long is detected by [`watch`](mayfly_work::watch) and hands its thread over then.

use mayfly_query::Executor;
use mayfly_value::{Number, RawDoc, RawValue};
use mayfly_work::{LONG_BYTES, current};

use crate::request::row::Expected;
use crate::request::{OpKind, Request, Row};

/// How many documents one write unit inserts at most; more take long.
pub(crate) const UNIT_DOCUMENTS: usize = 256;

/// Work that is about to start.
pub(crate) enum Work<'w> {
    /// A whole command.
    Command(&'w Request<'w>),
    /// Inserts of this many documents, which have so many bytes.
    Inserts { documents: usize, bytes: usize },
    /// The first batch of a plan.
    Plan(&'w Executor),
    /// The first batch of a pipeline.
    Pipeline,
}

impl Work<'_> {
    /// How long it is expected to take.
    pub(crate) fn length(&self) -> Length {
        let is_long = match self {
            Work::Command(request) => match request.row.expected {
                Expected::Short => false,
                Expected::Long => true,
                Expected::Statements(field) => !is_point_write(request, field),
            },
            Work::Inserts { documents, bytes } => {
                *documents > UNIT_DOCUMENTS || *bytes > LONG_BYTES
            }
            Work::Plan(executor) => executor.may_take_long(),
            Work::Pipeline => true,
        };
        if is_long { Length::Long } else { Length::Short }
    }
}

/// How long something is expected to take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Length {
    /// It runs on the thread of the runtime that it has.
    Short,
    /// It gives the thread back to the runtime first.
    Long,
}

impl Length {
    /// Runs the work.
    pub(crate) fn run<T>(self, act: impl FnOnce() -> T) -> T {
        match self {
            Length::Short => act(),
            Length::Long => without_thread(|| {
                if let Some(op) = current::current().op {
                    op.thread.begin_long(&op);
                }
                act()
            }),
        }
    }
}

/// Whether it is an update or delete of one statement that names its record by `_id`: work so short that
/// announcing it as long would cost more than the work.
fn is_point_write(request: &Request<'_>, field: &str) -> bool {
    let Ok(Some(mut statements)) = request.documents(field) else { return false };
    let (Some(statement), 0) = (statements.next(), statements.len()) else { return false };
    let filter = statement.get("q").and_then(RawValue::as_document);
    // Expressions and scripts may take any time for one document.
    let computes = |filter: RawDoc<'_>| filter.iter().any(|part| part.name().starts_with('$'));
    if filter.is_some_and(computes) || matches!(statement.get("u"), Some(RawValue::Array(_))) {
        return false;
    }
    match filter.and_then(|filter| filter.get("_id")) {
        // Operators may name many, and the others name none.
        None | Some(RawValue::Document(_) | RawValue::Array(_) | RawValue::Regex { .. }) => false,
        Some(_) => true,
    }
}

/// Whether a command is expected to take long by its row alone, so that it should wait for a turn before it gets a thread. What
/// other commands turn out to need, they wait for when they have been parsed.
pub(crate) fn starts_long(row: &Row) -> bool {
    row.expected == Expected::Long
}

/// Whether the reply may be large: anything that may hold more than one document.
pub(crate) fn may_answer_much(row: &Row, body: RawDoc<'_>) -> bool {
    let limit = body.get("limit").and_then(Number::from_value).and_then(Number::to_i64_exact);
    if limit.is_some_and(|limit| limit.abs() == 1) {
        return false;
    }
    row.kind == OpKind::Query || row.expected != Expected::Short
}

/// Runs work while the runtime, where it has several threads, gives this thread's other tasks to another thread.
fn without_thread<T>(work: impl FnOnce() -> T) -> T {
    use tokio::runtime::{Handle, RuntimeFlavor};
    let flavor = Handle::try_current().map(|handle| handle.runtime_flavor());
    if !matches!(flavor, Ok(RuntimeFlavor::MultiThread)) {
        return work();
    }
    let op = current::current().op;
    let kept = op.as_ref().is_some_and(|op| op.thread.release());
    let result = tokio::task::block_in_place(work);
    if let (Some(op), true) = (op, kept) {
        op.thread.set(true);
    }
    result
}

/// Makes waits deep inside commands give their threads and their turns back.
pub fn announce_waits() {
    current::announce_waits_by(|wait| {
        if let Some(op) = current::current().op {
            op.thread.end_turn();
        }
        without_thread(wait);
    });
}
