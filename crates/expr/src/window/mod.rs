//! Window functions, which compute a value for each document from its neighbours. Pure functions
//! over one partition.
//!
//! A stage uses them as follows:
//!
//! 1. Parse each field of `output` with [`WindowFunction::parse`], and pass the stage's sort order
//!    if it has one. The field's value contains the operator and optionally the `window`.
//! 2. Sort the input by the partition key and then by the sort order; collect one partition at a
//!    time.
//! 3. For each partition, [`WindowFunction::run`] returns one result per document, in the order of
//!    the documents. `None` means that the field is omitted.
//!
//! A partition needs memory for its documents and one result for each; the stage accounts for it. A
//! [`WindowStream`] computes the same results for a partition in files. As a window moves, each
//! document enters it once and leaves it once (folder `moving`); no window is computed from its
//! start.

mod bounds;
mod calculus;
mod covariance;
mod fill;
mod moving;
mod parse;
mod rank;
mod scale;
mod stream;

use std::sync::Arc;

use mayfly_base::{Error, Result};
use mayfly_value::{Collation, DocBuf, Number, RawDoc, RawValue, ValueBuf, ty};

use crate::accum::{Accumulator, Population};
use crate::op::Unit;
use crate::{Dependencies, Expression, Frame, Order, Scope, Value};
use bounds::reaches;
pub use bounds::{Bound, Bounds};
use moving::Window;
pub use stream::{DocumentReader, OpenReader, StreamMemory, WindowStream};

/// A row of the table of window functions. Accumulators that are also window functions are rows of
/// their own table.
pub struct WindowRow {
    /// The name with its dollar sign.
    pub name: &'static str,
    /// A one-line description.
    pub help: &'static str,
    /// The first version of the reference with the function.
    pub since: &'static str,
}

const fn row(name: &'static str, since: &'static str, help: &'static str) -> WindowRow {
    WindowRow { name, help, since }
}

/// The implemented window functions, without accumulators.
pub const ROWS: &[WindowRow] = &[
    row("$covariancePop", "5.0", "The covariance of a population."),
    row("$covarianceSamp", "5.0", "The covariance of a sample."),
    row("$denseRank", "5.0", "The rank in the sort order, without gaps."),
    row("$derivative", "5.0", "The change per unit of the sort value."),
    row("$documentNumber", "5.0", "The position in the partition."),
    row("$expMovingAvg", "5.0", "An exponential moving average."),
    row("$integral", "5.0", "The area under the values."),
    row("$linearFill", "5.3", "Gaps filled by linear interpolation."),
    row("$locf", "5.2", "Gaps filled with the last value."),
    row("$minMaxScaler", "8.2", "The number scaled by the extremes of its window."),
    row("$rank", "5.0", "The rank in the sort order, with gaps."),
    row("$shift", "5.0", "The value of a document at a distance."),
];

/// Whether an accumulator is also a window function: all but those in JavaScript.
pub fn takes_accumulator(name: &str) -> bool {
    name != "$accumulator"
}

/// Receives the results, one for each document of a partition; `None` for a missing one.
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
    Rank(rank::RankKind),
    Shift { output: Expression, by: i64, default: Option<ValueBuf> },
    Derivative { input: Expression, unit: Option<Unit> },
    Integral { input: Expression, unit: Option<Unit> },
    Fading { input: Expression, alpha: calculus::Alpha },
    Covariance { input: Expression, of: Population },
    Scale { input: Expression, range: scale::Range },
    LinearFill(Expression),
    Locf(Expression),
}

impl WindowFunction {
    /// Parses the value of a field of `output`, such as `{ $sum: ..., window: { ... } }`.
    ///
    /// # Errors
    /// 9 FailedToParse for invalid syntax and windows, 5339900 to 5339902 for incompatible bounds,
    /// errors of operators.
    pub fn parse(spec: RawDoc<'_>, order: Option<&Order>, scope: &Scope) -> Result<WindowFunction> {
        parse::function(spec, order, scope)
    }

    /// Computes one result per document of a partition in the stage's sort order.
    ///
    /// # Errors
    /// Errors of expressions and operators.
    pub fn run(&self, partition: &[DocBuf]) -> Result<Vec<Option<ValueBuf>>> {
        let mut results = Vec::with_capacity(partition.len());
        self.run_each(partition, &mut |result| {
            results.push(result);
            Ok(())
        })?;
        Ok(results)
    }

    /// The same, with results passed one by one if they may be large: arrays that grow with the
    /// partition.
    ///
    /// # Errors
    /// Errors of [`WindowFunction::run`] and of the visitor.
    pub fn run_each(&self, partition: &[DocBuf], see: &mut See<'_>) -> Result<()> {
        if let Function::LinearFill(_) = &self.function {
            return fill::linear(self, partition)?.into_iter().try_for_each(see);
        }
        let mut window = Window::start(self)?;
        for (reach, document) in reaches(self, partition)?.into_iter().zip(partition) {
            window.move_to(self, reach, |at| partition.get(at))?;
            see(Some(window.result(self, document)?))?;
        }
        Ok(())
    }

    /// The inputs of its expressions.
    pub fn dependencies(&self) -> Dependencies {
        let mut found = Dependencies::default();
        match &self.function {
            Function::Accumulate(accumulator) => found = accumulator.dependencies(),
            _ => self.input().into_iter().for_each(|input| found.add(input)),
        }
        if let Some(order) = &self.order {
            found.paths.extend(order.paths());
        }
        found
    }

    fn frame<'a>(&'a self, document: &'a DocBuf) -> Frame<'a> {
        Frame::new(document.as_doc()).collated(self.collation.as_deref())
    }

    /// The accumulator.
    ///
    /// # Errors
    /// An internal error for another function.
    fn accumulator(&self) -> Result<&Accumulator> {
        match &self.function {
            Function::Accumulate(accumulator) => Ok(accumulator),
            _ => Err(Error::internal("the state of another function")),
        }
    }

    /// The expression evaluated for each document.
    fn input(&self) -> Option<&Expression> {
        match &self.function {
            Function::Rank(_) => None,
            Function::Accumulate(accumulator) => Some(accumulator.argument()),
            Function::Covariance { input, .. }
            | Function::Scale { input, .. }
            | Function::Shift { output: input, .. }
            | Function::Derivative { input, .. }
            | Function::Integral { input, .. }
            | Function::Fading { input, .. }
            | Function::LinearFill(input)
            | Function::Locf(input) => Some(input),
        }
    }

    /// The input value of a document.
    fn value<'a>(&'a self, document: &'a DocBuf) -> Result<Value<'a>> {
        self.input().map_or(Ok(Value::Missing), |input| input.evaluate(self.frame(document)))
    }

    /// The input value of a document, if it is a number.
    fn number(&self, document: &DocBuf) -> Result<Option<Number>> {
        Ok(self.value(document)?.as_raw().and_then(Number::from_value))
    }

    /// Whether a result depends not only on the window, but on the document itself.
    fn reads_current(&self) -> bool {
        matches!(self.function, Function::Scale { .. })
    }

    /// The value of the first sort field; null when it is missing.
    fn sort_value(&self, document: &DocBuf) -> ValueBuf {
        let order = self.order.as_ref();
        let found = order.and_then(|order| {
            order.key(document.as_doc(), self.collation.as_deref()).first().copied()
        });
        found.unwrap_or(RawValue::Null).to_owned()
    }

    /// The same for each document.
    fn sort_values(&self, partition: &[DocBuf]) -> Vec<ValueBuf> {
        partition.iter().map(|document| self.sort_value(document)).collect()
    }

    /// The sort key; empty without a sort order.
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
