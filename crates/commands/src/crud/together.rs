//! Adjacent statements of a command that share a write unit: updates and deletes of a single
//! document by its `_id`.
//!
//! Each statement has its own outcome, error and retry record, as if it had its own unit. Other
//! statements, and those of a unit that failed, are run one by one.

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use mayfly_base::{Namespace, Result};
use mayfly_query::{
    DeleteSpec, Image, ModifyOutcome, Repeatable, SingleWrite, UNIT_WRITES, Unmatched, UpdateSpec,
    WriteKind, single_id, write_together,
};
use mayfly_storage::{Collection, IdKey, Statement};
use mayfly_value::{RawDoc, RawValue};
use mayfly_work::PlanSummary;

use super::measurements;
use crate::context::{CommandContext, StatementFigures};

/// An update or delete statement of a write command.
pub(super) trait WriteStatement {
    fn filter(&self) -> RawDoc<'_>;

    /// Whether it may change several documents.
    fn is_multi(&self) -> bool;

    /// Parses filter and update.
    ///
    /// # Errors
    /// Errors of the filter and of the update.
    fn prepare(
        &self,
        ctx: &CommandContext<'_>,
        ns: &Namespace,
        repeatable: Option<Repeatable>,
    ) -> Result<PreparedWrite>;

    /// Executes it as the command's statement with this index, unless an earlier attempt executed
    /// it.
    ///
    /// # Errors
    /// Errors of [`WriteStatement::prepare`] and of the write.
    fn run(&self, ctx: &CommandContext<'_>, ns: &Namespace, index: usize) -> Result<ModifyOutcome>;
}

/// A statement with parsed filter and update.
pub(super) enum PreparedWrite {
    Update(Box<UpdateSpec>),
    Delete(Box<DeleteSpec>),
}

/// The retry record of a statement; write commands return no document.
pub(super) fn repeatable(statement: Option<Statement>) -> Option<Repeatable> {
    statement.map(|statement| Repeatable { statement, image: Image::Neither })
}

/// Runs statements on one collection in order. `done` receives index and result of each, and
/// decides whether to continue.
///
/// # Errors
/// Errors of `done`.
pub(super) fn run_all<S: WriteStatement>(
    ctx: &CommandContext<'_>,
    ns: &Namespace,
    first: usize,
    statements: &[S],
    done: &mut dyn FnMut(usize, Result<ModifyOutcome>) -> Result<Proceed>,
) -> Result<Proceed> {
    let mut at = 0;
    let mut meter = Meter::of(ctx, statements.len());
    while at < statements.len() {
        let front = Front::of(ctx, ns, first + at, &statements[at..]);
        let (results, alone) = front.map_or((Vec::new(), 1), |front| front.run(ctx));
        if let Some(meter) = &mut meter {
            meter.note(ctx, &results);
        }
        for result in results {
            if done(first + at, result)? == Proceed::Stop {
                return Ok(Proceed::Stop);
            }
            at += 1;
        }
        for _ in 0..alone {
            let result = statements[at].run(ctx, ns, first + at);
            if let Some(meter) = &mut meter {
                meter.note(ctx, std::slice::from_ref(&result));
            }
            if done(first + at, result)? == Proceed::Stop {
                return Ok(Proceed::Stop);
            }
            at += 1;
        }
    }
    Ok(Proceed::Continue)
}

/// Measures the statements of a command, of which each has an entry of the profiler.
struct Meter {
    keys_examined: u64,
    docs_examined: u64,
    micros: i64,
}

impl Meter {
    /// `None` if the command has one statement, or the profiler is off.
    fn of(ctx: &CommandContext<'_>, statements: usize) -> Option<Meter> {
        let measures = statements > 1 && ctx.service.profiler.may_record(0);
        measures.then(|| Meter::now(ctx))
    }

    fn now(ctx: &CommandContext<'_>) -> Meter {
        let op = ctx.op;
        Meter {
            keys_examined: op.keys_examined.load(Relaxed),
            docs_examined: op.docs_examined.load(Relaxed),
            micros: op.worked_micros(),
        }
    }

    /// Notes the statements that ran since the last call. Those of a common unit share what it
    /// read.
    fn note(&mut self, ctx: &CommandContext<'_>, results: &[Result<ModifyOutcome>]) {
        let now = Meter::now(ctx);
        let share = results.len().max(1) as u64;
        let mut plan_summary = PlanSummary::default();
        ctx.op.update_info(|info| plan_summary = info.plan_summary.clone());
        for result in results {
            let outcome = match result {
                Ok(done) => Ok([done.matched, done.modified, i64::from(done.upserted.is_some())]),
                Err(error) => Err(error.clone()),
            };
            ctx.effects.note_statement(StatementFigures {
                keys_examined: (now.keys_examined - self.keys_examined) / share,
                docs_examined: (now.docs_examined - self.docs_examined) / share,
                micros: (now.micros - self.micros) / share as i64,
                plan_summary: plan_summary.clone(),
                outcome,
            });
        }
        *self = now;
    }
}

/// Whether further statements run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Proceed {
    Continue,
    Stop,
}

/// Leading statements of a list that may share a unit.
struct Front {
    collection: Arc<Collection>,
    writes: Vec<(PreparedWrite, IdKey, Option<Statement>)>,
}

impl Front {
    /// The leading statements; `None` if the first one has to run on its own.
    fn of<S: WriteStatement>(
        ctx: &CommandContext<'_>,
        ns: &Namespace,
        first: usize,
        statements: &[S],
    ) -> Option<Front> {
        let may_share = |it: &S| !it.is_multi() && names_id(it.filter());
        // A transaction has no commits to share, and a failed statement ends it.
        if statements.len() < 2
            || !statements[..2].iter().all(may_share)
            || ctx.store.in_transaction()
            || ctx.store.view.has_before_record()
            || measurements::series_named(ctx, ns).is_some()
            || measurements::buckets_named(ctx, ns).is_some()
        {
            return None;
        }
        let collection = ctx.store.collection(ns)?;
        let mut front = Front { collection, writes: Vec::new() };
        let mut ids = HashSet::new();
        for (at, statement) in statements.iter().enumerate().take(UNIT_WRITES) {
            if !may_share(statement) {
                break;
            }
            // An invalid statement runs on its own and fails there.
            let Ok(Some(name)) = ctx.first_attempt(first + at) else { break };
            let Ok(write) = statement.prepare(ctx, ns, repeatable(name)) else { break };
            let query = match &write {
                PreparedWrite::Update(spec) => &spec.query,
                PreparedWrite::Delete(spec) => &spec.query,
            };
            let Some(id) = single_id(&front.collection, query) else { break };
            if !ids.insert(id.clone()) {
                break;
            }
            front.writes.push((write, id, name));
        }
        (front.writes.len() > 1).then_some(front)
    }

    /// Runs leading statements in one unit. Returns their results, and the number of statements
    /// that then have to run one by one.
    fn run(self, ctx: &CommandContext<'_>) -> (Vec<Result<ModifyOutcome>>, usize) {
        let writes = self.writes.iter().map(|(write, id, _)| {
            let kind = match write {
                PreparedWrite::Update(spec) => WriteKind::Update(spec),
                PreparedWrite::Delete(spec) => WriteKind::Delete(spec),
            };
            SingleWrite { kind, id: Some(id.clone()) }
        });
        let writes: Vec<_> = writes.collect();
        ctx.op.update_info(|info| info.plan_summary = PlanSummary::BY_ID);
        match write_together(ctx.store, &self.collection, &writes, Unmatched::Allowed) {
            Ok(Some(outcomes)) => {
                self.note_committed(ctx, &outcomes);
                (outcomes.into_iter().map(Ok).collect(), 0)
            }
            Ok(None) => (Vec::new(), self.writes.len()),
            // The commit failed for all of them.
            Err(error) => (self.writes.iter().map(|_| Err(error.clone())).collect(), 0),
        }
    }

    /// Records the statements that had an effect for a repetition of the command.
    fn note_committed(&self, ctx: &CommandContext<'_>, outcomes: &[ModifyOutcome]) {
        for (outcome, (write, _, statement)) in outcomes.iter().zip(&self.writes) {
            let has_effect = match write {
                PreparedWrite::Update(_) => outcome.had_effect(),
                PreparedWrite::Delete(_) => outcome.matched > 0,
            };
            if has_effect {
                ctx.committed(*statement, || outcome.record(None));
            }
        }
    }
}

/// Whether a filter compares `_id` with a value. Checked before parsing, which would be wasted on
/// other filters.
fn names_id(filter: RawDoc<'_>) -> bool {
    match filter.get("_id") {
        None => false,
        Some(RawValue::Document(value)) => value.iter().next().is_none_or(|field| {
            !field.name_bytes().starts_with(b"$") || field.name_bytes() == b"$eq"
        }),
        Some(_) => true,
    }
}
