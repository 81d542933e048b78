//! Encodes values as key bytes; the parent module has the drawing.

use mayfly_base::limits::MAX_BSON_DEPTH;

use super::type_bits::Code;
use super::{TypeBits, class, classes_of, invert};
use crate::collation::Collation;
use crate::compare::canonical_type;
use crate::decimal::{Decimal, truncated_f64, widened};
use crate::raw::{RawDoc, RawValue};
use crate::sort_order::SortOrder;

/// Integers up to this magnitude are exact as doubles.
const EXACT_IN_F64: u64 = 1 << 53;

/// Appends one value. The `memcmp` order of keys is the order of the values, or its reverse if
/// `order` is descending.
pub fn append_value(out: &mut Vec<u8>, bits: &mut TypeBits, value: RawValue<'_>, order: SortOrder) {
    append_value_in(out, bits, value, order, None);
}

/// The same with strings, including those inside documents and arrays, encoded as keys of a
/// collation: they cannot be decoded.
pub fn append_value_in(
    out: &mut Vec<u8>,
    bits: &mut TypeBits,
    value: RawValue<'_>,
    order: SortOrder,
    collation: Option<&Collation>,
) {
    let start = out.len();
    append_at(out, bits, value, collation, 0);
    if order.is_descending() {
        invert(&mut out[start..]);
    }
}

fn append_at(
    out: &mut Vec<u8>,
    bits: &mut TypeBits,
    value: RawValue<'_>,
    collation: Option<&Collation>,
    depth: usize,
) {
    match value {
        RawValue::MinKey => out.push(class::MIN_KEY),
        RawValue::Undefined => out.push(class::UNDEFINED),
        RawValue::Null => out.push(class::NULL),
        RawValue::Double(v) => append_double(out, bits, v),
        RawValue::Int32(v) => {
            bits.push_default();
            append_integer(out, i64::from(v));
        }
        RawValue::Int64(v) => append_long(out, bits, v),
        RawValue::Decimal128(v) => {
            bits.push(Code::Decimal, &v);
            append_decimal(out, Decimal::from_bytes(v));
        }
        RawValue::String(v) => {
            bits.push_default();
            out.push(class::STRING);
            append_string(out, v, collation);
        }
        RawValue::Symbol(v) => {
            bits.push(Code::Symbol, &[]);
            out.push(class::STRING);
            append_string(out, v, collation);
        }
        RawValue::Document(v) => {
            out.push(class::DOCUMENT);
            append_elements(out, bits, v, collation, depth);
        }
        RawValue::Array(v) => append_array(out, bits, v, collation, depth),
        RawValue::Binary { subtype, bytes } => {
            out.push(class::BINARY);
            out.extend_from_slice(&(bytes.len() as u32).to_be_bytes());
            out.push(subtype);
            out.extend_from_slice(bytes);
        }
        RawValue::ObjectId(v) => {
            out.push(class::OBJECT_ID);
            out.extend_from_slice(&v);
        }
        RawValue::Bool(v) => out.push(if v { class::TRUE } else { class::FALSE }),
        RawValue::Date(v) => {
            out.push(class::DATE);
            out.extend_from_slice(&(v ^ i64::MIN).to_be_bytes());
        }
        RawValue::Timestamp(v) => {
            out.push(class::TIMESTAMP);
            out.extend_from_slice(&v.to_be_bytes());
        }
        RawValue::Regex { pattern, options } => {
            out.push(class::REGEX);
            append_text(out, pattern);
            append_text(out, options);
        }
        RawValue::DbPointer { ns, id } => {
            out.push(class::DB_POINTER);
            out.extend_from_slice(&(ns.len() as u32).to_be_bytes());
            out.extend_from_slice(ns.as_bytes());
            out.extend_from_slice(&id);
        }
        RawValue::Code(v) => {
            out.push(class::CODE);
            append_text(out, v);
        }
        RawValue::CodeWithScope { code, scope } => {
            out.push(class::CODE_W_SCOPE);
            append_text(out, code);
            append_elements(out, bits, scope, None, depth);
        }
        RawValue::MaxKey => out.push(class::MAX_KEY),
    }
}

fn append_elements(
    out: &mut Vec<u8>,
    bits: &mut TypeBits,
    doc: RawDoc<'_>,
    collation: Option<&Collation>,
    depth: usize,
) {
    // Deeper documents fail validation; here they are truncated.
    if depth < MAX_BSON_DEPTH {
        for element in doc.iter() {
            out.push(classes_of(canonical_type(element.type_byte())).0);
            out.extend_from_slice(element.name_bytes());
            out.push(0);
            append_at(out, bits, element.value(), collation, depth + 1);
        }
    }
    out.push(0);
}

fn append_array(
    out: &mut Vec<u8>,
    bits: &mut TypeBits,
    array: RawDoc<'_>,
    collation: Option<&Collation>,
    depth: usize,
) {
    out.push(class::ARRAY);
    if depth < MAX_BSON_DEPTH {
        for element in array.iter() {
            append_at(out, bits, element.value(), collation, depth + 1);
        }
    }
    out.push(0);
}

fn append_string(out: &mut Vec<u8>, text: &str, collation: Option<&Collation>) {
    match collation {
        None => append_text(out, text),
        Some(collation) => {
            let mut key = Vec::with_capacity(2 * text.len());
            collation.append_key(text, &mut key);
            append_bytes(out, &key);
        }
    }
}

fn append_text(out: &mut Vec<u8>, text: &str) {
    append_bytes(out, text.as_bytes());
}

fn append_bytes(out: &mut Vec<u8>, bytes: &[u8]) {
    if bytes.iter().any(|&byte| byte <= 1) {
        for &byte in bytes {
            if byte <= 1 {
                out.extend_from_slice(&[1, byte + 1]);
            } else {
                out.push(byte);
            }
        }
    } else {
        out.extend_from_slice(bytes);
    }
    out.push(0);
}

fn append_double(out: &mut Vec<u8>, bits: &mut TypeBits, value: f64) {
    if value.is_nan() {
        if value.to_bits() == f64::NAN.to_bits() {
            bits.push_default();
        } else {
            bits.push(Code::RawDouble, &value.to_le_bytes());
        }
        out.push(class::NAN);
    } else if value == 0.0 {
        bits.push(if value.is_sign_negative() { Code::NegativeZero } else { Code::Double }, &[]);
        out.push(class::ZERO);
    } else {
        // Whole numbers in the range of long would decode as int or long.
        if value.trunc() == value && value.abs() < 9_223_372_036_854_775_808.0 {
            bits.push(Code::Double, &[]);
        } else {
            bits.push_default();
        }
        append_magnitude(out, value < 0.0, value.abs(), None);
    }
}

fn append_long(out: &mut Vec<u8>, bits: &mut TypeBits, value: i64) {
    if value.unsigned_abs() > EXACT_IN_F64 {
        bits.push(Code::WideInt64, &value.to_le_bytes());
        append_decimal(out, Decimal::from_i64(value));
    } else {
        if i32::try_from(value).is_ok() {
            bits.push(Code::Int64, &[]);
        } else {
            bits.push_default();
        }
        append_integer(out, value);
    }
}

/// An integer that is exact as a double.
fn append_integer(out: &mut Vec<u8>, value: i64) {
    if value == 0 {
        out.push(class::ZERO);
    } else {
        append_magnitude(out, value < 0, value.unsigned_abs() as f64, None);
    }
}

fn append_decimal(out: &mut Vec<u8>, value: Decimal) {
    match value {
        Decimal::Nan { .. } => out.push(class::NAN),
        Decimal::Infinity { negative } => append_magnitude(out, negative, f64::INFINITY, None),
        Decimal::Finite { coefficient: 0, .. } => out.push(class::ZERO),
        Decimal::Finite { negative, coefficient, exponent } => {
            let (double, exact) = truncated_f64(coefficient, exponent);
            let beyond = (!exact).then(|| widened(coefficient, exponent));
            append_magnitude(out, negative, double, beyond);
        }
    }
}

fn append_magnitude(out: &mut Vec<u8>, negative: bool, double: f64, beyond: Option<(i32, u128)>) {
    out.push(if negative { class::NEGATIVE } else { class::POSITIVE });
    let start = out.len();
    out.extend_from_slice(&double.to_bits().to_be_bytes());
    match beyond {
        None => out.push(0),
        Some((power, digits)) => {
            out.push(1);
            out.extend_from_slice(&((power + 8192) as u16).to_be_bytes());
            out.extend_from_slice(&digits.to_be_bytes()[1..]);
        }
    }
    if negative {
        invert(&mut out[start..]);
    }
}
