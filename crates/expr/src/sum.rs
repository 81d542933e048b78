//! Order-independent sums of numbers of mixed types: integers exactly, doubles with error
//! compensation, decimals separately. Shared by `$add` and the accumulators; the components can be
//! stored and merged.

use mayfly_value::Number;
use mayfly_value::decimal::Decimal;

/// A running sum.
#[derive(Clone, Copy, Debug, Default)]
pub struct Sum {
    integers: i128,
    any_long: bool,
    doubles: Option<(f64, f64)>,
    decimals: Option<Decimal>,
}

impl Sum {
    /// Adds a number.
    pub fn add(&mut self, number: Number) {
        match number {
            Number::Int32(value) => self.integers += i128::from(value),
            Number::Int64(value) => {
                self.integers += i128::from(value);
                self.any_long = true;
            }
            Number::Double(value) => {
                let (high, low) = self.doubles.unwrap_or((0.0, 0.0));
                self.doubles = Some(two_sum(high, low, value));
            }
            Number::Decimal(value) => {
                let sum = Number::Decimal(self.decimals.unwrap_or(Decimal::from_i64(0)));
                self.decimals = Some(sum.plus(Number::Decimal(value)).to_decimal());
            }
        }
    }

    /// Adds another sum.
    pub(crate) fn append(&mut self, other: &Sum) {
        self.integers += other.integers;
        self.any_long |= other.any_long;
        if let Some((high, low)) = other.doubles {
            self.add(Number::Double(high));
            self.add(Number::Double(low));
        }
        if let Some(decimals) = other.decimals {
            self.add(Number::Decimal(decimals));
        }
    }

    /// The sum of integers and doubles as a decimal, including the compensation of the doubles.
    fn rest_as_decimal(&self, decimal_of: fn(f64) -> Decimal) -> Number {
        let integers = match i64::try_from(self.integers) {
            Ok(long) => Decimal::from_i64(long),
            Err(_) => decimal_of(self.integers as f64),
        };
        let mut sum = Number::Decimal(integers);
        if let Some((high, low)) = self.doubles {
            for part in [high, low] {
                // Adding zero would only add decimal places.
                if part != 0.0 {
                    sum = sum.plus(Number::Decimal(decimal_of(part)));
                }
            }
        }
        sum
    }

    /// The sum of an accumulator in the widest type added; integers that overflow long become a
    /// double. Doubles are added to decimals exactly.
    pub fn finish(&self) -> Number {
        match self.decimals {
            // Even adding zero is an effect: a sum that cancels gets exponent zero.
            Some(decimals) => {
                Number::Decimal(decimals).plus(self.rest_as_decimal(Decimal::nearest))
            }
            None => self.without_decimals(),
        }
    }

    /// The sum of an expression, in which doubles have 15 digits when they are added to decimals.
    pub fn total(&self) -> Number {
        let decimal_of = |part| Number::Double(part).to_decimal();
        match self.decimals {
            Some(decimals) if self.doubles.is_none() && self.integers == 0 => {
                Number::Decimal(decimals)
            }
            Some(decimals) => Number::Decimal(decimals).plus(self.rest_as_decimal(decimal_of)),
            None => self.without_decimals(),
        }
    }

    fn without_decimals(&self) -> Number {
        if let Some((high, low)) = self.doubles {
            let (high, low) = two_sum(high, low, self.integers as f64);
            return Number::Double(if (high + low).is_nan() { high } else { high + low });
        }
        match (i64::try_from(self.integers), i32::try_from(self.integers)) {
            (_, Ok(int)) if !self.any_long => Number::Int32(int),
            (Ok(long), _) => Number::Int64(long),
            (Err(_), _) => Number::Double(self.integers as f64),
        }
    }

    /// The sum divided by a count: a double, or a decimal if one was added.
    pub fn mean(&self, count: i64) -> Number {
        match self.decimals {
            Some(_) => Number::Decimal(
                self.finish().to_decimal().divided_by(Number::Int64(count).to_decimal()),
            ),
            None => Number::Double(self.finish().to_f64() / count as f64),
        }
    }

    /// The components as numbers to be stored: adding them to an empty sum restores it.
    pub fn parts(&self) -> Vec<Number> {
        let mut parts = Vec::new();
        let mut left = self.integers;
        while i64::try_from(left).is_err() {
            let part = if left > 0 { i64::MAX } else { i64::MIN };
            parts.push(Number::Int64(part));
            left -= i128::from(part);
        }
        // A zero of the right type preserves the type.
        match (self.any_long, left as i64) {
            (true, left) => parts.push(Number::Int64(left)),
            (false, 0) => {}
            (false, left) => match i32::try_from(left) {
                Ok(small) => parts.push(Number::Int32(small)),
                Err(_) => {
                    // The sum of ints exceeds an int, but no long was added.
                    parts.push(Number::Int32(0));
                    parts.push(Number::Int64(left));
                }
            },
        }
        if let Some((high, low)) = self.doubles {
            parts.extend([Number::Double(high), Number::Double(low)]);
        }
        parts.extend(self.decimals.map(Number::Decimal));
        parts
    }
}

/// Adds to a number represented by two doubles, the second being the rounding error of the first.
fn two_sum(high: f64, low: f64, value: f64) -> (f64, f64) {
    let sum = high + value;
    if !sum.is_finite() {
        return (sum, 0.0);
    }
    let back = sum - high;
    let error = (high - (sum - back)) + (value - back);
    (sum, low + error)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// NaN keeps its sign in sums and means, in either type.
    #[test]
    fn the_sign_of_nan_is_kept() {
        for negative in [false, true] {
            let double = if negative { -f64::NAN } else { f64::NAN };
            let decimal = Decimal::Nan { negative };
            assert_eq!(Number::Double(double).to_decimal(), decimal);
            let mut sum = Sum::default();
            sum.add(Number::Int32(1));
            sum.add(Number::Decimal(decimal));
            assert_eq!(sum.finish(), Number::Decimal(decimal));
            assert_eq!(sum.mean(2), Number::Decimal(decimal));
            let mut sum = Sum::default();
            sum.add(Number::Double(1.5));
            sum.add(Number::Double(double));
            assert_eq!(sum.finish().to_f64().is_sign_negative(), negative);
            assert_eq!(sum.mean(2).to_f64().is_sign_negative(), negative);
            sum.add(Number::Decimal(Decimal::from_i64(1)));
            assert_eq!(sum.finish(), Number::Decimal(decimal));
        }
    }
}
