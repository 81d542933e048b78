//! Numbers of the four types: promotion, checked arithmetic and conversions.
//!
//! The wider type of the two operands wins: int, long, double, decimal. Integer results that
//! overflow int become long. For results that overflow long, [`Number::checked_add`] and its
//! siblings return `None`, and the plain operations continue with double.

use std::cmp::Ordering;

use crate::compare::compare_numbers;
use crate::decimal::Decimal;
use crate::raw::RawValue;

/// A number of one of the four numeric types.
#[derive(Clone, Copy, Debug, PartialEq)]
#[allow(missing_docs, reason = "the names of the types")]
pub enum Number {
    Int32(i32),
    Int64(i64),
    Double(f64),
    Decimal(Decimal),
}

/// Two operands in their common type.
enum Pair {
    Integers { left: i64, right: i64, both_int: bool },
    Doubles(f64, f64),
    Decimals(Decimal, Decimal),
}

impl Number {
    /// The number in a value; `None` for other types.
    pub fn from_value(value: RawValue<'_>) -> Option<Number> {
        match value {
            RawValue::Double(v) => Some(Number::Double(v)),
            RawValue::Int32(v) => Some(Number::Int32(v)),
            RawValue::Int64(v) => Some(Number::Int64(v)),
            RawValue::Decimal128(v) => Some(Number::Decimal(Decimal::from_bytes(v))),
            _ => None,
        }
    }

    /// The value of the same type.
    pub fn to_value(self) -> RawValue<'static> {
        match self {
            Number::Int32(v) => RawValue::Int32(v),
            Number::Int64(v) => RawValue::Int64(v),
            Number::Double(v) => RawValue::Double(v),
            Number::Decimal(v) => RawValue::Decimal128(v.to_bytes()),
        }
    }

    /// Whether it is NaN.
    pub fn is_nan(self) -> bool {
        match self {
            Number::Double(v) => v.is_nan(),
            Number::Decimal(v) => matches!(v, Decimal::Nan { .. }),
            Number::Int32(_) | Number::Int64(_) => false,
        }
    }

    /// The nearest double.
    pub fn to_f64(self) -> f64 {
        match self {
            Number::Int32(v) => f64::from(v),
            Number::Int64(v) => v as f64,
            Number::Double(v) => v,
            Number::Decimal(v) => v.to_f64(),
        }
    }

    /// The integer equal to this number; `None` for fractions, infinities, NaN and values beyond a
    /// long.
    pub fn to_i64_exact(self) -> Option<i64> {
        match self {
            Number::Int32(v) => Some(i64::from(v)),
            Number::Int64(v) => Some(v),
            Number::Double(v) => double_to_i64(v).filter(|_| v.trunc() == v),
            Number::Decimal(v) => {
                let truncated = decimal_to_i64(v)?;
                let exact = Number::Decimal(v).compare(Number::Int64(truncated)).is_eq();
                exact.then_some(truncated)
            }
        }
    }

    /// The integer part; `None` for infinities, NaN and values beyond a long.
    pub fn to_i64_truncated(self) -> Option<i64> {
        match self {
            Number::Int32(v) => Some(i64::from(v)),
            Number::Int64(v) => Some(v),
            Number::Double(v) => double_to_i64(v),
            Number::Decimal(v) => decimal_to_i64(v),
        }
    }

    /// The nearest integer, halves to the even one; `None` beyond a long.
    pub fn to_i64_half_even(self) -> Option<i64> {
        match self {
            Number::Int32(v) => Some(i64::from(v)),
            Number::Int64(v) => Some(v),
            Number::Double(v) => double_to_i64(v.round_ties_even()),
            Number::Decimal(v) => {
                let mut context = dec::Context::<dec::Decimal128>::default();
                decimal_to_i64(Decimal::from_dec(context.round(v.to_dec())))
            }
        }
    }

    /// The equal decimal. Doubles are rounded to 15 significant digits, as the reference converts
    /// them.
    pub fn to_decimal(self) -> Decimal {
        match self {
            Number::Int32(v) => Decimal::from_i64(i64::from(v)),
            Number::Int64(v) => Decimal::from_i64(v),
            Number::Double(v) => decimal_from_f64(v),
            Number::Decimal(v) => v,
        }
    }

    /// Compares exact values across the types.
    pub fn compare(self, other: Number) -> Ordering {
        compare_numbers(self.to_value(), other.to_value())
    }

    fn pair(self, other: Number) -> Pair {
        use Number as N;
        match (self, other) {
            (N::Decimal(_), _) | (_, N::Decimal(_)) => {
                Pair::Decimals(self.to_decimal(), other.to_decimal())
            }
            (N::Double(_), _) | (_, N::Double(_)) => Pair::Doubles(self.to_f64(), other.to_f64()),
            (N::Int32(a), N::Int32(b)) => {
                Pair::Integers { left: i64::from(a), right: i64::from(b), both_int: true }
            }
            (N::Int64(a), N::Int32(b)) => {
                Pair::Integers { left: a, right: i64::from(b), both_int: false }
            }
            (N::Int32(a), N::Int64(b)) => {
                Pair::Integers { left: i64::from(a), right: b, both_int: false }
            }
            (N::Int64(a), N::Int64(b)) => Pair::Integers { left: a, right: b, both_int: false },
        }
    }

    fn operate(self, other: Number, operation: &Operation) -> Option<Number> {
        match self.pair(other) {
            Pair::Integers { left, right, both_int } => {
                let result = (operation.integers)(left, right)?;
                Some(match i32::try_from(result) {
                    Ok(int) if both_int => Number::Int32(int),
                    _ => Number::Int64(result),
                })
            }
            Pair::Doubles(left, right) => Some(Number::Double((operation.doubles)(left, right))),
            Pair::Decimals(left, right) => {
                let mut context = dec::Context::<dec::Decimal128>::default();
                let result = (operation.decimals)(&mut context, left.to_dec(), right.to_dec());
                Some(Number::Decimal(Decimal::from_dec(result)))
            }
        }
    }

    fn operate_or_double(self, other: Number, operation: &Operation) -> Number {
        self.operate(other, operation)
            .unwrap_or_else(|| Number::Double((operation.doubles)(self.to_f64(), other.to_f64())))
    }

    /// The sum; `None` when two integers overflow long.
    pub fn checked_add(self, other: Number) -> Option<Number> {
        self.operate(other, &ADD)
    }

    /// The difference; `None` when two integers overflow long.
    pub fn checked_sub(self, other: Number) -> Option<Number> {
        self.operate(other, &SUBTRACT)
    }

    /// The product; `None` when two integers overflow long.
    pub fn checked_mul(self, other: Number) -> Option<Number> {
        self.operate(other, &MULTIPLY)
    }

    /// The sum, as a double when two integers overflow long.
    pub fn plus(self, other: Number) -> Number {
        self.operate_or_double(other, &ADD)
    }

    /// The difference, as a double when two integers overflow long.
    pub fn minus(self, other: Number) -> Number {
        self.operate_or_double(other, &SUBTRACT)
    }

    /// The product, as a double when two integers overflow long.
    pub fn times(self, other: Number) -> Number {
        self.operate_or_double(other, &MULTIPLY)
    }
}

type DecimalOperation =
    fn(&mut dec::Context<dec::Decimal128>, dec::Decimal128, dec::Decimal128) -> dec::Decimal128;

/// An operation, for each common type.
struct Operation {
    integers: fn(i64, i64) -> Option<i64>,
    doubles: fn(f64, f64) -> f64,
    decimals: DecimalOperation,
}

const ADD: Operation = Operation {
    integers: i64::checked_add,
    doubles: |a, b| a + b,
    decimals: |context, a, b| context.add(a, b),
};
const SUBTRACT: Operation = Operation {
    integers: i64::checked_sub,
    doubles: |a, b| a - b,
    decimals: |context, a, b| context.sub(a, b),
};
const MULTIPLY: Operation = Operation {
    integers: i64::checked_mul,
    doubles: |a, b| a * b,
    decimals: |context, a, b| context.mul(a, b),
};

fn double_to_i64(value: f64) -> Option<i64> {
    const LIMIT: f64 = 9_223_372_036_854_775_808.0;
    (-LIMIT..LIMIT).contains(&value).then_some(value as i64)
}

fn decimal_to_i64(value: Decimal) -> Option<i64> {
    let Decimal::Finite { negative, coefficient, exponent } = value else {
        return None;
    };
    let magnitude = match exponent {
        _ if coefficient == 0 => 0,
        0..=18 => i128::try_from(coefficient).ok()?.checked_mul(10i128.pow(exponent as u32))?,
        -38..0 => (coefficient / 10u128.pow(exponent.unsigned_abs())) as i128,
        19.. => return None,
        _ => 0,
    };
    i64::try_from(if negative { -magnitude } else { magnitude }).ok()
}

/// Of a finite number other than zero always 15 digits: 42 is `42.0000000000000`.
fn decimal_from_f64(value: f64) -> Decimal {
    match value == 0.0 || !value.is_finite() {
        true => Decimal::nearest(value),
        false => Decimal::parse(&format!("{value:.14e}")).unwrap_or(Decimal::NAN),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn decimal(text: &str) -> Number {
        Number::Decimal(Decimal::parse(text).unwrap())
    }

    /// Manual: "$add", "$inc": the result has the wider type, and an int result that overflows
    /// becomes long.
    #[test]
    fn arithmetic_promotes() {
        use Number::{Double, Int32, Int64};
        let cases = [
            (Int32(1), Int32(2), Some(Int32(3))),
            (Int32(i32::MAX), Int32(1), Some(Int64(1 << 31))),
            (Int32(1), Int64(2), Some(Int64(3))),
            (Int64(i64::MAX), Int32(1), None),
            (Int32(1), Double(0.5), Some(Double(1.5))),
            (Int32(1), decimal("0.10"), Some(decimal("1.10"))),
        ];
        for (left, right, sum) in cases {
            assert_eq!(left.checked_add(right), sum, "{left:?} + {right:?}");
        }
        assert_eq!(Int64(i64::MAX).plus(Int32(1)), Double(9_223_372_036_854_775_808.0));
        assert_eq!(Int32(7).times(Int32(-3)), Int32(-21));
        assert_eq!(Int32(7).minus(Int64(3)), Int64(4));
    }

    #[test]
    fn conversions_to_long() {
        let cases = [
            (Number::Double(2.0), Some(2), Some(2), Some(2)),
            (Number::Double(2.5), None, Some(2), Some(2)),
            (Number::Double(1e30), None, None, None),
            (Number::Double(f64::NAN), None, None, None),
            (decimal("3.50"), None, Some(3), Some(4)),
            (decimal("5E+2"), Some(500), Some(500), Some(500)),
            (decimal("-1E-40"), None, Some(0), Some(0)),
            (decimal("1E+30"), None, None, None),
        ];
        for (number, exact, truncated, half_even) in cases {
            assert_eq!(number.to_i64_exact(), exact, "{number:?}");
            assert_eq!(number.to_i64_truncated(), truncated, "{number:?}");
            assert_eq!(number.to_i64_half_even(), half_even, "{number:?}");
        }
    }
}
