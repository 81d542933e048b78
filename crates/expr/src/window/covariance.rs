//! `$covariancePop`, `$covarianceSamp`: the covariance of pairs of numbers.
//!
//! The input is an array of two expressions; other values and pairs without two numbers are
//! skipped. Once a pair has a decimal, the result is a decimal.
//!
//! Where documents leave the window, the reference subtracts what a pair added to the moment. Here
//! the moment is combined from those of two parts of the window ([`Moments::append`]), so that a
//! large value, which has left the window, does not make later results inexact.

use mayfly_base::Result;
use mayfly_value::decimal::Decimal;
use mayfly_value::{DocBuf, Number, RawValue, ValueBuf};

use super::calculus::divided;
use super::moving::Summary;
use super::{WindowFunction, null};
use crate::Sum;
use crate::accum::Population;

/// The state of a sequence of pairs.
#[derive(Clone, Default)]
pub(super) struct Moments {
    /// Number of pairs of finite numbers. Only they are in the means and moments.
    count: i64,
    doubles: DoubleMoments,
    exact: ExactMoments,
    /// Members of pairs that are not finite.
    nan: usize,
    infinite: usize,
    negative_infinite: usize,
    any_decimal: bool,
}

/// Means and moment as doubles.
#[derive(Clone, Default)]
struct DoubleMoments {
    mean_x: f64,
    mean_y: f64,
    moment: f64,
}

/// Sums and moment in the type of the numbers, for decimals.
#[derive(Clone, Default)]
struct ExactMoments {
    x: Sum,
    y: Sum,
    moment: Sum,
}

fn is_finite(number: Number) -> bool {
    match number {
        Number::Decimal(value) => matches!(value, Decimal::Finite { .. }),
        other => other.to_f64().is_finite(),
    }
}

fn number_pair(value: Option<RawValue<'_>>) -> Option<(Number, Number)> {
    let mut items = value?.as_array()?.iter().map(|item| Number::from_value(item.value()));
    match (items.next(), items.next(), items.next()) {
        (Some(Some(x)), Some(Some(y)), None) => Some((x, y)),
        _ => None,
    }
}

impl Summary for Moments {
    type Item = Option<(Number, Number)>;
    type Settings = Population;

    fn item(
        _: Population,
        function: &WindowFunction,
        document: &DocBuf,
    ) -> Result<Option<(Number, Number)>> {
        Ok(number_pair(function.value(document)?.as_raw()))
    }

    fn push(&mut self, pair: &Option<(Number, Number)>) {
        let Some((x, y)) = *pair else { return };
        self.any_decimal |= [x, y].iter().any(|number| matches!(number, Number::Decimal(_)));
        if is_finite(x) && is_finite(y) {
            self.count += 1;
            self.doubles.push(x.to_f64(), y.to_f64(), self.count);
            self.exact.push(x, y, self.count);
            return;
        }
        for number in [x, y].into_iter().filter(|number| !is_finite(*number)) {
            match number {
                number if number.is_nan() => self.nan += 1,
                number if number.compare(Number::Int32(0)).is_gt() => self.infinite += 1,
                _ => self.negative_infinite += 1,
            }
        }
    }

    fn append(&mut self, later: &Moments) {
        self.nan += later.nan;
        self.infinite += later.infinite;
        self.negative_infinite += later.negative_infinite;
        self.any_decimal |= later.any_decimal;
        if self.count == 0 {
            (self.doubles, self.exact) = (later.doubles.clone(), later.exact.clone());
        } else if later.count > 0 {
            self.doubles.append(&later.doubles, (self.count, later.count));
            self.exact.append(&later.exact, (self.count, later.count));
        }
        self.count += later.count;
    }

    fn result(&self, of: Population, _: &WindowFunction, _: &DocBuf) -> Result<ValueBuf> {
        let by = match of {
            Population::Whole => self.count,
            Population::Sample => self.count - 1,
        };
        if by < 1 {
            return Ok(null());
        }
        let result = match (self.nan, self.infinite, self.negative_infinite) {
            (0, 0, 0) if self.any_decimal => {
                let moment = self.exact.moment.finish().to_decimal();
                Number::Decimal(moment.divided_by(Decimal::from_i64(by)))
            }
            (0, 0, 0) => Number::Double(self.doubles.moment / by as f64),
            (0, 1.., 0) => self.special(f64::INFINITY),
            (0, 0, 1..) => self.special(f64::NEG_INFINITY),
            _ => self.special(f64::NAN),
        };
        Ok(result.to_value().to_owned())
    }
}

impl Moments {
    /// An infinity or NaN in the type of the result.
    fn special(&self, value: f64) -> Number {
        match self.any_decimal {
            true => Number::Decimal(Number::Double(value).to_decimal()),
            false => Number::Double(value),
        }
    }
}

impl DoubleMoments {
    fn push(&mut self, x: f64, y: f64, count: i64) {
        let before = x - self.mean_x;
        self.mean_x += before / count as f64;
        self.mean_y += (y - self.mean_y) / count as f64;
        self.moment += before * (y - self.mean_y);
    }

    fn append(&mut self, later: &DoubleMoments, counts: (i64, i64)) {
        let (here, there) = (counts.0 as f64, counts.1 as f64);
        let (x, y) = (later.mean_x - self.mean_x, later.mean_y - self.mean_y);
        self.mean_x += x * there / (here + there);
        self.mean_y += y * there / (here + there);
        self.moment += later.moment + x * y * (here * there / (here + there));
    }
}

impl ExactMoments {
    fn push(&mut self, x: Number, y: Number, count: i64) {
        let before = match count {
            1 => x,
            count => x.minus(self.x.mean(count - 1)),
        };
        self.x.add(x);
        self.y.add(y);
        self.moment.add(before.times(y.minus(self.y.mean(count))));
    }

    fn append(&mut self, later: &ExactMoments, counts: (i64, i64)) {
        let x = later.x.mean(counts.1).minus(self.x.mean(counts.0));
        let y = later.y.mean(counts.1).minus(self.y.mean(counts.0));
        let weighted = x.times(y).times(Number::Int64(counts.0.saturating_mul(counts.1)));
        self.moment.append(&later.moment);
        self.moment.add(divided(weighted, Number::Int64(counts.0 + counts.1)));
        self.x.append(&later.x);
        self.y.append(&later.y);
    }
}
