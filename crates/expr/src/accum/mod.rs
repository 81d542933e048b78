//! Accumulators: values of many documents to one. `$group` has one [`AccumState`] per group and accumulator.
//!
//! An [`Accumulator`] is what was parsed and never changes; the state is what runs. A state says how much memory it holds
//! ([`AccumState::bytes`]), becomes a value that can be stored ([`AccumState::save`]), and takes such a value back into another
//! state ([`Accumulator::merge`]): groups that do not fit memory are written out and merged later, in the order in which their
//! documents came.

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

pub use limits::AccumulatorLimits;
pub(crate) use list::{Merged, encoded};
pub(crate) use parse::shares;
pub(crate) use percentile::{percentile, sorted_numbers};
use scripted::{Functions, Scripted};
pub use state::AccumState;
pub(crate) use state::Deviation;

/// A row of the table of accumulators.
pub struct AccumRow {
    /// With its dollar.
    pub name: &'static str,
    /// One line of help.
    pub help: &'static str,
    /// The reference's version that first had it.
    pub since: &'static str,
    kind: Kind,
}

/// Accumulators that work.
pub const ROWS: &[AccumRow] = &[
    row("$accumulator", "4.4", "What JavaScript functions make of documents.", Kind::Scripted),
    row("$addToSet", "2.2", "Every value once.", Kind::AddToSet),
    row("$avg", "2.2", "The mean of the numbers.", Kind::Avg),
    row("$bottom", "5.2", "The value of the last document in an order.", Kind::Bottom),
    row("$bottomN", "5.2", "The values of the last documents in an order.", Kind::BottomN),
    row("$concatArrays", "8.1", "All arrays in one.", Kind::ConcatArrays),
    row("$count", "5.0", "The number of documents.", Kind::Count),
    row("$first", "2.2", "The first value.", Kind::First),
    row("$firstN", "5.2", "The first n values.", Kind::FirstN),
    row("$last", "2.2", "The last value.", Kind::Last),
    row("$lastN", "5.2", "The last n values.", Kind::LastN),
    row("$max", "2.2", "The greatest value.", Kind::Max),
    row("$maxN", "5.2", "The n greatest values.", Kind::MaxN),
    row("$median", "7.0", "The value in the middle.", Kind::Median),
    row("$mergeObjects", "3.5.6", "All documents in one.", Kind::MergeObjects),
    row("$min", "2.2", "The least value.", Kind::Min),
    row("$minN", "5.2", "The n least values.", Kind::MinN),
    row("$percentile", "7.0", "Values at shares of the numbers.", Kind::Percentile),
    row("$push", "2.2", "All values.", Kind::Push),
    row("$setUnion", "8.1", "What is in any of the arrays.", Kind::SetUnion),
    row("$stdDevPop", "3.2", "The deviation of a population.", Kind::StdDevPop),
    row("$stdDevSamp", "3.2", "The deviation of a sample.", Kind::StdDevSamp),
    row("$sum", "2.2", "The sum of the numbers.", Kind::Sum),
    row("$top", "5.2", "The value of the first document in an order.", Kind::Top),
    row("$topN", "5.2", "The values of the first documents in an order.", Kind::TopN),
];

const fn row(name: &'static str, since: &'static str, help: &'static str, kind: Kind) -> AccumRow {
    AccumRow { name, help, since, kind }
}

/// Which accumulator.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
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
    kind: Kind,
    argument: Expression,
    /// How many values, for those that say it; computed once per group, from its `_id`.
    n: Option<Expression>,
    /// What `$top` and its kin go by.
    order: Option<Order>,
    /// The shares that `$percentile` wants.
    shares: Arc<[f64]>,
    /// Those of `$accumulator`.
    functions: Option<Arc<Functions>>,
    /// Memory of one state, in bytes.
    most_bytes: usize,
    collation: Option<Arc<Collation>>,
}

impl Accumulator {
    /// Parses `{ $sum: ... }`, the value of a field of `$group`.
    ///
    /// # Errors
    /// 40234, 40237, 40238, 15952 as the reference has them; those of the operators.
    pub fn parse(field: RawElement<'_>, scope: &Scope) -> Result<Accumulator> {
        parse::field(field, scope)
    }

    /// Parses an accumulator by its name and its operand.
    ///
    /// # Errors
    /// Those of [`Accumulator::parse`], but nothing when there is no accumulator of the name.
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

    /// The state of a group before its first document. The number of values that some accumulators take, and what
    /// `$accumulator` begins with, may depend on the group's `_id`.
    ///
    /// # Errors
    /// Those of the number, and of scripts.
    pub fn start(&self, id: Option<RawValue<'_>>) -> Result<AccumState> {
        let root = id.and_then(RawValue::as_document).unwrap_or(RawDoc::EMPTY);
        let frame = Frame::new(root).collated(self.collation.as_deref());
        if let Some(functions) = &self.functions {
            return Scripted::start(functions, frame).map(AccumState::scripted);
        }
        let n = match &self.n {
            None => 1,
            Some(n) => check_n(&n.evaluate(frame)?)?,
        };
        Ok(AccumState::new(self.kind, n))
    }

    /// Takes one document into the state.
    ///
    /// # Errors
    /// Those of the argument; 146 ExceededMemoryLimit where one value would outgrow memory.
    pub fn add<'a>(&'a self, state: &mut AccumState, document: impl Into<Frame<'a>>) -> Result<()> {
        let frame = document.into().collated(self.collation.as_deref());
        self.add_in(state, frame)
    }

    /// The same with what else the expressions may name.
    ///
    /// # Errors
    /// Those of [`Accumulator::add`].
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

    /// Takes in what another state of the same group saved; what it saw came later than what this one saw.
    ///
    /// # Errors
    /// 146 ExceededMemoryLimit.
    pub fn merge(&self, state: &mut AccumState, saved: RawValue<'_>) -> Result<()> {
        state.merge(saved, self.collation.as_deref())?;
        state.check(self.most_bytes)
    }

    /// The result of a group; what is missing is null.
    ///
    /// # Errors
    /// 10334 BSONObjectTooLarge.
    pub fn finish(&self, state: &AccumState) -> Result<ValueBuf> {
        Ok(state.finish(&self.shares)?.unwrap_or_else(|| RawValue::Null.to_owned()))
    }

    /// What its expressions read.
    pub fn dependencies(&self) -> crate::Dependencies {
        let mut found = self.argument.dependencies();
        if let Some(order) = &self.order {
            found.paths.extend(order.paths());
        }
        found
    }

    /// Whether it counts documents: a sum of ones.
    pub fn is_count(&self) -> bool {
        match self.kind {
            Kind::Count => true,
            Kind::Sum => self.argument.as_constant() == Some(RawValue::Int32(1)),
            _ => false,
        }
    }

    /// Whether it is `$first`, which looks at the first document only.
    pub fn is_first(&self) -> bool {
        self.kind == Kind::First
    }

    /// Whether it is `$last`, which looks at the last document only.
    pub fn is_last(&self) -> bool {
        self.kind == Kind::Last
    }

    /// Whether what it begins with depends on the group.
    pub fn begins_with_group(&self) -> bool {
        let begins = self.n.iter().chain(self.functions.iter().map(|it| it.begins_with()));
        begins.map(Expression::dependencies).any(|reads| !reads.is_empty())
    }

    /// Which it is.
    pub(crate) fn kind(&self) -> Kind {
        self.kind
    }

    /// What it takes of each document.
    pub(crate) fn argument(&self) -> &Expression {
        &self.argument
    }
}
