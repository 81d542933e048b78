//! `$covariancePop`, `$covarianceSamp`: the covariance of pairs of numbers.
//!
//! The input is an array of two expressions; other values and pairs without two numbers are
//! skipped. Once a pair has a decimal, the result is a decimal.

use mayfly_base::Result;
use mayfly_value::decimal::Decimal;
use mayfly_value::{DocBuf, Number, RawValue, ValueBuf};

use super::bounds::reaches;
use super::{WindowFunction, null};
use crate::accum::Population;
use crate::{Expression, Sum};

/// The state of a sequence of pairs.
#[derive(Default)]
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
#[derive(Default)]
struct DoubleMoments {
    mean_x: f64,
    mean_y: f64,
    moment: f64,
}

/// Sums and moment in the type of the numbers, for decimals.
#[derive(Default)]
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

impl Moments {
    pub(super) fn push_value(&mut self, value: Option<RawValue<'_>>) {
        if let Some(pair) = number_pair(value) {
            self.push(pair);
        }
    }

    fn push(&mut self, (x, y): (Number, Number)) {
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

    pub(super) fn result(&self, of: Population) -> ValueBuf {
        let by = match of {
            Population::Whole => self.count,
            Population::Sample => self.count - 1,
        };
        if by < 1 {
            return null();
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
        result.to_value().to_owned()
    }

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
}

/// The covariance of each window.
pub(super) fn covariance(
    function: &WindowFunction,
    input: &Expression,
    of: Population,
    partition: &[DocBuf],
) -> Result<Vec<Option<ValueBuf>>> {
    let values = function.values(input, partition)?;
    let pairs: Vec<Option<(Number, Number)>> =
        values.iter().map(|value| number_pair(value.as_ref().map(ValueBuf::as_raw))).collect();
    let result = |(from, to): (usize, usize)| {
        let mut moments = Moments::default();
        pairs[from..to].iter().flatten().for_each(|pair| moments.push(*pair));
        Some(moments.result(of))
    };
    Ok(reaches(function, partition)?.into_iter().map(result).collect())
}
