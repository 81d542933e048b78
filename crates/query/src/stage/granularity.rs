//! Preferred number series, to which `$bucketAuto` rounds its boundaries. Manual: "$bucketAuto",
//! "Granularity".
//!
//! The E series follow a formula; the Renard series and the 1-2-5 series are tables.

use mayfly_value::{RawValue, ValueBuf};

/// A series of preferred numbers.
#[derive(Clone, Copy, Debug)]
pub(super) enum Granularity {
    /// These numbers times powers of ten. They ascend, and the last is less than ten times the
    /// first.
    Decades(&'static [f64]),
    /// This number of steps between two powers of ten.
    Steps(u32),
    /// Powers of two.
    PowersOfTwo,
}

const R5: &[f64] = &[10.0, 16.0, 25.0, 40.0, 63.0];
const R10: &[f64] = &[100.0, 125.0, 160.0, 200.0, 250.0, 315.0, 400.0, 500.0, 630.0, 800.0];
const R20: &[f64] = &[
    100.0, 112.0, 125.0, 140.0, 160.0, 180.0, 200.0, 224.0, 250.0, 280.0, 315.0, 355.0, 400.0,
    450.0, 500.0, 560.0, 630.0, 710.0, 800.0, 900.0,
];
const R40: &[f64] = &[
    100.0, 106.0, 112.0, 118.0, 125.0, 132.0, 140.0, 150.0, 160.0, 170.0, 180.0, 190.0, 200.0,
    212.0, 224.0, 236.0, 250.0, 265.0, 280.0, 300.0, 315.0, 335.0, 355.0, 375.0, 400.0, 425.0,
    450.0, 475.0, 500.0, 530.0, 560.0, 600.0, 630.0, 670.0, 710.0, 750.0, 800.0, 850.0, 900.0,
    950.0,
];
const R80: &[f64] = &[
    100.0, 103.0, 106.0, 109.0, 112.0, 115.0, 118.0, 122.0, 125.0, 128.0, 132.0, 136.0, 140.0,
    145.0, 150.0, 155.0, 160.0, 165.0, 170.0, 175.0, 180.0, 185.0, 190.0, 195.0, 200.0, 206.0,
    212.0, 218.0, 224.0, 230.0, 236.0, 243.0, 250.0, 258.0, 265.0, 272.0, 280.0, 290.0, 300.0,
    307.0, 315.0, 325.0, 335.0, 345.0, 355.0, 365.0, 375.0, 387.0, 400.0, 412.0, 425.0, 437.0,
    450.0, 462.0, 475.0, 487.0, 500.0, 515.0, 530.0, 545.0, 560.0, 580.0, 600.0, 615.0, 630.0,
    650.0, 670.0, 690.0, 710.0, 730.0, 750.0, 775.0, 800.0, 825.0, 850.0, 875.0, 900.0, 925.0,
    950.0, 975.0,
];
const ONE_TWO_FIVE: &[f64] = &[10.0, 20.0, 50.0];
const E6: &[f64] = &[10.0, 15.0, 22.0, 33.0, 47.0, 68.0];
const E12: &[f64] = &[10.0, 12.0, 15.0, 18.0, 22.0, 27.0, 33.0, 39.0, 47.0, 56.0, 68.0, 82.0];
const E24: &[f64] = &[
    10.0, 11.0, 12.0, 13.0, 15.0, 16.0, 18.0, 20.0, 22.0, 24.0, 27.0, 30.0, 33.0, 36.0, 39.0, 43.0,
    47.0, 51.0, 56.0, 62.0, 68.0, 75.0, 82.0, 91.0,
];

impl Granularity {
    pub(super) fn named(name: &str) -> Option<Granularity> {
        Some(match name {
            "R5" => Granularity::Decades(R5),
            "R10" => Granularity::Decades(R10),
            "R20" => Granularity::Decades(R20),
            "R40" => Granularity::Decades(R40),
            "R80" => Granularity::Decades(R80),
            "1-2-5" => Granularity::Decades(ONE_TWO_FIVE),
            "E6" => Granularity::Decades(E6),
            "E12" => Granularity::Decades(E12),
            "E24" => Granularity::Decades(E24),
            "E48" => Granularity::Steps(48),
            "E96" => Granularity::Steps(96),
            "E192" => Granularity::Steps(192),
            "POWERSOF2" => Granularity::PowersOfTwo,
            _ => return None,
        })
    }

    fn series(self) -> Vec<f64> {
        match self {
            Granularity::Decades(series) => series.to_vec(),
            Granularity::PowersOfTwo => Vec::new(),
            Granularity::Steps(steps) => {
                let step = |at: u32| {
                    let value = 10f64.powf(f64::from(at) / f64::from(steps) + 2.0).round();
                    // The only value of the standard that does not follow the formula.
                    if steps == 192 && value == 919.0 { 920.0 } else { value }
                };
                (0..steps).map(step).collect()
            }
        }
    }

    /// A number of the series as a boundary: whole powers of two are integers.
    pub(super) fn boundary(self, number: f64) -> ValueBuf {
        let is_whole = matches!(self, Granularity::PowersOfTwo) && number.fract() == 0.0;
        let value = match number as i64 {
            whole if !is_whole || whole == i64::MAX => RawValue::Double(number),
            whole => i32::try_from(whole).map_or(RawValue::Int64(whole), RawValue::Int32),
        };
        value.to_owned()
    }

    /// The least number of the series above a non-negative number. Zero stays zero.
    pub(super) fn above(self, number: f64) -> f64 {
        if number == 0.0 || !number.is_finite() {
            return number;
        }
        if matches!(self, Granularity::PowersOfTwo) {
            return 2f64.powf(number.log2().floor() + 1.0);
        }
        let series = self.series();
        let multiplier = decade(&series, number);
        let next = series.iter().map(|value| scaled(*value, multiplier));
        next.clone().find(|value| *value > number).unwrap_or(scaled(series[0], multiplier * 10.0))
    }

    /// The greatest number of the series below this one. Zero stays zero.
    pub(super) fn below(self, number: f64) -> f64 {
        if number == 0.0 || !number.is_finite() {
            return number;
        }
        if matches!(self, Granularity::PowersOfTwo) {
            return 2f64.powf(number.log2().ceil() - 1.0);
        }
        let series = self.series();
        let multiplier = decade(&series, number);
        let before = series
            .iter()
            .rev()
            .map(|value| scaled(*value, multiplier))
            .find(|value| *value < number);
        before.unwrap_or(scaled(series[series.len() - 1], multiplier / 10.0))
    }
}

/// A number of a series times a power of ten. A division by the inverse gives the double that is
/// nearest to the decimal number: 63 / 100 is 0.63, and 63 * 0.01 is not.
fn scaled(number: f64, multiplier: f64) -> f64 {
    if multiplier < 1.0 { number / (1.0 / multiplier).round() } else { number * multiplier }
}

/// The power of ten by which the first number of a series is at most `number`, but more than a
/// tenth of it.
fn decade(series: &[f64], number: f64) -> f64 {
    let mut multiplier = 1.0;
    // More iterations than a double has powers of ten.
    for _ in 0..700 {
        if number >= series[0] * multiplier * 10.0 {
            multiplier *= 10.0;
        } else if number < series[0] * multiplier {
            multiplier /= 10.0;
        } else {
            break;
        }
    }
    multiplier
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rounds_to_the_next_number_of_the_series() {
        let check = |name: &str, number: f64, below: f64, above: f64| {
            let granularity = Granularity::named(name).unwrap();
            assert_eq!(granularity.above(number), above, "{name} above {number}");
            assert_eq!(granularity.below(number), below, "{name} below {number}");
        };
        check("R5", 0.0, 0.0, 0.0);
        check("R5", 10.0, 6.3, 16.0);
        check("R5", 99.0, 63.0, 100.0);
        check("1-2-5", 5.0, 2.0, 10.0);
        check("POWERSOF2", 8.0, 4.0, 16.0);
        check("POWERSOF2", 9.0, 8.0, 16.0);
        check("E24", 95.0, 91.0, 100.0);
        check("E192", 919.0, 909.0, 920.0);
        check("E48", 101.0, 100.0, 105.0);
    }
}
