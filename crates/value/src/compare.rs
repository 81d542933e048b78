//! The order of values: canonical type first, then within the type. Sorting, comparison operators
//! and index keys use this order; [`crate::keys`] encodes it in bytes.
//!
//! Numbers compare by exact value whatever their type. NaN equals NaN and is below every other
//! number.

use std::cmp::Ordering;

use mayfly_base::limits::MAX_BSON_DEPTH;

use crate::collation::Collation;
use crate::decimal::{Decimal, compare_with_f64, widened};
use crate::raw::{RawDoc, RawValue, ty};

/// The rank of a type in the order of types; types that compare with each other share a rank.
#[inline]
pub fn canonical_type(type_byte: u8) -> i8 {
    match type_byte {
        ty::MIN_KEY => -1,
        ty::UNDEFINED => 0,
        ty::NULL => 5,
        ty::DOUBLE | ty::INT32 | ty::INT64 | ty::DECIMAL => 10,
        ty::STRING | ty::SYMBOL => 15,
        ty::DOCUMENT => 20,
        ty::ARRAY => 25,
        ty::BINARY => 30,
        ty::OBJECT_ID => 35,
        ty::BOOL => 40,
        ty::DATE => 45,
        ty::TIMESTAMP => 47,
        ty::REGEX => 50,
        ty::DB_POINTER => 55,
        ty::CODE => 60,
        ty::CODE_W_SCOPE => 65,
        _ => 127,
    }
}

/// Compares two values of any types.
#[inline]
pub fn compare_values(left: RawValue<'_>, right: RawValue<'_>) -> Ordering {
    compare_at(left, right, None, 0)
}

/// The same with strings, including those inside documents and arrays, compared by a collation.
#[inline]
pub fn compare_values_in(
    left: RawValue<'_>,
    right: RawValue<'_>,
    collation: Option<&Collation>,
) -> Ordering {
    compare_at(left, right, collation, 0)
}

/// Compares two documents element by element: type, name, value. A prefix of a document is less
/// than the document.
pub fn compare_docs(left: RawDoc<'_>, right: RawDoc<'_>) -> Ordering {
    compare_elements(left, right, Names::Matter, None, 0)
}

/// Whether two values compare as equal.
pub fn equal_values(left: RawValue<'_>, right: RawValue<'_>) -> bool {
    compare_values(left, right).is_eq()
}

fn compare_at(
    left: RawValue<'_>,
    right: RawValue<'_>,
    collation: Option<&Collation>,
    depth: usize,
) -> Ordering {
    use RawValue as V;
    match (left, right) {
        (V::Int32(a), V::Int32(b)) => a.cmp(&b),
        (V::String(a) | V::Symbol(a), V::String(b) | V::Symbol(b)) => match collation {
            None => a.as_bytes().cmp(b.as_bytes()),
            Some(collation) => collation.compare(a, b),
        },
        (V::Document(a), V::Document(b)) => compare_elements(a, b, Names::Matter, collation, depth),
        (V::Array(a), V::Array(b)) => compare_elements(a, b, Names::Ignored, collation, depth),
        (V::Binary { subtype: s, bytes: a }, V::Binary { subtype: t, bytes: b }) => {
            a.len().cmp(&b.len()).then(s.cmp(&t)).then_with(|| a.cmp(b))
        }
        (V::ObjectId(a), V::ObjectId(b)) => a.cmp(&b),
        (V::Bool(a), V::Bool(b)) => a.cmp(&b),
        (V::Date(a), V::Date(b)) => a.cmp(&b),
        (V::Timestamp(a), V::Timestamp(b)) => a.cmp(&b),
        (V::Regex { pattern: a, options: o }, V::Regex { pattern: b, options: p }) => {
            a.as_bytes().cmp(b.as_bytes()).then_with(|| o.as_bytes().cmp(p.as_bytes()))
        }
        (V::DbPointer { ns: a, id: i }, V::DbPointer { ns: b, id: j }) => {
            let names = a.len().cmp(&b.len()).then_with(|| a.as_bytes().cmp(b.as_bytes()));
            names.then(i.cmp(&j))
        }
        (V::Code(a), V::Code(b)) => a.as_bytes().cmp(b.as_bytes()),
        (V::CodeWithScope { code: a, scope: s }, V::CodeWithScope { code: b, scope: t }) => {
            let codes = a.as_bytes().cmp(b.as_bytes());
            codes.then_with(|| compare_elements(s, t, Names::Matter, None, depth))
        }
        _ if left.is_number() && right.is_number() => compare_numbers(left, right),
        _ => canonical_type(left.type_byte()).cmp(&canonical_type(right.type_byte())),
    }
}

#[derive(Clone, Copy, PartialEq)]
enum Names {
    Matter,
    Ignored,
}

fn compare_elements(
    left: RawDoc<'_>,
    right: RawDoc<'_>,
    names: Names,
    collation: Option<&Collation>,
    depth: usize,
) -> Ordering {
    if depth > MAX_BSON_DEPTH || left.as_bytes() == right.as_bytes() {
        return Ordering::Equal;
    }
    let (mut left, mut right) = (left.iter(), right.iter());
    loop {
        let (a, b) = match (left.next(), right.next()) {
            (None, None) => return Ordering::Equal,
            (None, Some(_)) => return Ordering::Less,
            (Some(_), None) => return Ordering::Greater,
            (Some(a), Some(b)) => (a, b),
        };
        let mut order = canonical_type(a.type_byte()).cmp(&canonical_type(b.type_byte()));
        if names == Names::Matter {
            order = order.then_with(|| a.name_bytes().cmp(b.name_bytes()));
        }
        let order = order.then_with(|| compare_at(a.value(), b.value(), collation, depth + 1));
        if order.is_ne() {
            return order;
        }
    }
}

/// Compares two numbers by exact value; anything else counts as equal.
pub fn compare_numbers(left: RawValue<'_>, right: RawValue<'_>) -> Ordering {
    use RawValue as V;
    match (left, right) {
        (V::Int32(a), V::Int32(b)) => a.cmp(&b),
        (V::Int32(a), V::Int64(b)) => i64::from(a).cmp(&b),
        (V::Int64(a), V::Int32(b)) => a.cmp(&i64::from(b)),
        (V::Int64(a), V::Int64(b)) => a.cmp(&b),
        (V::Double(a), V::Double(b)) => compare_doubles(a, b),
        (V::Double(a), V::Int32(b)) => compare_doubles(a, f64::from(b)),
        (V::Int32(a), V::Double(b)) => compare_doubles(f64::from(a), b),
        (V::Double(a), V::Int64(b)) => compare_with_i64(a, b),
        (V::Int64(a), V::Double(b)) => compare_with_i64(b, a).reverse(),
        (V::Decimal128(a), V::Double(b)) => decimal_with_double(Decimal::from_bytes(a), b),
        (V::Double(a), V::Decimal128(b)) => {
            decimal_with_double(Decimal::from_bytes(b), a).reverse()
        }
        (V::Decimal128(_), _) | (_, V::Decimal128(_)) => {
            compare_decimals(as_decimal(left), as_decimal(right))
        }
        _ => Ordering::Equal,
    }
}

fn as_decimal(value: RawValue<'_>) -> Decimal {
    match value {
        RawValue::Int32(v) => Decimal::from_i64(i64::from(v)),
        RawValue::Int64(v) => Decimal::from_i64(v),
        RawValue::Decimal128(v) => Decimal::from_bytes(v),
        _ => Decimal::NAN,
    }
}

fn compare_doubles(left: f64, right: f64) -> Ordering {
    left.partial_cmp(&right).unwrap_or_else(|| right.is_nan().cmp(&left.is_nan()))
}

/// A double and an integer, without rounding the integer.
fn compare_with_i64(double: f64, long: i64) -> Ordering {
    const LIMIT: f64 = 9_223_372_036_854_775_808.0;
    if double.is_nan() || double < -LIMIT {
        return Ordering::Less;
    }
    if double >= LIMIT {
        return Ordering::Greater;
    }
    let whole = double.trunc();
    (whole as i64).cmp(&long).then_with(|| compare_doubles(double, whole))
}

fn decimal_with_double(decimal: Decimal, double: f64) -> Ordering {
    let Decimal::Finite { negative, coefficient, exponent } = decimal else {
        return compare_doubles(decimal.to_f64(), double);
    };
    if double.is_nan() {
        return Ordering::Greater;
    }
    let (left, right) = (sign_of(negative, coefficient == 0), sign_of(double < 0.0, double == 0.0));
    if left != right || left == 0 {
        return left.cmp(&right);
    }
    let magnitudes = compare_with_f64(coefficient, exponent, double.abs());
    if left < 0 { magnitudes.reverse() } else { magnitudes }
}

fn sign_of(negative: bool, zero: bool) -> i8 {
    match (zero, negative) {
        (true, _) => 0,
        (false, true) => -1,
        (false, false) => 1,
    }
}

fn compare_decimals(left: Decimal, right: Decimal) -> Ordering {
    decimal_rank(left).cmp(&decimal_rank(right))
}

/// Sign and magnitude, as a tuple whose order is the order of decimals.
fn decimal_rank(decimal: Decimal) -> (i8, i32, i128) {
    match decimal {
        Decimal::Nan { .. } => (-3, 0, 0),
        Decimal::Infinity { negative } => (if negative { -2 } else { 2 }, 0, 0),
        Decimal::Finite { coefficient: 0, .. } => (0, 0, 0),
        Decimal::Finite { negative, coefficient, exponent } => {
            let (power, digits) = widened(coefficient, exponent);
            let digits = digits as i128;
            if negative { (-1, -power, -digits) } else { (1, power, digits) }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::decimal::Decimal;

    fn decimal(text: &str) -> RawValue<'static> {
        RawValue::Decimal128(Decimal::parse(text).unwrap().to_bytes())
    }

    /// Each value is below the next. Manual: "Comparison/Sort Order".
    #[test]
    fn ladder_of_values() {
        let ladder = [
            RawValue::MinKey,
            RawValue::Undefined,
            RawValue::Null,
            RawValue::Double(f64::NAN),
            decimal("-Infinity"),
            decimal("-1E+400"),
            RawValue::Double(-1.5),
            RawValue::Int32(-1),
            RawValue::Double(-0.0),
            decimal("0.1"),
            RawValue::Double(0.1),
            RawValue::Int64(9_007_199_254_740_992),
            RawValue::Int64(9_007_199_254_740_993),
            RawValue::Double(9_007_199_254_740_994.0),
            RawValue::Int64(i64::MAX),
            RawValue::Double(9_223_372_036_854_775_808.0),
            RawValue::Double(f64::INFINITY),
            RawValue::String(""),
            RawValue::Symbol("a"),
            RawValue::Document(RawDoc::EMPTY),
            RawValue::Array(RawDoc::EMPTY),
            RawValue::Binary { subtype: 9, bytes: b"a" },
            RawValue::Binary { subtype: 0, bytes: b"aa" },
            RawValue::ObjectId([0; 12]),
            RawValue::Bool(false),
            RawValue::Date(-1),
            RawValue::Timestamp(0),
            RawValue::Regex { pattern: "a", options: "" },
            RawValue::DbPointer { ns: "a", id: [0; 12] },
            RawValue::Code("a"),
            RawValue::CodeWithScope { code: "a", scope: RawDoc::EMPTY },
            RawValue::MaxKey,
        ];
        for (i, a) in ladder.iter().enumerate() {
            for (j, b) in ladder.iter().enumerate() {
                assert_eq!(compare_values(*a, *b), i.cmp(&j), "{a:?} {b:?}");
            }
        }
    }

    #[test]
    fn numbers_of_all_types_are_one() {
        let ones = [RawValue::Int32(1), RawValue::Int64(1), RawValue::Double(1.0), decimal("1.00")];
        assert!(ones.iter().all(|a| ones.iter().all(|b| compare_values(*a, *b).is_eq())));
    }
}
