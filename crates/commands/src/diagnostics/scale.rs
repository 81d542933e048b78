//! The `scale` argument of commands that return sizes, and the representation of their numbers.

use mayfly_base::{Error, ErrorCode, Result};
use mayfly_value::RawValue;

use crate::request::Fields;

/// The divisor of sizes; a fraction is truncated.
///
/// # Errors
/// 14 TypeMismatch, 51024 below 1.
pub(super) fn scale(fields: &Fields<'_>) -> Result<i64> {
    match fields.long("scale")? {
        None => Ok(1),
        Some(scale) if scale >= 1 => Ok(scale),
        Some(scale) => {
            let text = format!("BSON field 'scale' value must be >= 1, actual value '{scale}'");
            Err(Error::new(ErrorCode(51024), text))
        }
    }
}

/// A number as an int32 if it fits.
pub(crate) fn small(number: i64) -> RawValue<'static> {
    i32::try_from(number).map_or(RawValue::Int64(number), RawValue::Int32)
}

/// A number of bytes as an int64, capped at the largest one.
pub(super) fn bytes(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}
