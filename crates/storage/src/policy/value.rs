//! `expireAfterSeconds`: accepted values and their conversion. Expiry contract, sections 1.1 and
//! 3.3.

use mayfly_base::{Error, ErrorCode, Result};
use mayfly_value::arguments::error::wrong_type;
use mayfly_value::{Number, RawValue};

use crate::policy::TtlIndexRules;

/// `expireAfterSeconds` in the catalog.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExpireAfter {
    /// A valid number of seconds.
    Seconds(i32),
    /// The value -1 of a last-modified policy: only documents with their own `ttl` expire.
    OwnOnly,
    /// An invalid value, written by another server: listed as 2147483647, skipped by the monitor.
    Invalid,
}

impl ExpireAfter {
    /// Converts the value of a last-modified policy.
    pub(crate) fn of_last_modified(seconds: i32) -> ExpireAfter {
        if seconds == -1 { ExpireAfter::OwnOnly } else { ExpireAfter::Seconds(seconds) }
    }

    /// The value that `listIndexes` shows.
    pub fn listed_secs(self) -> i32 {
        match self {
            ExpireAfter::Seconds(seconds) => seconds,
            ExpireAfter::OwnOnly => -1,
            ExpireAfter::Invalid => i32::MAX,
        }
    }
}

/// Converts the value of `createIndexes`. Checked in this order: numeric, NaN, 32-bit range, sign;
/// fractions are cut off.
///
/// # Errors
/// 67 CannotCreateIndex.
pub fn expire_after_for_create(value: RawValue<'_>) -> Result<i32> {
    let fail = |text: String| Err(Error::new(ErrorCode::CannotCreateIndex, text));
    let Some(number) = as_f64(value) else {
        // The closing quote is missing in the reference, too.
        return fail(format!(
            "TTL index 'expireAfterSeconds' option must be numeric, but received a type of '{}",
            value.type_name()
        ));
    };
    if number.is_nan() {
        return fail("TTL index 'expireAfterSeconds' option must not be NaN".into());
    }
    let whole = number.trunc();
    if whole > f64::from(i32::MAX) || whole < f64::from(i32::MIN) {
        return fail(
            "TTL index 'expireAfterSeconds' must be within the range of a 32-bit integer".into(),
        );
    }
    if whole < 0.0 {
        return fail("TTL index 'expireAfterSeconds' option cannot be less than 0".into());
    }
    Ok(whole as i32)
}

/// Converts the value of `createIndexes` on `_ts`: as above, but -1 means that only a document's
/// own `ttl` counts, and 0 is refused because every document would expire when it is written.
/// Expiry contract, section 8.
///
/// # Errors
/// 67 CannotCreateIndex.
pub(crate) fn last_modified_for_create(value: RawValue<'_>) -> Result<i32> {
    if as_f64(value).is_some_and(|number| number.trunc() == -1.0) {
        return Ok(-1);
    }
    match expire_after_for_create(value) {
        Ok(0) => Err(Error::new(ErrorCode::CannotCreateIndex, LAST_MODIFIED_BOUNDS)),
        Err(_) if as_f64(value).is_some_and(|number| !number.is_nan()) => {
            Err(Error::new(ErrorCode::CannotCreateIndex, LAST_MODIFIED_BOUNDS))
        }
        other => other,
    }
}

const LAST_MODIFIED_BOUNDS: &str =
    "'expireAfterSeconds' of a '_ts' policy must be -1 or between 1 and 2147483647";

/// Converts the value of `collMod.index` for a last-modified policy.
///
/// # Errors
/// 72 InvalidOptions.
pub(crate) fn last_modified_for_collmod(seconds: i32) -> Result<ExpireAfter> {
    match seconds {
        0 => Err(Error::new(ErrorCode::InvalidOptions, LAST_MODIFIED_BOUNDS)),
        seconds => Ok(ExpireAfter::of_last_modified(seconds)),
    }
}

/// Converts the value of `collMod.index`: clamped above, doubles cut off, decimals rounded half to
/// even.
///
/// -1 passes; the caller, which has the index, checks whether it is allowed.
///
/// # Errors
/// 14 TypeMismatch, 72 InvalidOptions.
pub fn expire_after_for_collmod(value: RawValue<'_>, rules: TtlIndexRules) -> Result<i32> {
    let Some(number) = as_f64(value) else {
        let path = "collMod.index.expireAfterSeconds";
        return Err(wrong_type(path, value, "[long, int, decimal, double]"));
    };
    let whole = match value {
        RawValue::Decimal128(_) => number.round_ties_even(),
        _ => number.trunc(),
    };
    if whole.is_nan() {
        if rules == TtlIndexRules::Mongod8 {
            return Ok(0);
        }
        // NaN is usually an arithmetic error of the client, and must not empty a collection.
        return Err(Error::new(ErrorCode::InvalidOptions, "'expireAfterSeconds' must not be NaN"));
    }
    if whole < 0.0 && whole != -1.0 {
        return Err(negative());
    }
    Ok(whole.min(f64::from(i32::MAX)) as i32)
}

/// The error for a number below 0.
pub(crate) fn negative() -> Error {
    Error::new(
        ErrorCode::InvalidOptions,
        "TTL index 'expireAfterSeconds' option cannot be less than 0",
    )
}

/// Interprets a value of the catalog.
pub(crate) fn listed_expire_after(value: RawValue<'_>, last_modified: bool) -> ExpireAfter {
    match as_f64(value) {
        Some(-1.0) if last_modified => ExpireAfter::OwnOnly,
        Some(0.0) if last_modified => ExpireAfter::Invalid,
        Some(number) if (0.0..=f64::from(i32::MAX)).contains(&number) => {
            ExpireAfter::Seconds(number as i32)
        }
        _ => ExpireAfter::Invalid,
    }
}

/// The cutoff in milliseconds since 1970: documents dated at or before it are due.
pub fn cutoff_ms(now_ms: i64, expire_after_secs: i64) -> i64 {
    now_ms.saturating_sub(expire_after_secs.saturating_mul(1000))
}

/// A time to live in replies: an int where it fits.
pub(crate) fn seconds_value(seconds: i64) -> RawValue<'static> {
    i32::try_from(seconds).map_or(RawValue::Int64(seconds), RawValue::Int32)
}

/// Converts `expireAfterSeconds` of a collection, for `create` and the top level of `collMod`.
/// Doubles are cut off, decimals rounded half to even. Sections 1.4 and 3.4.
///
/// # Errors
/// 72 InvalidOptions. The caller has checked that it is a number.
pub fn expire_after_for_collection(
    value: RawValue<'_>,
    now_ms: i64,
    rules: TtlIndexRules,
) -> Result<i64> {
    let invalid = |text: String| Err(Error::new(ErrorCode::InvalidOptions, text));
    let seconds = match value {
        RawValue::Int32(number) => i64::from(number),
        RawValue::Int64(number) => number,
        other => {
            let number = as_f64(other).unwrap_or(f64::NAN);
            if number.is_nan() && rules == TtlIndexRules::Manual {
                return invalid("'expireAfterSeconds' must not be NaN".into());
            }
            // NaN becomes 0, and a number outside the range the nearest one in it.
            match other {
                RawValue::Decimal128(_) => number.round_ties_even() as i64,
                _ => number as i64,
            }
        }
    };
    if seconds < 0 {
        return invalid("TTL index 'expireAfterSeconds' option cannot be less than 0".into());
    }
    if seconds > i64::MAX / 1000 {
        return invalid(format!(
            "TTL index 'expireAfterSeconds' option cannot overflow int64_t when cast as milliseconds, found {seconds}"
        ));
    }
    let epoch = now_ms.div_euclid(1000);
    if seconds > epoch {
        return invalid(format!(
            "TTL index 'expireAfterSeconds' option cannot exceed time since last epoch ({epoch}) found {seconds}"
        ));
    }
    Ok(seconds)
}

/// The number in a value; `None` for other types.
pub(crate) fn as_f64(value: RawValue<'_>) -> Option<f64> {
    Number::from_value(value).map(Number::to_f64)
}
