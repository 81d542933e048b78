//! Functions whose windows begin with the partition: a state to which documents are added.

use mayfly_base::{Error, Result};
use mayfly_value::{DocBuf, ValueBuf, compare_values};

use super::super::bounds::{Bound, Bounds, RangeUnit, check_kind, range_end};
use super::super::calculus::{Area, Mean, Slope};
use super::super::covariance::Moments;
use super::super::rank::Ranks;
use super::super::scale::{self, Extremes};
use super::super::{Function, WindowFunction, fill, null};
use super::{DocumentReader, OpenReader, StreamMemory};
use crate::accum::AccumState;

/// The upper end of the windows.
enum WindowEnd {
    /// This many documents after the current one.
    Documents(i64),
    /// The last document of the partition.
    Partition,
    /// The last document whose value does not exceed that of the current document plus an offset.
    /// The reader is at the current document.
    Range { upper: Bound, unit: Option<RangeUnit>, here: Box<dyn DocumentReader> },
}

enum RunningState {
    Accumulate(AccumState),
    Ranks(Ranks),
    Carried(ValueBuf),
    Mean(Mean),
    Slope(Slope),
    Area(Area),
    Moments(Box<Moments>),
    /// The reader is at the current document.
    Extremes(Extremes, Box<dyn DocumentReader>),
}

pub(super) struct Running {
    state: RunningState,
    end: WindowEnd,
    input: Box<dyn DocumentReader>,
    /// A document that was read and belongs to a later window.
    ahead: Option<DocBuf>,
    /// Number of documents added to the state.
    added: i64,
    /// Index of the document whose result is next.
    here: i64,
    /// The last result, if no document was added since.
    last: Option<Option<ValueBuf>>,
}

impl Running {
    pub(super) fn new(function: &WindowFunction, open: &mut OpenReader<'_>) -> Result<Running> {
        let end = match (&function.function, function.bounds) {
            (Function::Rank(_) | Function::Locf(_) | Function::Fading { .. }, _) => {
                WindowEnd::Documents(0)
            }
            (_, Bounds::Documents(_, Bound::Current)) => WindowEnd::Documents(0),
            (_, Bounds::Documents(_, Bound::Offset(by))) => {
                WindowEnd::Documents(by.to_i64_exact().unwrap_or(0))
            }
            (_, Bounds::Documents(_, Bound::Unbounded)) => WindowEnd::Partition,
            (_, Bounds::Range { upper, unit, .. }) => {
                WindowEnd::Range { upper, unit, here: open()? }
            }
        };
        let state = match &function.function {
            Function::Accumulate(accumulator) => RunningState::Accumulate(accumulator.start(None)?),
            Function::Rank(which) => RunningState::Ranks(Ranks::new(*which)),
            Function::Locf(_) => RunningState::Carried(null()),
            Function::Fading { .. } => RunningState::Mean(Mean::default()),
            Function::Derivative { .. } => RunningState::Slope(Slope::default()),
            Function::Integral { .. } => RunningState::Area(Area::default()),
            Function::Covariance { .. } => RunningState::Moments(Box::default()),
            Function::Scale { .. } => RunningState::Extremes(Extremes::default(), open()?),
            Function::Shift { .. } | Function::LinearFill(_) => {
                return Err(Error::internal("a function without a running state"));
            }
        };
        let input = open()?;
        Ok(Running { state, end, input, ahead: None, added: 0, here: 0, last: None })
    }

    pub(super) fn next(
        &mut self,
        function: &WindowFunction,
        memory: &mut dyn StreamMemory,
    ) -> Result<Option<ValueBuf>> {
        let (to, high) = match &mut self.end {
            WindowEnd::Documents(by) => (self.here.saturating_add(*by).saturating_add(1), None),
            WindowEnd::Partition => (i64::MAX, None),
            WindowEnd::Range { upper, unit, here } => {
                let document = here.next()?;
                let value = document.map_or_else(null, |document| function.sort_value(&document));
                check_kind(value.as_raw(), *unit)?;
                match *upper {
                    Bound::Current => (self.here.saturating_add(1), None),
                    upper => (i64::MAX, range_end(upper, value.as_raw(), *unit)?),
                }
            }
        };
        self.here += 1;
        while self.added < to {
            let next = match self.ahead.take() {
                Some(document) => Some(document),
                None => self.input.next()?,
            };
            let Some(document) = next else { break };
            let beyond = |high: &ValueBuf| {
                compare_values(function.sort_value(&document).as_raw(), high.as_raw()).is_gt()
            };
            if high.as_ref().is_some_and(beyond) {
                self.ahead = Some(document);
                break;
            }
            self.add(function, &document, memory)?;
        }
        if let (Function::Scale { input, range }, RunningState::Extremes(extremes, here)) =
            (&function.function, &mut self.state)
        {
            // The result depends on the document itself, too.
            let document = here.next()?;
            let document = document.ok_or_else(|| Error::internal("a document is missing"))?;
            let value = input.evaluate(function.frame(&document))?;
            return Ok(Some(extremes.scaled(scale::number(value.as_raw())?, *range)));
        }
        if let Some(last) = &self.last {
            return Ok(last.clone());
        }
        let result = self.result(function)?;
        self.last = Some(result.clone());
        Ok(result)
    }

    fn add(
        &mut self,
        function: &WindowFunction,
        document: &DocBuf,
        memory: &mut dyn StreamMemory,
    ) -> Result<()> {
        self.added += 1;
        self.last = None;
        let frame = function.frame(document);
        match (&function.function, &mut self.state) {
            (Function::Accumulate(accumulator), RunningState::Accumulate(state)) => {
                accumulator.add_in(state, frame)?;
                if !memory.holds(state.bytes()) {
                    return Err(memory.failure());
                }
            }
            (Function::Rank(_), RunningState::Ranks(ranks)) => {
                ranks.push(function.order_key(document))
            }
            (Function::Locf(input), RunningState::Carried(last)) => {
                let value = input.evaluate(frame)?.into_owned();
                if let Some(value) = value.filter(|value| !fill::is_nullish(value)) {
                    *last = value;
                }
            }
            (Function::Fading { input, alpha }, RunningState::Mean(mean)) => {
                mean.push(input.evaluate(frame)?.as_raw(), alpha);
            }
            (Function::Derivative { input, .. }, RunningState::Slope(slope)) => {
                let value = input.evaluate(frame)?.into_owned();
                slope.push(function.sort_value(document), value);
            }
            (Function::Integral { input, unit }, RunningState::Area(area)) => {
                let value = input.evaluate(frame)?;
                area.push_value(function.sort_value(document).as_raw(), value.as_raw(), *unit)?;
            }
            (Function::Covariance { input, .. }, RunningState::Moments(moments)) => {
                moments.push_value(input.evaluate(frame)?.as_raw());
            }
            (Function::Scale { input, .. }, RunningState::Extremes(extremes, _)) => {
                extremes.push(scale::number(input.evaluate(frame)?.as_raw())?);
            }
            _ => return Err(Error::internal("the state of another function")),
        }
        Ok(())
    }

    fn result(&self, function: &WindowFunction) -> Result<Option<ValueBuf>> {
        Ok(Some(match (&function.function, &self.state) {
            (Function::Accumulate(accumulator), RunningState::Accumulate(state)) => {
                accumulator.finish(state)?
            }
            (_, RunningState::Ranks(ranks)) => ranks.current(),
            (_, RunningState::Carried(last)) => last.clone(),
            (_, RunningState::Mean(mean)) => mean.result(),
            (Function::Derivative { unit, .. }, RunningState::Slope(slope)) => {
                slope.result(*unit)?
            }
            (Function::Integral { unit, .. }, RunningState::Area(area)) => area.result(*unit),
            (Function::Covariance { of, .. }, RunningState::Moments(moments)) => {
                moments.result(*of)
            }
            _ => return Err(Error::internal("the state of another function")),
        }))
    }
}
