//! States of windows. A state contains what a function needs of the documents of a window.
//!
//! Documents enter a [`Window`] at its end and leave it at its start, each of them once. All
//! windows of a partition together therefore cost as much as its documents and the results,
//! regardless of the width of the windows:
//!
//! | functions | state where documents leave the window | cost of a step |
//! |---|---|---|
//! | `$sum`, `$avg`, `$count`, deviations, covariances, `$integral`, `$minMaxScaler` | partial summaries ([`two_stacks`]) | constant |
//! | `$min`, `$max` | the values that no later value replaces ([`extreme`]) | constant |
//! | `$minN`, `$maxN`, `$top`, `$bottom`, `$topN`, `$bottomN` | the documents by key ([`ranked`]) | logarithmic |
//! | `$median`, `$percentile` | the numbers in order, a cursor at each quantile ([`quantiles`]) | logarithmic |
//! | `$addToSet`, `$setUnion`, `$mergeObjects` | the first occurrence of each value or field ([`distinct`]) | logarithmic |
//! | `$push`, `$concatArrays`, `$first`, `$last`, `$firstN`, `$lastN`, `$shift` | the values ([`list`]) | constant |
//! | `$derivative` | the points of the documents ([`Slope`]) | constant |
//!
//! A step adds or removes a document, at this cost on average; building a result costs as much as
//! the result is long. Where windows only grow, a state does not contain what it would need to
//! remove documents. The state of an accumulator is then that of a group.

mod distinct;
mod extreme;
mod list;
mod quantiles;
mod ranked;
mod totals;
mod two_stacks;

use mayfly_base::{Error, Result};
use mayfly_value::{DocBuf, ValueBuf};

use super::bounds::{Bounds, Motion};
use super::calculus::{Area, Mean, Slope};
use super::covariance::Moments;
use super::fill::Carried;
use super::rank::Ranks;
use super::scale::Extremes;
use super::{Function, WindowFunction, null};
use crate::accum::{AccumState, Accumulator, AccumulatorKind, Deviation};
use distinct::DistinctItems;
use extreme::ExtremeValue;
use list::ValueList;
use quantiles::Quantiles;
use ranked::RankedValues;
use totals::Total;
use two_stacks::{Growing, TwoStacks};

pub(super) use two_stacks::Summary;

/// The state of a function over the documents of a window.
pub(super) trait WindowState: Send {
    /// Adds the document after the last one.
    ///
    /// # Errors
    /// Errors of expressions and of operators.
    fn add(&mut self, function: &WindowFunction, document: &DocBuf) -> Result<()>;

    /// Removes the first document. States of windows that only grow do not implement it.
    fn remove(&mut self) {}

    /// The result for this document of the window.
    ///
    /// # Errors
    /// Errors of expressions and of operators.
    fn result(&mut self, function: &WindowFunction, here: &DocBuf) -> Result<ValueBuf>;

    /// Memory of the state, in bytes.
    fn bytes(&self) -> usize;
}

/// A window that moves through a partition.
pub(super) struct Window {
    state: Box<dyn WindowState>,
    /// The documents in the state, as positions in the partition.
    from: usize,
    to: usize,
    /// The last result, if the window has not changed since.
    last: Option<ValueBuf>,
}

impl Window {
    /// An empty window at the start of a partition.
    ///
    /// # Errors
    /// Errors of an accumulator's start.
    pub(super) fn start(function: &WindowFunction) -> Result<Window> {
        Ok(Window { state: state(function)?, from: 0, to: 0, last: None })
    }

    /// Moves the window to these documents.
    ///
    /// # Errors
    /// Errors of expressions and of operators.
    pub(super) fn move_to<'d>(
        &mut self,
        function: &WindowFunction,
        (from, to): (usize, usize),
        mut document: impl FnMut(usize) -> Option<&'d DocBuf>,
    ) -> Result<()> {
        // The ends of a range move back if rounding differs between types of numbers.
        let moves_back = from < self.from || to < self.to;
        if moves_back || (from >= self.to && self.from < self.to) {
            *self = Window::start(function)?;
        }
        if self.from == self.to {
            (self.from, self.to) = (from, from);
        }
        while self.from < from {
            self.state.remove();
            (self.from, self.last) = (self.from + 1, None);
        }
        while self.to < to {
            let document = document(self.to);
            let document =
                document.ok_or_else(|| Error::internal("a document outside a window"))?;
            self.push(function, document)?;
        }
        Ok(())
    }

    /// Adds the next document.
    ///
    /// # Errors
    /// Errors of expressions and of operators.
    pub(super) fn push(&mut self, function: &WindowFunction, document: &DocBuf) -> Result<()> {
        self.state.add(function, document)?;
        (self.to, self.last) = (self.to + 1, None);
        Ok(())
    }

    /// Number of documents that are in the window or left it.
    pub(super) fn end(&self) -> usize {
        self.to
    }

    /// The result for this document of the window.
    ///
    /// # Errors
    /// Errors of expressions and of operators.
    pub(super) fn result(&mut self, function: &WindowFunction, here: &DocBuf) -> Result<ValueBuf> {
        if let Some(last) = &self.last {
            return Ok(last.clone());
        }
        let result = self.state.result(function, here)?;
        if !function.reads_current() {
            self.last = Some(result.clone());
        }
        Ok(result)
    }

    /// Memory of the window, in bytes.
    pub(super) fn bytes(&self) -> usize {
        self.state.bytes()
    }
}

/// An empty state.
fn state(function: &WindowFunction) -> Result<Box<dyn WindowState>> {
    let motion = function.bounds.motion();
    Ok(match &function.function {
        Function::Accumulate(accumulator) => accumulated(accumulator, function.bounds)?,
        Function::Rank(which) => Box::new(Ranks::new(*which)),
        Function::Shift { default, .. } => {
            Box::new(ValueList::shifted(default.clone().unwrap_or_else(null)))
        }
        Function::Derivative { unit, .. } => Box::new(Slope::new(*unit, motion)),
        Function::Integral { unit, .. } => summary::<Area>(*unit, motion),
        Function::Fading { alpha, .. } => Box::new(Mean::new(*alpha)),
        Function::Covariance { of, .. } => summary::<Moments>(*of, motion),
        Function::Scale { range, .. } => summary::<Extremes>(*range, motion),
        Function::Locf(_) => Box::new(Carried::default()),
        Function::LinearFill(_) => return Err(Error::internal("a window of another function")),
    })
}

fn summary<S: Summary + 'static>(settings: S::Settings, motion: Motion) -> Box<dyn WindowState> {
    match motion {
        Motion::Grows => Box::new(Growing::<S>::new(settings)),
        Motion::Slides => Box::new(TwoStacks::<S>::new(settings)),
    }
}

/// The state of an accumulator.
fn accumulated(accumulator: &Accumulator, bounds: Bounds) -> Result<Box<dyn WindowState>> {
    use AccumulatorKind as Kind;
    let motion = bounds.motion();
    let quantiles = matches!(accumulator.kind(), Kind::Median | Kind::Percentile);
    // A group sorts its numbers for each result.
    if motion == Motion::Grows && !(quantiles && bounds.has_upper_bound()) {
        return Ok(Box::new(accumulator.start(None)?));
    }
    Ok(match accumulator.kind() {
        Kind::Sum | Kind::Count | Kind::Avg => summary::<Total>(accumulator.kind(), motion),
        Kind::StdDevPop | Kind::StdDevSamp => summary::<Deviation>(accumulator.kind(), motion),
        Kind::Min | Kind::Max => Box::new(ExtremeValue::new(accumulator.kind())),
        Kind::MinN | Kind::MaxN | Kind::Top | Kind::TopN | Kind::Bottom | Kind::BottomN => {
            Box::new(RankedValues::new(accumulator)?)
        }
        Kind::Median | Kind::Percentile => Box::new(Quantiles::new(accumulator, motion)),
        Kind::AddToSet | Kind::SetUnion | Kind::MergeObjects => {
            Box::new(DistinctItems::new(accumulator))
        }
        Kind::Push | Kind::ConcatArrays | Kind::First | Kind::FirstN | Kind::Last | Kind::LastN => {
            Box::new(ValueList::new(accumulator)?)
        }
        Kind::Scripted => return Err(Error::internal("$accumulator is no window function")),
    })
}

/// The state of a group, for windows that only grow.
impl WindowState for AccumState {
    fn add(&mut self, function: &WindowFunction, document: &DocBuf) -> Result<()> {
        function.accumulator()?.add_in(self, function.frame(document))
    }

    fn result(&mut self, function: &WindowFunction, _: &DocBuf) -> Result<ValueBuf> {
        function.accumulator()?.finish(self)
    }

    fn bytes(&self) -> usize {
        AccumState::bytes(self)
    }
}

#[cfg(test)]
mod tests;
