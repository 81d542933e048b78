//! Sums of numbers of any type, the same whatever their order: integers exactly, doubles with what they lose on the way,
//! decimals beside them. `$add` and the accumulators that add share it; its parts can be stored and merged.

use mayfly_value::Number;
use mayfly_value::decimal::Decimal;

/// A sum.
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
        self.put(number, 1);
    }

    /// Takes a number that was added away again; nothing that is not finite may be among them.
    pub fn remove(&mut self, number: Number) {
        self.put(number, -1);
    }

    fn put(&mut self, number: Number, sign: i8) {
        match number {
            Number::Int32(value) => self.integers += i128::from(value) * i128::from(sign),
            Number::Int64(value) => {
                self.integers += i128::from(value) * i128::from(sign);
                self.any_long = true;
            }
            Number::Double(value) => {
                let (high, low) = self.doubles.unwrap_or((0.0, 0.0));
                self.doubles = Some(two_sum(high, low, value * f64::from(sign)));
            }
            Number::Decimal(value) => {
                let sum = Number::Decimal(self.decimals.unwrap_or(Decimal::from_i64(0)));
                let value = Number::Decimal(value);
                let sum = if sign < 0 { sum.minus(value) } else { sum.plus(value) };
                self.decimals = Some(sum.to_decimal());
            }
        }
    }

    /// The sum of what is no decimal, as one decimal: both parts of the doubles count.
    fn rest_as_decimal(&self) -> Decimal {
        let integers = match i64::try_from(self.integers) {
            Ok(long) => Number::Int64(long),
            Err(_) => Number::Double(self.integers as f64),
        };
        let mut sum = Number::Decimal(integers.to_decimal());
        if let Some((high, low)) = self.doubles {
            for part in [high, low] {
                // A zero would only add digits behind the point.
                if part != 0.0 {
                    sum = sum.plus(Number::Double(part));
                }
            }
        }
        sum.to_decimal()
    }

    /// The sum in the widest type that it met; integers that leave long are a double.
    pub fn finish(&self) -> Number {
        if let Some(decimals) = self.decimals {
            if self.doubles.is_none() && self.integers == 0 {
                return Number::Decimal(decimals);
            }
            return Number::Decimal(decimals).plus(Number::Decimal(self.rest_as_decimal()));
        }
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

    /// The sum divided by a count: a double, or a decimal where one was met.
    pub fn mean(&self, count: i64) -> Number {
        match self.decimals {
            Some(_) => Number::Decimal(
                self.finish().to_decimal().divided_by(Number::Int64(count).to_decimal()),
            ),
            None => Number::Double(self.finish().to_f64() / count as f64),
        }
    }

    /// Its parts as numbers, to be stored: add them to an empty sum to have it again.
    pub fn parts(&self) -> Vec<Number> {
        let mut parts = Vec::new();
        let mut left = self.integers;
        while i64::try_from(left).is_err() {
            let part = if left > 0 { i64::MAX } else { i64::MIN };
            parts.push(Number::Int64(part));
            left -= i128::from(part);
        }
        // A zero of the right type keeps the type.
        match (self.any_long, left as i64) {
            (true, left) => parts.push(Number::Int64(left)),
            (false, 0) => {}
            (false, left) => match i32::try_from(left) {
                Ok(small) => parts.push(Number::Int32(small)),
                Err(_) => {
                    // Ints that add up to more than an int, without a long among them.
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

/// Adds to a number that is kept as two doubles, the second the error of the first.
fn two_sum(high: f64, low: f64, value: f64) -> (f64, f64) {
    let sum = high + value;
    if !sum.is_finite() {
        return (sum, 0.0);
    }
    let back = sum - high;
    let error = (high - (sum - back)) + (value - back);
    (sum, low + error)
}
