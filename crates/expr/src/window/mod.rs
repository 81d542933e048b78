//! Window functions: a value for each document from the documents around it. Pure functions over one partition.
//!
//! A stage drives them like this:
//!
//! 1. Parse each field of `output` with [`WindowFunction::parse`], giving it the stage's order if it has one. The field's value
//!    is the operator and, beside it, the `window` that it looks through.
//! 2. Sort the input by the partition's value and then by the order; collect one partition at a time.
//! 3. For each partition, [`WindowFunction::run`] gives one result per document, in the order of the documents. Nothing means
//!    that the field stays away.
//!
//! The memory that a partition needs is its documents and one result each; a stage that holds a partition counts them. A
//! [`WindowStream`] gives the same results for a partition in files.
//! Functions that add and take away do so as the window moves; the others begin anew for each document, unless the window
//! only grows.

mod bounds;
mod calculus;
mod fill;
mod parse;
mod rank;
mod slide;
mod stream;

use std::sync::Arc;

use mayfly_base::Result;
use mayfly_value::{Collation, DocBuf, RawDoc, RawValue, ValueBuf, ty};

use crate::accum::Accumulator;
use crate::op::Unit;
use crate::{Dependencies, Expression, Frame, Order, Scope};
pub use bounds::{Bound, Bounds};
pub use stream::{DocumentReader, OpenReader, StreamMemory, WindowStream};

/// A row of the table of window functions; the accumulators that are window functions, too, stand in their own table.
pub struct WindowRow {
    /// With its dollar.
    pub name: &'static str,
    /// One line of help.
    pub help: &'static str,
    /// The reference's version that first had it.
    pub since: &'static str,
}

const fn row(name: &'static str, since: &'static str, help: &'static str) -> WindowRow {
    WindowRow { name, help, since }
}

/// Window functions that work, beside the accumulators.
pub const ROWS: &[WindowRow] = &[
    row("$covariancePop", "5.0", "The covariance of a population."),
    row("$covarianceSamp", "5.0", "The covariance of a sample."),
    row("$denseRank", "5.0", "The place in the order, without gaps."),
    row("$derivative", "5.0", "The change per unit of the order."),
    row("$documentNumber", "5.0", "The position in the partition."),
    row("$expMovingAvg", "5.0", "A mean in which older values fade."),
    row("$integral", "5.0", "The area under the values."),
    row("$linearFill", "5.3", "Gaps filled by straight lines."),
    row("$locf", "5.2", "Gaps filled with the last value."),
    row("$rank", "5.0", "The place in the order, with gaps."),
    row("$shift", "5.0", "The value of a document so many places away."),
];

/// Whether an accumulator is a window function, too: those in JavaScript run in groups only.
pub fn takes_accumulator(name: &str) -> bool {
    name != "$accumulator"
}

/// Window functions that came with versions of the reference behind 8.0, and do not exist here.
pub const NEWER: &[&str] = &["$minMaxScaler"];

/// Takes results, one for each document of a partition; nothing for what is missing.
pub type See<'s> = dyn FnMut(Option<ValueBuf>) -> Result<()> + 's;

/// A parsed window function.
#[derive(Clone, Debug)]
pub struct WindowFunction {
    function: Function,
    bounds: Bounds,
    order: Option<Order>,
    collation: Option<Arc<Collation>>,
}

#[derive(Clone, Debug)]
enum Function {
    Accumulate(Box<Accumulator>),
    Rank(rank::Which),
    Shift { output: Expression, by: i64, default: Option<ValueBuf> },
    Derivative { input: Expression, unit: Option<Unit> },
    Integral { input: Expression, unit: Option<Unit> },
    Fading { input: Expression, alpha: calculus::Alpha },
    Covariance { pair: [Expression; 2], sample: bool },
    LinearFill(Expression),
    Locf(Expression),
}

impl WindowFunction {
    /// Parses `{ $sum: ..., window: { ... } }`, the value of a field of `output`.
    ///
    /// # Errors
    /// 9 FailedToParse for bad forms and windows, 5339900 to 5339902 for bounds that do not go together, those of operators.
    pub fn parse(spec: RawDoc<'_>, order: Option<&Order>, scope: &Scope) -> Result<WindowFunction> {
        parse::function(spec, order, scope)
    }

    /// One result per document of a partition, which is in the stage's order.
    ///
    /// # Errors
    /// Those of expressions and operators.
    pub fn run(&self, partition: &[DocBuf]) -> Result<Vec<Option<ValueBuf>>> {
        let mut results = Vec::with_capacity(partition.len());
        self.run_each(partition, &mut |result| {
            results.push(result);
            Ok(())
        })?;
        Ok(results)
    }

    /// The same, shown one by one where they may be large: arrays that grow with the partition.
    ///
    /// # Errors
    /// As [`WindowFunction::run`], and those of the visitor.
    pub fn run_each(&self, partition: &[DocBuf], see: &mut See<'_>) -> Result<()> {
        let results = match &self.function {
            Function::Accumulate(accumulator) => {
                return slide::run(self, accumulator, partition, see);
            }
            Function::Rank(which) => rank::run(*which, self, partition),
            Function::Shift { output, by, default } => {
                fill::shift(self, output, *by, default.as_ref(), partition)?
            }
            Function::Derivative { input, unit } => {
                calculus::derivative(self, input, *unit, partition)?
            }
            Function::Integral { input, unit } => {
                calculus::integral(self, input, *unit, partition)?
            }
            Function::Fading { input, alpha } => calculus::fading(self, input, alpha, partition)?,
            Function::Covariance { pair, sample } => {
                calculus::covariance(self, pair, *sample, partition)?
            }
            Function::LinearFill(input) => fill::linear(self, input, partition)?,
            Function::Locf(input) => fill::carried(self, input, partition)?,
        };
        results.into_iter().try_for_each(see)
    }

    /// What its expressions read.
    pub fn dependencies(&self) -> Dependencies {
        let mut found = Dependencies::default();
        match &self.function {
            Function::Accumulate(accumulator) => found = accumulator.dependencies(),
            Function::Rank(_) => {}
            Function::Covariance { pair, .. } => pair.iter().for_each(|it| found.add(it)),
            Function::Shift { output: input, .. }
            | Function::Derivative { input, .. }
            | Function::Integral { input, .. }
            | Function::Fading { input, .. }
            | Function::LinearFill(input)
            | Function::Locf(input) => found.add(input),
        }
        if let Some(order) = &self.order {
            found.paths.extend(order.paths());
        }
        found
    }

    fn frame<'a>(&'a self, document: &'a DocBuf) -> Frame<'a> {
        Frame::new(document.as_doc()).collated(self.collation.as_deref())
    }

    /// What an expression gives for each document.
    fn values(
        &self,
        expression: &Expression,
        partition: &[DocBuf],
    ) -> Result<Vec<Option<ValueBuf>>> {
        let value = |document| Ok(expression.evaluate(self.frame(document))?.into_owned());
        partition.iter().map(value).collect()
    }

    /// The first field of the order; null where it is missing.
    fn sort_value(&self, document: &DocBuf) -> ValueBuf {
        let order = self.order.as_ref();
        let found = order.and_then(|order| {
            order.key(document.as_doc(), self.collation.as_deref()).first().copied()
        });
        found.unwrap_or(RawValue::Null).to_owned()
    }

    /// The same of each document.
    fn sort_values(&self, partition: &[DocBuf]) -> Vec<ValueBuf> {
        partition.iter().map(|document| self.sort_value(document)).collect()
    }

    /// The order's key; empty without an order.
    fn order_key(&self, document: &DocBuf) -> Vec<u8> {
        let collation = self.collation.as_deref();
        let key = |order: &Order| order.encoded_key(document.as_doc(), collation);
        self.order.as_ref().map_or_else(Vec::new, key)
    }
}

/// The null value.
fn null() -> ValueBuf {
    ValueBuf::from_parts(ty::NULL, Vec::new())
}

#[cfg(test)]
mod tests;
