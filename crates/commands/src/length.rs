//! Which work is expected to keep its thread for long, and which reply to be large: decided here and nowhere else.
//!
//! Short work runs on the thread that has read the message, because handing the thread over costs more than a find of one document.
//! Long work says so before it begins, and the runtime lends another thread to whatever else this one had to do. What is only
//! expected to be short is watched ([`mayfly_base::threads`]): when it takes long after all, it hands its thread over then.

use mayfly_base::current;
use mayfly_query::Executor;
use mayfly_value::{Number, RawDoc, RawValue};

use crate::crud::insert::UNIT_DOCUMENTS;
use crate::registry::{self, Entry};
use crate::{OpKind, Request, RowFlags};

/// What is about to be done.
pub(crate) enum Work<'w> {
    /// A whole command.
    Command(&'w Request<'w>),
    /// So many inserts.
    Inserts(usize),
    /// The first batch of a plan.
    Plan(&'w Executor),
    /// The first batch of a pipeline.
    Pipeline,
}

impl Work<'_> {
    /// How long it is expected to take.
    pub(crate) fn length(&self) -> Length {
        let is_long = match self {
            Work::Command(request) => {
                request.row.flags.has(RowFlags::MAY_BLOCK) && !is_point_write(request)
            }
            Work::Inserts(documents) => *documents > UNIT_DOCUMENTS,
            Work::Plan(executor) => executor.may_take_long(),
            Work::Pipeline => true,
        };
        if is_long { Length::Long } else { Length::Short }
    }
}

/// How long something is expected to take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Length {
    /// It keeps its thread.
    Short,
    /// It does not.
    Long,
}

impl Length {
    /// Does it.
    pub(crate) fn run<T>(self, act: impl FnOnce() -> T) -> T {
        match self {
            Length::Short => act(),
            Length::Long => without_thread(act),
        }
    }
}

/// Whether it is an update or delete of one statement that names its record by `_id`: work so short that
/// announcing it as long would cost more than the work.
fn is_point_write(request: &Request<'_>) -> bool {
    let name = match request.row.kind {
        OpKind::Update => "updates",
        OpKind::Delete => "deletes",
        OpKind::Insert | OpKind::Query | OpKind::GetMore | OpKind::Command => return false,
    };
    let Ok(Some(mut statements)) = request.documents(name) else { return false };
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

/// Whether the reply to a command may be large. One document is not.
pub fn may_answer_much(command: RawDoc<'_>) -> bool {
    let name = command.iter().next().map_or("", |element| element.name());
    let limit = command.get("limit").and_then(Number::from_value).and_then(Number::to_i64_exact);
    if limit.is_some_and(|limit| limit.abs() == 1) {
        return false;
    }
    registry::find(name).is_some_and(|Entry { row, .. }| {
        row.kind == OpKind::Query || row.flags.has(RowFlags::MAY_BLOCK)
    })
}

/// Tells a multi-threaded runtime that this thread may be gone for a while.
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

/// Makes waits deep inside commands give their threads and their turns away.
pub fn announce_waits() {
    current::announce_waits_by(|wait| {
        if let Some(op) = current::current().op {
            op.thread.end_turn();
        }
        without_thread(wait);
    });
}
