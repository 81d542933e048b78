//! Preferred number series, to which `$bucketAuto` rounds its boundaries. Manual: "$bucketAuto",
//! "Granularity".
//!
//! The E series follow a formula; the Renard series and the 1-2-5 series are tables: those of the
//! reference, of which two lack numbers of the standard.

use mayfly_value::Number;
use mayfly_value::decimal::Decimal;

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
// Without 335.
const R40: &[f64] = &[
    100.0, 106.0, 112.0, 118.0, 125.0, 132.0, 140.0, 150.0, 160.0, 170.0, 180.0, 190.0, 200.0,
    212.0, 224.0, 236.0, 250.0, 265.0, 280.0, 300.0, 315.0, 355.0, 375.0, 400.0, 425.0, 450.0,
    475.0, 500.0, 530.0, 560.0, 600.0, 630.0, 670.0, 710.0, 750.0, 800.0, 850.0, 900.0, 950.0,
];
// Without the numbers that R40 contains.
const R80: &[f64] = &[
    103.0, 109.0, 115.0, 122.0, 128.0, 136.0, 145.0, 155.0, 165.0, 175.0, 185.0, 195.0, 206.0,
    218.0, 230.0, 243.0, 258.0, 272.0, 290.0, 307.0, 325.0, 345.0, 365.0, 387.0, 412.0, 437.0,
    462.0, 487.0, 515.0, 545.0, 575.0, 615.0, 650.0, 690.0, 730.0, 775.0, 825.0, 875.0, 925.0,
    975.0,
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

    /// The least number of the series above a non-negative number. Zero and infinity stay.
    pub(super) fn above(self, number: Number) -> Number {
        if stays(number) {
            return number;
        }
        if matches!(self, Granularity::PowersOfTwo) {
            return power_of_two(number, true);
        }
        let (number, one) = in_its_type(number);
        let series = self.series();
        let (first, last) = (series[0], series[series.len() - 1]);
        let mut multiplier = one;
        while !number.compare(scaled(last, multiplier)).is_lt() {
            multiplier = multiplier.times(Number::Int32(10));
        }
        while number.compare(scaled(first, multiplier)).is_lt() {
            let least = scaled(first, multiplier);
            multiplier = tenth(multiplier);
            if !number.compare(scaled(last, multiplier)).is_lt() {
                return least;
            }
        }
        let mut scaled = series.iter().map(|value| scaled(*value, multiplier));
        scaled.find(|value| value.compare(number).is_gt()).unwrap_or(number)
    }

    /// The greatest number of the series below this one. Zero and infinity stay.
    pub(super) fn below(self, number: Number) -> Number {
        if stays(number) {
            return number;
        }
        if matches!(self, Granularity::PowersOfTwo) {
            return power_of_two(number, false);
        }
        let (number, one) = in_its_type(number);
        let series = self.series();
        let (first, last) = (series[0], series[series.len() - 1]);
        let mut multiplier = one;
        while !number.compare(scaled(first, multiplier)).is_gt() {
            multiplier = tenth(multiplier);
        }
        while number.compare(scaled(last, multiplier)).is_gt() {
            let most = scaled(last, multiplier);
            multiplier = multiplier.times(Number::Int32(10));
            // The second condition is that of a number so small that the multiplier became zero.
            if !number.compare(scaled(first, multiplier)).is_gt() || multiplier.to_f64() == 0.0 {
                return most;
            }
        }
        let mut scaled = series.iter().rev().map(|value| scaled(*value, multiplier));
        scaled.find(|value| value.compare(number).is_lt()).unwrap_or(number)
    }
}

fn stays(number: Number) -> bool {
    let number = number.to_f64();
    number == 0.0 || !number.is_finite()
}

/// The number as a decimal or a double, and one in the same type.
fn in_its_type(number: Number) -> (Number, Number) {
    match number {
        Number::Decimal(_) => (number, Number::Decimal(Decimal::from_i64(1))),
        number => (Number::Double(number.to_f64()), Number::Double(1.0)),
    }
}

fn scaled(number: f64, multiplier: Number) -> Number {
    Number::Double(number).times(multiplier)
}

fn tenth(multiplier: Number) -> Number {
    match multiplier {
        Number::Decimal(multiplier) => {
            Number::Decimal(multiplier.divided_by(Decimal::from_i64(10)))
        }
        multiplier => Number::Double(multiplier.to_f64() / 10.0),
    }
}

/// The next power of two above or below a positive number. Of a decimal it is a decimal; otherwise
/// whole ones are integers.
fn power_of_two(number: Number, above: bool) -> Number {
    let exponent = match (number, above) {
        (Number::Int32(_) | Number::Int64(_), _) => {
            let whole = number.to_i64_exact().unwrap_or(1);
            let highest = whole.ilog2() as i32;
            match above {
                true => highest + 1,
                false => highest - i32::from(whole & (whole - 1) == 0),
            }
        }
        (number, true) => number.to_f64().log2().floor() as i32 + 1,
        (number, false) => number.to_f64().log2().ceil() as i32 - 1,
    };
    let power = 2f64.powi(exponent);
    match number {
        Number::Decimal(_) => Number::Decimal(Decimal::nearest(power)),
        _ if (0..31).contains(&exponent) => Number::Int32(1 << exponent),
        _ if (31..63).contains(&exponent) => Number::Int64(1 << exponent),
        _ => Number::Double(power),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rounds_to_the_next_number_of_the_series() {
        let check = |name: &str, number: f64, below: f64, above: f64| {
            let granularity = Granularity::named(name).unwrap();
            let number = Number::Double(number);
            assert_eq!(granularity.above(number).to_f64(), above, "{name} above {number:?}");
            assert_eq!(granularity.below(number).to_f64(), below, "{name} below {number:?}");
        };
        check("R5", 0.0, 0.0, 0.0);
        // The numbers are multiplied by powers of ten, and rounded as such.
        check("R5", 10.0, 6.300000000000001, 16.0);
        check("R5", 99.0, 63.0, 100.0);
        check("R40", 320.0, 315.0, 355.0);
        check("R80", 100.0, 97.5, 103.0);
        check("R80", 5e-324, 0.0, 1.02e-321);
        check("R5", f64::INFINITY, f64::INFINITY, f64::INFINITY);
        check("1-2-5", 5.0, 2.0, 10.0);
        check("POWERSOF2", 8.0, 4.0, 16.0);
        check("POWERSOF2", 9.0, 8.0, 16.0);
        check("POWERSOF2", 0.3, 0.25, 0.5);
        check("E24", 95.0, 91.0, 100.0);
        check("E192", 919.0, 909.0, 920.0);
        check("E48", 101.0, 100.0, 105.0);
    }

    #[test]
    fn boundaries_have_the_type_of_the_number() {
        let series = |name| Granularity::named(name).unwrap();
        assert_eq!(series("R5").below(Number::Int32(0)), Number::Int32(0));
        assert_eq!(series("R5").above(Number::Int32(20)), Number::Double(25.0));
        let decimal = |text| Number::Decimal(Decimal::parse(text).unwrap());
        assert!(matches!(series("R5").above(decimal("0.5")), Number::Decimal(_)));
        assert!(series("R5").above(decimal("0.5")).compare(decimal("0.63")).is_eq());
        assert_eq!(series("POWERSOF2").above(decimal("5")), decimal("8"));
        let large = Number::Int64((1 << 62) - 1);
        assert_eq!(series("POWERSOF2").above(large), Number::Int64(1 << 62));
        assert_eq!(series("POWERSOF2").below(Number::Int32(8)), Number::Int32(4));
    }
}
