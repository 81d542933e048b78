//! Decimal128 as BSON stores it (binary integer decimal): decoding, encoding, and exact comparison
//! with doubles.
//!
//! ```text
//!  bit 127  126 .......... 113  112 ......................... 0
//!     sign  exponent + 6176     coefficient (at most 10^34 - 1)
//! ```
//! Bits 126-122 `11110` are an infinity, `11111` a NaN. Bits 126-125 `11` otherwise begin a form
//! whose coefficient is always too large; that form, and any coefficient above the limit, reads as
//! zero.

use std::cmp::Ordering;

/// Most digits of a coefficient.
pub const MAX_DIGITS: u32 = 34;
/// Largest coefficient: 34 nines.
pub const MAX_COEFFICIENT: u128 = 10u128.pow(MAX_DIGITS) - 1;
/// Smallest exponent of a coefficient that is taken as an integer.
pub const MIN_EXPONENT: i32 = -6176;
/// Largest exponent of a coefficient that is taken as an integer.
pub const MAX_EXPONENT: i32 = 6111;

const SIGN: u128 = 1 << 127;
const INFINITY: u128 = 0b11110 << 122;
const NAN: u128 = 0b11111 << 122;

/// A decoded decimal128. A finite one is `coefficient * 10^exponent`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "the words of the standard")]
pub enum Decimal {
    Nan { negative: bool },
    Infinity { negative: bool },
    Finite { negative: bool, coefficient: u128, exponent: i32 },
}

impl Decimal {
    /// NaN without a sign.
    pub const NAN: Decimal = Decimal::Nan { negative: false };

    /// Decodes the 16 bytes of BSON.
    pub fn from_bytes(bytes: [u8; 16]) -> Decimal {
        let bits = u128::from_le_bytes(bytes);
        let negative = bits & SIGN != 0;
        match (bits & NAN) >> 122 {
            0b11111 => return Decimal::Nan { negative },
            0b11110 => return Decimal::Infinity { negative },
            _ => {}
        }
        let (exponent, coefficient) = if (bits >> 125) & 3 == 3 {
            ((bits >> 111) & 0x3FFF, 0)
        } else {
            ((bits >> 113) & 0x3FFF, bits & ((1 << 113) - 1))
        };
        let coefficient = if coefficient > MAX_COEFFICIENT { 0 } else { coefficient };
        Decimal::Finite { negative, coefficient, exponent: exponent as i32 + MIN_EXPONENT }
    }

    /// Encodes to the bytes of BSON. A finite value outside the limits becomes an infinity (too
    /// large) or is clamped.
    pub fn to_bytes(self) -> [u8; 16] {
        let bits = match self {
            Decimal::Nan { negative } => NAN | if negative { SIGN } else { 0 },
            Decimal::Infinity { negative } => INFINITY | if negative { SIGN } else { 0 },
            Decimal::Finite { negative, coefficient, exponent } => {
                let sign = if negative { SIGN } else { 0 };
                let exponent = exponent.clamp(MIN_EXPONENT, MAX_EXPONENT) - MIN_EXPONENT;
                sign | (exponent as u128) << 113 | coefficient.min(MAX_COEFFICIENT)
            }
        };
        bits.to_le_bytes()
    }

    /// An integer, without rounding.
    pub fn from_i64(value: i64) -> Decimal {
        Decimal::Finite {
            negative: value < 0,
            coefficient: u128::from(value.unsigned_abs()),
            exponent: 0,
        }
    }

    /// The decimal nearest to a double: equal to it if 34 digits are enough, and then without
    /// trailing zeros in its fraction.
    pub fn nearest(value: f64) -> Decimal {
        if value.is_nan() {
            return Decimal::Nan { negative: value.is_sign_negative() };
        }
        if value.is_infinite() {
            return Decimal::Infinity { negative: value < 0.0 };
        }
        let digits = Decimal::parse(&format!("{value:.33e}"));
        let Some(Decimal::Finite { negative, mut coefficient, mut exponent }) = digits else {
            return Decimal::NAN;
        };
        if coefficient == 0 {
            return Decimal::Finite { negative, coefficient, exponent: 0 };
        }
        if compare_with_f64(coefficient, exponent, value.abs()).is_eq() {
            while exponent < 0 && coefficient.is_multiple_of(10) {
                coefficient /= 10;
                exponent += 1;
            }
        }
        Decimal::Finite { negative, coefficient, exponent }
    }

    /// A text such as `1.50E+3`, `NaN` or `-Infinity`; rounds half to even at 34 digits.
    pub fn parse(text: &str) -> Option<Decimal> {
        let mut context = dec::Context::<dec::Decimal128>::default();
        let parsed = context.parse(text).ok()?;
        (!context.status().invalid_operation()).then(|| Decimal::from_dec(parsed))
    }

    /// Converts to the arithmetic library's type.
    pub fn to_dec(self) -> dec::Decimal128 {
        match self {
            Decimal::Nan { .. } | Decimal::Infinity { .. } => {
                dec::Decimal128::from_le_bytes(self.to_bytes())
            }
            Decimal::Finite { negative, coefficient, exponent }
                if coefficient <= MAX_COEFFICIENT
                    && (MIN_EXPONENT..=MAX_EXPONENT).contains(&exponent) =>
            {
                let bits = densely_packed(coefficient, (exponent - MIN_EXPONENT) as u128);
                let bits = bits | if negative { SIGN } else { 0 };
                dec::Decimal128::from_le_bytes(bits.to_le_bytes())
            }
            // Beyond the limits the library rounds.
            Decimal::Finite { negative, coefficient, exponent } => {
                let text = format!("{}{coefficient}E{exponent}", if negative { "-" } else { "" });
                text.parse().unwrap_or(dec::Decimal128::NAN)
            }
        }
    }

    /// Converts from the arithmetic library's type.
    pub fn from_dec(value: dec::Decimal128) -> Decimal {
        let negative = value.is_signed();
        if value.is_nan() {
            return Decimal::Nan { negative };
        }
        if value.is_infinite() {
            return Decimal::Infinity { negative };
        }
        Decimal::Finite {
            negative,
            coefficient: value.coefficient().unsigned_abs(),
            exponent: value.exponent(),
        }
    }

    /// The quotient, rounded half to even at 34 digits.
    pub fn divided_by(self, divisor: Decimal) -> Decimal {
        let mut context = dec::Context::<dec::Decimal128>::default();
        Decimal::from_dec(context.div(self.to_dec(), divisor.to_dec()))
    }

    /// The remainder of the truncated division, with the sign of the dividend. It is exact, however
    /// large the quotient is.
    pub fn remainder_of(self, divisor: Decimal) -> Decimal {
        if let (
            Decimal::Finite { negative, coefficient: left, exponent: from },
            Decimal::Finite { coefficient: right @ 1.., exponent: to, .. },
        ) = (self, divisor)
        {
            let rest = remainder(left, right, from - to);
            return Decimal::Finite { negative, coefficient: rest, exponent: from.min(to) };
        }
        let mut context = dec::Context::<dec::Decimal128>::default();
        Decimal::from_dec(context.rem(self.to_dec(), divisor.to_dec()))
    }

    /// The nearest double.
    pub fn to_f64(self) -> f64 {
        match self {
            Decimal::Nan { negative: false } => f64::NAN,
            Decimal::Nan { negative: true } => -f64::NAN,
            Decimal::Infinity { negative: false } => f64::INFINITY,
            Decimal::Infinity { negative: true } => f64::NEG_INFINITY,
            Decimal::Finite { negative, coefficient, exponent } => {
                let magnitude = nearest_f64(coefficient, exponent);
                if negative { -magnitude } else { magnitude }
            }
        }
    }
}

/// `left * 10^scale` modulo `right`, for a negative scale in units of `10^scale`.
fn remainder(left: u128, right: u128, scale: i32) -> u128 {
    // A coefficient has 34 digits, so that three more fit into 128 bits.
    const STEP: u32 = 3;
    if scale < 0 {
        let by = 10u128.checked_pow(scale.unsigned_abs());
        // A divisor beyond 128 bits is greater than the dividend.
        let divisor = by.and_then(|by| right.checked_mul(by));
        return divisor.map_or(left, |divisor| left % divisor);
    }
    let (mut rest, mut scale) = (left % right, scale.unsigned_abs());
    while scale > 0 && rest > 0 {
        let step = scale.min(STEP);
        rest = rest * 10u128.pow(step) % right;
        scale -= step;
    }
    rest
}

/// The library's encoding, IEEE 754's densely packed decimal, without the sign. BSON's encoding has
/// the same fields, but a binary coefficient.
///
/// ```text
/// sign 1 | first digit and upper exponent 5 | lower exponent 12 | 11 groups of three digits, 10 each
/// ```
fn densely_packed(coefficient: u128, exponent: u128) -> u128 {
    let (mut rest, mut bits) = (coefficient, 0);
    for group in 0..11 {
        bits |= u128::from(THREE_DIGITS[(rest % 1000) as usize]) << (10 * group);
        rest /= 1000;
    }
    let (upper, lower) = (exponent >> 12, exponent & 0xFFF);
    let combined = if rest < 8 { upper << 3 | rest } else { 0b11000 | upper << 1 | rest & 1 };
    combined << 122 | lower << 110 | bits
}

/// Three digits in ten bits, as IEEE 754 packs them: three bits for a digit below eight, one for
/// others.
const THREE_DIGITS: [u16; 1000] = {
    let mut packed = [0; 1000];
    let mut number = 0;
    while number < 1000 {
        let (a, b, c) = (number as u16 / 100, number as u16 / 10 % 10, number as u16 % 10);
        // The lowest bit of each digit, and the two upper bits of digits below eight.
        let (last_a, last_b, last_c) = ((a & 1) << 7, (b & 1) << 4, c & 1);
        let (two_a, two_b, two_c) = (a >> 1 & 3, b >> 1 & 3, c >> 1 & 3);
        let middle = match (a > 7, b > 7, c > 7) {
            (false, false, false) => two_a << 8 | two_b << 5 | two_c << 1,
            (false, false, true) => two_a << 8 | two_b << 5 | 0b1000,
            (false, true, false) => two_a << 8 | two_c << 5 | 0b1010,
            (false, true, true) => two_a << 8 | 0b10 << 5 | 0b1110,
            (true, false, false) => two_c << 8 | two_b << 5 | 0b1100,
            (true, false, true) => two_b << 8 | 0b01 << 5 | 0b1110,
            (true, true, false) => two_c << 8 | 0b1110,
            (true, true, true) => 0b11 << 5 | 0b1110,
        };
        packed[number] = middle | last_a | last_b | last_c;
        number += 1;
    }
    packed
};

/// A non-zero coefficient widened to 34 digits, and the power of ten of its first digit: magnitudes
/// compare as `(power, widened)`.
pub fn widened(coefficient: u128, exponent: i32) -> (i32, u128) {
    if coefficient == 0 {
        return (i32::MIN, 0);
    }
    let digits = coefficient.ilog10() + 1;
    let missing = MAX_DIGITS.saturating_sub(digits);
    (exponent + digits as i32 - 1, coefficient * 10u128.pow(missing))
}

/// The double nearest to a magnitude; infinite when it is too large.
pub fn nearest_f64(coefficient: u128, exponent: i32) -> f64 {
    const EXACT: u128 = 1 << 53;
    match exponent {
        0 if coefficient <= EXACT => coefficient as f64,
        // Both factors are exact doubles, so one division or multiplication rounds correctly.
        -22..0 if coefficient <= EXACT => coefficient as f64 / 10f64.powi(-exponent),
        1..=22 if coefficient <= EXACT => coefficient as f64 * 10f64.powi(exponent),
        _ => format!("{coefficient}e{exponent}").parse().unwrap_or(f64::INFINITY),
    }
}

/// The largest double that is not above a magnitude, and whether it equals the magnitude.
pub fn truncated_f64(coefficient: u128, exponent: i32) -> (f64, bool) {
    let nearest = nearest_f64(coefficient, exponent);
    if nearest.is_infinite() {
        return (f64::MAX, false);
    }
    match compare_with_f64(coefficient, exponent, nearest) {
        Ordering::Less => (nearest.next_down(), false),
        Ordering::Equal => (nearest, true),
        Ordering::Greater => (nearest, false),
    }
}

/// Compares a magnitude with a double that is neither negative nor NaN, exactly.
pub fn compare_with_f64(coefficient: u128, exponent: i32, double: f64) -> Ordering {
    // Rounding preserves order, so only a magnitude that rounds to this double needs exact
    // arithmetic.
    let nearest = nearest_f64(coefficient, exponent);
    if double.is_infinite() {
        return Ordering::Less;
    }
    if nearest != double {
        return nearest.total_cmp(&double);
    }
    if coefficient == 0 || double == 0.0 {
        return coefficient.min(1).cmp(&u128::from(double != 0.0));
    }
    let bits = double.to_bits();
    let (mantissa, power) = match (bits >> 52) as i32 {
        0 => (bits & ((1 << 52) - 1), -1074),
        biased => (bits & ((1 << 52) - 1) | 1 << 52, biased - 1075),
    };
    // Compares coefficient * 10^exponent with mantissa * 2^power, with negative powers moved to the
    // other side.
    let mut left = Big::new(coefficient);
    let mut right = Big::new(u128::from(mantissa));
    left.times_ten_to(exponent.max(0) as u32);
    left.times_two_to((-power).max(0) as u32);
    right.times_ten_to((-exponent).max(0) as u32);
    right.times_two_to(power.max(0) as u32);
    left.cmp(&right)
}

/// An unsigned integer of any size, least significant limb first, without leading zero limbs.
struct Big(Vec<u32>);

impl Big {
    fn new(mut value: u128) -> Big {
        let mut limbs = Vec::with_capacity(80);
        while value > 0 {
            limbs.push(value as u32);
            value >>= 32;
        }
        Big(limbs)
    }

    fn times(&mut self, factor: u32) {
        let mut carry = 0u64;
        for limb in &mut self.0 {
            carry += u64::from(*limb) * u64::from(factor);
            *limb = carry as u32;
            carry >>= 32;
        }
        if carry > 0 {
            self.0.push(carry as u32);
        }
    }

    fn times_ten_to(&mut self, power: u32) {
        for _ in 0..power / 9 {
            self.times(1_000_000_000);
        }
        self.times(10u32.pow(power % 9));
    }

    fn times_two_to(&mut self, power: u32) {
        for _ in 0..power / 31 {
            self.times(1 << 31);
        }
        self.times(1 << (power % 31));
    }

    fn cmp(&self, other: &Big) -> Ordering {
        let by_length = self.0.len().cmp(&other.0.len());
        by_length.then_with(|| self.0.iter().rev().cmp(other.0.iter().rev()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_agree_with_the_bson_crate() {
        for text in [
            "0",
            "-0",
            "1",
            "1.50",
            "-7E+3",
            "9.999999999999999999999999999999999E+6144",
            "1E-6176",
            "NaN",
            "Infinity",
            "-Infinity",
            "0.1",
            "123456789012345678901234567890.1234",
        ] {
            let theirs: bson::Decimal128 = text.parse().unwrap();
            let ours = Decimal::parse(text).unwrap();
            assert_eq!(ours.to_bytes(), theirs.bytes(), "{text}");
            assert_eq!(Decimal::from_bytes(theirs.bytes()), ours, "{text}");
            assert_eq!(Decimal::from_dec(ours.to_dec()), ours, "{text}");
        }
    }

    #[test]
    fn digits_are_packed_as_the_library_reads_them() {
        let check = |coefficient: u128, exponent: i32| {
            for negative in [false, true] {
                let ours = Decimal::Finite { negative, coefficient, exponent };
                let theirs: dec::Decimal128 =
                    format!("{}{coefficient}E{exponent}", if negative { "-" } else { "" })
                        .parse()
                        .unwrap();
                assert_eq!(ours.to_dec().to_le_bytes(), theirs.to_le_bytes(), "{ours:?}");
            }
        };
        for group in 0..1000 {
            check(group, -3);
            check(group * 1_000_000_000_000_000_000 + 999 - group, 7);
            check(MAX_COEFFICIENT - group, 0);
        }
        for text in ["Infinity", "-Infinity", "NaN", "-NaN"] {
            let theirs: dec::Decimal128 = text.parse().unwrap();
            let ours = Decimal::parse(text).unwrap();
            assert_eq!(ours.to_dec().to_le_bytes(), theirs.to_le_bytes(), "{text}");
        }
        for first in 0..10 {
            for exponent in [MIN_EXPONENT, -4096, -2080, -1, 0, 2015, 4095, MAX_EXPONENT] {
                check(first * 10u128.pow(33), exponent);
            }
        }
    }

    #[test]
    fn remainders_are_exact() {
        let cases = [
            ("7", "3", "1"),
            ("-7.5", "2", "-1.5"),
            ("9.999999999999999999999999999999999E+6144", "3", "0"),
            ("1E+6144", "7", "1"),
            ("1", "1E+6111", "1"),
            ("1E-6176", "3", "1E-6176"),
            ("123", "0.5", "0.0"),
        ];
        for (left, right, rest) in cases {
            let decimal = |text: &str| Decimal::parse(text).unwrap();
            assert_eq!(decimal(left).remainder_of(decimal(right)), decimal(rest), "{left} {right}");
        }
    }

    #[test]
    fn doubles_become_the_nearest_decimal() {
        let cases = [
            (0.1, "0.1000000000000000055511151231257827"),
            (5.0, "5"),
            (-0.5, "-0.5"),
            (1e20, "100000000000000000000"),
            (0.0, "0"),
            (-0.0, "-0"),
            (1e300, "1.000000000000000052504760255204420E+300"),
        ];
        for (double, text) in cases {
            assert_eq!(Decimal::nearest(double), Decimal::parse(text).unwrap(), "{double}");
        }
    }

    #[test]
    fn doubles_and_decimals_compare_exactly() {
        // The double 0.1 is a little above one tenth.
        assert_eq!(compare_with_f64(1, -1, 0.1), Ordering::Less);
        assert_eq!(compare_with_f64(5, -1, 0.5), Ordering::Equal);
        assert_eq!(compare_with_f64(1, 400, f64::MAX), Ordering::Greater);
        assert_eq!(compare_with_f64(1, -400, 5e-324), Ordering::Less);
        assert_eq!(compare_with_f64(1, -400, 0.0), Ordering::Greater);
        assert_eq!(truncated_f64(1, -1), (0.1f64.next_down(), false));
        assert_eq!(truncated_f64(1, 6000), (f64::MAX, false));
    }
}
