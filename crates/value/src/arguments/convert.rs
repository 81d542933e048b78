//! Conversions of numbers and booleans that are arguments.

use crate::{Number, RawValue};

/// A number of any numeric type as an integer: a double is truncated, a decimal is rounded half to
/// even, NaN is 0, and numbers beyond a long are clamped. `None` for other types.
pub fn whole_number(value: RawValue<'_>) -> Option<i64> {
    match value {
        RawValue::Int32(number) => Some(i64::from(number)),
        RawValue::Int64(number) => Some(number),
        RawValue::Double(number) => Some(number as i64),
        RawValue::Decimal128(_) => Number::from_value(value).map(whole_decimal),
        _ => None,
    }
}

#[cold]
fn whole_decimal(number: Number) -> i64 {
    // A decimal beyond a long, an infinity or NaN: the conversion of its double clamps it.
    number.to_i64_half_even().unwrap_or_else(|| number.to_f64() as i64)
}

/// A boolean, or whether a number of any numeric type is not zero; NaN is true. `None` for other
/// types.
pub fn truth(value: RawValue<'_>) -> Option<bool> {
    match value {
        RawValue::Bool(flag) => Some(flag),
        RawValue::Int32(number) => Some(number != 0),
        RawValue::Int64(number) => Some(number != 0),
        RawValue::Double(number) => Some(number != 0.0),
        RawValue::Decimal128(_) => {
            let number = Number::from_value(value)?;
            Some(number.compare(Number::Int32(0)).is_ne())
        }
        _ => None,
    }
}
