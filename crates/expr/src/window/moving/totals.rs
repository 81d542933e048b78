//! `$sum`, `$avg`, `$count` and the deviations as summaries.

use mayfly_base::Result;
use mayfly_value::{DocBuf, Number, RawValue, ValueBuf};

use super::super::WindowFunction;
use super::Summary;
use crate::Sum;
use crate::accum::{AccumulatorKind, Deviation, Population};

/// The sum and the count of the numbers of a window.
#[derive(Clone, Default)]
pub(super) struct Total {
    sum: Sum,
    count: i64,
}

impl Summary for Total {
    type Item = Option<Number>;
    type Settings = AccumulatorKind;

    fn item(
        kind: AccumulatorKind,
        function: &WindowFunction,
        document: &DocBuf,
    ) -> Result<Option<Number>> {
        if kind == AccumulatorKind::Count {
            return Ok(Some(Number::Int32(1)));
        }
        function.number(document)
    }

    fn push(&mut self, number: &Option<Number>) {
        if let Some(number) = number {
            self.sum.add(*number);
            self.count += 1;
        }
    }

    fn append(&mut self, later: &Total) {
        self.sum.append(&later.sum);
        self.count += later.count;
    }

    fn result(&self, kind: AccumulatorKind, _: &WindowFunction, _: &DocBuf) -> Result<ValueBuf> {
        let result = match kind {
            AccumulatorKind::Avg if self.count == 0 => RawValue::Null,
            AccumulatorKind::Avg => self.sum.mean(self.count).to_value(),
            _ => self.sum.finish().to_value(),
        };
        Ok(result.to_owned())
    }
}

impl Summary for Deviation {
    type Item = Option<f64>;
    type Settings = AccumulatorKind;

    fn item(
        _: AccumulatorKind,
        function: &WindowFunction,
        document: &DocBuf,
    ) -> Result<Option<f64>> {
        Ok(function.number(document)?.map(Number::to_f64))
    }

    fn push(&mut self, number: &Option<f64>) {
        number.iter().for_each(|number| self.put(*number));
    }

    fn append(&mut self, later: &Deviation) {
        self.merge(*later);
    }

    fn result(&self, kind: AccumulatorKind, _: &WindowFunction, _: &DocBuf) -> Result<ValueBuf> {
        let result = match kind {
            AccumulatorKind::StdDevSamp => self.finish(Population::Sample),
            // As in the reference, the deviation of a single number is an int where documents leave
            // the window.
            _ if self.has_one_number() => RawValue::Int32(0),
            _ => self.finish(Population::Whole),
        };
        Ok(result.to_owned())
    }
}
