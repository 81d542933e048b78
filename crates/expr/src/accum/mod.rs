//! Accumulators, which combine the values of many documents into one. `$group` has one
//! [`AccumState`] per group and accumulator.
//!
//! An [`Accumulator`] is the immutable result of parsing. A state reports its memory
//! ([`AccumState::bytes`]), can be saved as a value ([`AccumState::save`]), and can be merged into
//! another state ([`Accumulator::merge`]): groups that do not fit into memory are spilled and
//! merged later, in the order of their documents.

mod deviation;
mod limits;
mod list;
mod parse;
mod percentile;
mod ranked;
mod scripted;
mod state;

use std::sync::Arc;

use mayfly_base::Result;
use mayfly_value::{Collation, RawDoc, RawElement, RawValue, ValueBuf};

use crate::op::check_n;
use crate::{Expression, Frame, Order, Scope};

pub(crate) use deviation::{Deviation, Population};
pub use limits::AccumulatorLimits;
pub(crate) use limits::StateLimit;
pub(crate) use list::{List, Merged, VALUE_BYTES as SET_ENTRY_BYTES, encoded};
pub(crate) use parse::shares;
pub(crate) use percentile::{index as percentile_index, median, percentiles, sorted_numbers};
pub(crate) use ranked::ENTRY_BYTES as RANKED_ENTRY_BYTES;
use scripted::{Functions, Scripted};
pub use state::AccumState;
use state::key_order;
pub(crate) use state::{array, not_an_array};

/// A row of the table of accumulators.
pub struct AccumRow {
    /// The name with its dollar sign.
    pub name: &'static str,
    /// A one-line description.
    pub help: &'static str,
    /// The first version of the reference with the accumulator.
    pub since: &'static str,
    kind: AccumulatorKind,
}

/// The implemented accumulators.
pub const ROWS: &[AccumRow] = &[
    row("$accumulator", "4.4", "The result of JavaScript functions.", AccumulatorKind::Scripted),
    row("$addToSet", "2.2", "The distinct values.", AccumulatorKind::AddToSet),
    row("$avg", "2.2", "The mean of the numbers.", AccumulatorKind::Avg),
    row(
        "$bottom",
        "5.2",
        "The value of the last document in a sort order.",
        AccumulatorKind::Bottom,
    ),
    row(
        "$bottomN",
        "5.2",
        "The values of the last documents in a sort order.",
        AccumulatorKind::BottomN,
    ),
    row("$concatArrays", "8.1", "The concatenation of all arrays.", AccumulatorKind::ConcatArrays),
    row("$count", "5.0", "The number of documents.", AccumulatorKind::Count),
    row("$first", "2.2", "The first value.", AccumulatorKind::First),
    row("$firstN", "5.2", "The first n values.", AccumulatorKind::FirstN),
    row("$last", "2.2", "The last value.", AccumulatorKind::Last),
    row("$lastN", "5.2", "The last n values.", AccumulatorKind::LastN),
    row("$max", "2.2", "The greatest value.", AccumulatorKind::Max),
    row("$maxN", "5.2", "The n greatest values.", AccumulatorKind::MaxN),
    row("$median", "7.0", "The median of the numbers.", AccumulatorKind::Median),
    row("$mergeObjects", "3.5.6", "All documents merged into one.", AccumulatorKind::MergeObjects),
    row("$min", "2.2", "The least value.", AccumulatorKind::Min),
    row("$minN", "5.2", "The n least values.", AccumulatorKind::MinN),
    row("$percentile", "7.0", "Quantiles of the numbers.", AccumulatorKind::Percentile),
    row("$push", "2.2", "All values.", AccumulatorKind::Push),
    row("$setUnion", "8.1", "The union of the arrays.", AccumulatorKind::SetUnion),
    row("$stdDevPop", "3.2", "The standard deviation of a population.", AccumulatorKind::StdDevPop),
    row("$stdDevSamp", "3.2", "The standard deviation of a sample.", AccumulatorKind::StdDevSamp),
    row("$sum", "2.2", "The sum of the numbers.", AccumulatorKind::Sum),
    row("$top", "5.2", "The value of the first document in a sort order.", AccumulatorKind::Top),
    row(
        "$topN",
        "5.2",
        "The values of the first documents in a sort order.",
        AccumulatorKind::TopN,
    ),
];

const fn row(
    name: &'static str,
    since: &'static str,
    help: &'static str,
    kind: AccumulatorKind,
) -> AccumRow {
    AccumRow { name, help, since, kind }
}

/// The accumulator's operator.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AccumulatorKind {
    AddToSet,
    Avg,
    Bottom,
    BottomN,
    ConcatArrays,
    Count,
    First,
    FirstN,
    Last,
    LastN,
    Max,
    MaxN,
    Median,
    MergeObjects,
    Min,
    MinN,
    Percentile,
    Push,
    Scripted,
    SetUnion,
    StdDevPop,
    StdDevSamp,
    Sum,
    Top,
    TopN,
}

/// A parsed accumulator.
#[derive(Clone, Debug)]
pub struct Accumulator {
    kind: AccumulatorKind,
    argument: Expression,
    /// The number of values for operators that take one; evaluated once per group, from its `_id`.
    n: Option<Expression>,
    /// The sort order of `$top` and related operators.
    order: Option<Order>,
    /// The quantiles requested from `$percentile`.
    shares: Arc<[f64]>,
    /// The functions of `$accumulator`.
    functions: Option<Arc<Functions>>,
    /// Memory limit of one state, in bytes.
    most_bytes: usize,
    collation: Option<Arc<Collation>>,
}

impl Accumulator {
    /// Parses the value of a field of `$group`, such as `{ $sum: ... }`.
    ///
    /// # Errors
    /// 40234, 40237, 40238, 15952 as in the reference; errors of the operators.
    pub fn parse(field: RawElement<'_>, scope: &Scope) -> Result<Accumulator> {
        parse::field(field, scope)
    }

    /// Parses an accumulator, given its name and operand.
    ///
    /// # Errors
    /// Errors of [`Accumulator::parse`]. Returns `None` for an unknown name.
    pub fn parse_operator(
        name: &str,
        operand: RawValue<'_>,
        scope: &Scope,
    ) -> Result<Option<Accumulator>> {
        match ROWS.iter().find(|row| row.name == name) {
            Some(row) => parse::operator(row, operand, scope).map(Some),
            None => Ok(None),
        }
    }

    /// The same as a window function, where an array is an expression like any other.
    ///
    /// # Errors
    /// Errors of [`Accumulator::parse`]. Returns `None` for an unknown name.
    pub(crate) fn parse_in_window(
        name: &str,
        operand: RawValue<'_>,
        scope: &Scope,
    ) -> Result<Option<Accumulator>> {
        match ROWS.iter().find(|row| row.name == name) {
            Some(row) => parse::window_operator(row, operand, scope).map(Some),
            None => Ok(None),
        }
    }

    /// Creates the state of a group. The number of values that some accumulators keep, and the
    /// initial state of `$accumulator`, may depend on the group's `_id`.
    ///
    /// # Errors
    /// Errors of evaluating the number, and of scripts.
    pub fn start(&self, id: Option<RawValue<'_>>) -> Result<AccumState> {
        if let Some(functions) = &self.functions {
            return Scripted::start(functions, self.group_frame(id)).map(AccumState::scripted);
        }
        Ok(AccumState::new(self.kind, self.start_n(id)?))
    }

    /// The number of values that the result of a group has; 1 for operators without such a number.
    ///
    /// # Errors
    /// Errors of evaluating the number.
    pub(crate) fn start_n(&self, id: Option<RawValue<'_>>) -> Result<usize> {
        match &self.n {
            None => Ok(1),
            Some(n) => check_n(&n.evaluate(self.group_frame(id))?),
        }
    }

    /// The frame of expressions over the `_id` of a group.
    fn group_frame<'a>(&'a self, id: Option<RawValue<'a>>) -> Frame<'a> {
        let root = id.and_then(RawValue::as_document).unwrap_or(RawDoc::EMPTY);
        Frame::new(root).collated(self.collation.as_deref())
    }

    /// Adds one document to the state.
    ///
    /// # Errors
    /// Errors of the argument; 146 ExceededMemoryLimit when the state exceeds its limit.
    pub fn add<'a>(&'a self, state: &mut AccumState, document: impl Into<Frame<'a>>) -> Result<()> {
        let frame = document.into().collated(self.collation.as_deref());
        self.add_in(state, frame)
    }

    /// The same with the variables and metadata of a frame.
    ///
    /// # Errors
    /// Errors of [`Accumulator::add`].
    pub fn add_in(&self, state: &mut AccumState, frame: Frame<'_>) -> Result<()> {
        let value = self.argument.evaluate(frame)?;
        match (&self.functions, &self.order) {
            (Some(_), _) => state.put_scripted(&value)?,
            (None, Some(order)) => {
                let key = order.encoded_key(frame.root(), self.collation.as_deref());
                state.put_ranked(key, value.as_raw().unwrap_or(RawValue::Null))?;
            }
            (None, None) => state.put(value.as_raw(), self.collation.as_deref())?,
        }
        state.check(self.most_bytes)
    }

    /// The key by which a document is ranked, and its value, for `$topN`, `$minN` and related
    /// operators. `None` for a document that does not count.
    ///
    /// # Errors
    /// Errors of the argument.
    pub(crate) fn ranked(&self, frame: Frame<'_>) -> Result<Option<(Vec<u8>, ValueBuf)>> {
        let collation = self.collation.as_deref();
        let value = self.argument.evaluate(frame)?;
        let value = value.as_raw().unwrap_or(RawValue::Null);
        let key = match &self.order {
            Some(order) => order.encoded_key(frame.root(), collation),
            None if matches!(value, RawValue::Null | RawValue::Undefined) => return Ok(None),
            None => encoded(value, key_order(self.kind), collation),
        };
        Ok(Some((key, value.to_owned())))
    }

    /// The memory limit of one state.
    pub(crate) fn limit(&self) -> StateLimit {
        StateLimit { kind: self.kind, most: self.most_bytes }
    }

    /// The quantiles requested from `$percentile`; that of `$median`.
    pub(crate) fn shares(&self) -> &[f64] {
        &self.shares
    }

    /// Merges the saved state of later documents of the same group.
    ///
    /// # Errors
    /// 146 ExceededMemoryLimit when the state exceeds its limit.
    pub fn merge(&self, state: &mut AccumState, saved: RawValue<'_>) -> Result<()> {
        state.merge(saved, self.collation.as_deref())?;
        state.check(self.most_bytes)
    }

    /// The result of a group; a missing value becomes null.
    ///
    /// # Errors
    /// 10334 BSONObjectTooLarge when the result is too large.
    pub fn finish(&self, state: &AccumState) -> Result<ValueBuf> {
        Ok(state.finish(&self.shares)?.unwrap_or_else(|| RawValue::Null.to_owned()))
    }

    /// The inputs of its expressions.
    pub fn dependencies(&self) -> crate::Dependencies {
        let mut found = self.argument.dependencies();
        if let Some(order) = &self.order {
            found.paths.extend(order.paths());
        }
        found
    }

    /// Whether it counts documents: `$count`, or a sum of ones.
    pub fn is_count(&self) -> bool {
        match self.kind {
            AccumulatorKind::Count => true,
            AccumulatorKind::Sum => self.argument.as_constant() == Some(RawValue::Int32(1)),
            _ => false,
        }
    }

    /// Whether it is `$first`, which needs only the first document.
    pub fn is_first(&self) -> bool {
        self.kind == AccumulatorKind::First
    }

    /// Whether it is `$last`, which needs only the last document.
    pub fn is_last(&self) -> bool {
        self.kind == AccumulatorKind::Last
    }

    /// Whether the initial state depends on the group.
    pub fn begins_with_group(&self) -> bool {
        let begins = self.n.iter().chain(self.functions.iter().map(|it| it.begins_with()));
        begins.map(Expression::dependencies).any(|reads| !reads.is_empty())
    }

    /// The operator.
    pub(crate) fn kind(&self) -> AccumulatorKind {
        self.kind
    }

    /// The expression evaluated for each document.
    pub(crate) fn argument(&self) -> &Expression {
        &self.argument
    }
}
