//! Standard deviations: `$stdDevPop` and `$stdDevSamp`.

use mayfly_value::RawValue;

/// The relation of the numbers to the population whose deviation or covariance is computed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Population {
    /// The whole population.
    Whole,
    /// A sample of the population.
    Sample,
}

impl Population {
    /// The divisor of a sum of squares or products over `count` numbers.
    pub(crate) fn divisor(self, count: f64) -> f64 {
        match self {
            Population::Whole => count,
            Population::Sample => count - 1.0,
        }
    }
}

/// Count, mean and sum of squared differences, updated with each number.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Deviation {
    pub(super) count: f64,
    pub(super) mean: f64,
    pub(super) squares: f64,
    /// Number of infinities and NaN; if there are any, the deviation is undefined.
    pub(super) not_finite: i64,
}

impl Deviation {
    pub(crate) fn put(&mut self, value: f64) {
        if !value.is_finite() {
            self.not_finite += 1;
            return;
        }
        self.count += 1.0;
        let before = value - self.mean;
        self.mean += before / self.count;
        self.squares += before * (value - self.mean);
    }

    pub(crate) fn merge(&mut self, other: Deviation) {
        self.not_finite += other.not_finite;
        if other.count == 0.0 {
            return;
        }
        if self.count == 0.0 {
            *self = Deviation { not_finite: self.not_finite, ..other };
            return;
        }
        let total = self.count + other.count;
        let distance = other.mean - self.mean;
        self.squares += other.squares + distance * distance * self.count * other.count / total;
        self.mean += distance * other.count / total;
        self.count = total;
    }

    /// Whether it is the deviation of a single number.
    pub(crate) fn has_one_number(&self) -> bool {
        self.count == 1.0 && self.not_finite == 0
    }

    /// The deviation; null if there are too few numbers.
    pub(crate) fn finish(&self, of: Population) -> RawValue<'static> {
        let divisor = of.divisor(self.count);
        let least = match of {
            Population::Whole => 1.0,
            Population::Sample => 2.0,
        };
        if self.count + (self.not_finite as f64) < least {
            return RawValue::Null;
        }
        if self.not_finite > 0 {
            return RawValue::Double(f64::NAN);
        }
        RawValue::Double((self.squares / divisor).sqrt())
    }
}
