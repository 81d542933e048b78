//! The `scale` argument of commands that return sizes, and the representation of their numbers.

use mayfly_base::Result;
use mayfly_value::RawValue;
use mayfly_value::arguments::Argument;

use crate::request::Fields;

/// The declaration of the divisor of sizes; a fraction is truncated.
pub(super) const SCALE: Argument = Argument::whole("scale").at_least(1);

/// The divisor of sizes.
///
/// # Errors
/// 14 TypeMismatch.
pub(super) fn scale(fields: &Fields<'_>) -> Result<i64> {
    Ok(fields.long("scale")?.unwrap_or(1))
}

/// A number as an int32 if it fits.
pub(crate) fn small(number: i64) -> RawValue<'static> {
    i32::try_from(number).map_or(RawValue::Int64(number), RawValue::Int32)
}

/// A number of bytes as an int64, capped at the largest one.
pub(super) fn bytes(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}
