//! Decides which work is expected to take long, and which reply to be large. No other file does.
//!
//! Short work runs on the thread that read the message, because changing the thread costs more than
//! a find of one document. Long work is announced before it starts, and the runtime moves the other
//! tasks of its thread to another thread. Work that unexpectedly takes long is detected by
//! [`watch`](mayfly_work::watch) and then releases its thread.

use mayfly_query::Executor;
use mayfly_service::Service;
use mayfly_value::{Number, RawDoc, RawValue};
use mayfly_work::{LONG_BYTES, current};

use crate::request::row::Expected;
use crate::request::{OpKind, Request, Row};

/// The largest number of documents that a write unit inserts; more take long.
pub(crate) const UNIT_DOCUMENTS: usize = 256;

/// Work that is about to start.
pub(crate) enum Work<'w> {
    /// A whole command.
    Command(&'w Service, &'w Request<'w>),
    /// Inserts of documents with this total size.
    Inserts { documents: usize, bytes: usize },
    /// The first batch of a plan.
    Plan(&'w Executor),
    /// The first batch of a pipeline.
    Pipeline,
}

impl Work<'_> {
    /// The expected duration.
    pub(crate) fn length(&self) -> Length {
        let is_long = match self {
            Work::Command(service, request) => match request.row.expected {
                Expected::Short => false,
                Expected::Long => true,
                Expected::Batch => has_more_to_read(service, request.target()),
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

/// An expected duration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Length {
    /// It runs on the current thread of the runtime.
    Short,
    /// It releases the thread to the runtime first.
    Long,
}

impl Length {
    /// Runs the work accordingly.
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

/// Whether it is an update or delete with a single statement that selects its record by `_id`:
/// announcing it as long would cost more than the work itself.
fn is_point_write(request: &Request<'_>, field: &str) -> bool {
    let Ok(Some(mut statements)) = request.documents(field) else { return false };
    let (Some(statement), 0) = (statements.next(), statements.len()) else { return false };
    let filter = statement.get("q").and_then(RawValue::as_document);
    // Expressions and scripts may take any time for one document.
    let computes =
        |filter: RawDoc<'_>| filter.iter().any(|part| part.name_bytes().starts_with(b"$"));
    if filter.is_some_and(computes) || matches!(statement.get("u"), Some(RawValue::Array(_))) {
        return false;
    }
    match filter.and_then(|filter| filter.get("_id")) {
        // Operators may select many documents, and the other types cannot be an `_id`.
        None | Some(RawValue::Document(_) | RawValue::Array(_) | RawValue::Regex { .. }) => false,
        Some(_) => true,
    }
}

/// Whether the cursor with this id may find documents. Thousands of change streams without changes
/// ask again and again; changing the thread takes most of the time of such a batch.
fn has_more_to_read(service: &Service, id: RawValue<'_>) -> bool {
    match id {
        RawValue::Int64(id) => service.cursors.has_more_to_read(id, &service.store),
        // It fails.
        _ => false,
    }
}

/// Whether a command is expected to take long before it is parsed, so that it should wait for a
/// turn before it gets a thread. Other commands wait for a turn after they are parsed, if they need
/// one.
pub(crate) fn starts_long(service: &Service, row: &Row, body: RawDoc<'_>) -> bool {
    match row.expected {
        Expected::Long => true,
        Expected::Batch => {
            let id = body.iter().next().map(|element| element.value());
            id.is_some_and(|id| has_more_to_read(service, id))
        }
        Expected::Short | Expected::Statements(_) => false,
    }
}

/// Whether the reply may be large, which is assumed if it can contain more than one document.
pub(crate) fn may_answer_much(row: &Row, body: RawDoc<'_>) -> bool {
    let limit = body.get("limit").and_then(Number::from_value).and_then(Number::to_i64_exact);
    if limit.is_some_and(|limit| limit.abs() == 1) {
        return false;
    }
    row.kind == OpKind::Query || row.expected != Expected::Short
}

/// Runs work while a multi-threaded runtime moves the other tasks of this thread to another thread.
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

/// Makes blocking waits inside commands release their threads and turns.
pub fn announce_waits() {
    current::announce_waits_by(|wait| {
        if let Some(op) = current::current().op {
            op.thread.end_turn();
        }
        without_thread(wait);
    });
}
