//! `$mod`, and `$regex` with `$options`.

use mayfly_base::{Error, ErrorCode, Result};
use mayfly_value::{Number, RawValue};

use super::Operand;
use crate::matcher::{Predicate, Regex};

pub(super) fn modulo(operand: &Operand<'_>) -> Result<Option<Predicate>> {
    let RawValue::Array(items) = operand.value else {
        return Err(Error::bad_value("malformed mod, needs to be an array"));
    };
    let mut items = items.iter().map(|item| item.value());
    let (Some(divisor), Some(remainder)) = (items.next(), items.next()) else {
        return Err(Error::bad_value("malformed mod, not enough elements"));
    };
    if items.next().is_some() {
        return Err(Error::bad_value("malformed mod, too many elements"));
    }
    let divisor = integer(divisor, "malformed mod, divisor value is invalid")?;
    let remainder = integer(remainder, "malformed mod, remainder value is invalid")?;
    if divisor == 0 {
        return Err(Error::bad_value("divisor cannot be 0"));
    }
    Ok(Some(Predicate::Mod { divisor, remainder }))
}

fn integer(value: RawValue<'_>, fault: &str) -> Result<i64> {
    let number = Number::from_value(value).and_then(Number::to_i64_truncated);
    number.ok_or_else(|| Error::bad_value(fault))
}

pub(super) fn regex(operand: &Operand<'_>) -> Result<Option<Predicate>> {
    let given = match operand.siblings.get("$options") {
        None => "",
        Some(RawValue::String(options)) => options,
        Some(_) => return Err(Error::bad_value("$options has to be a string")),
    };
    let (pattern, options) = match operand.value {
        RawValue::String(pattern) => (pattern, given),
        RawValue::Regex { pattern, options: "" } => (pattern, given),
        RawValue::Regex { pattern, options } if given.is_empty() => (pattern, options),
        RawValue::Regex { .. } => {
            // The second of both has the error.
            let first = operand.siblings.iter().next();
            let after = first.is_some_and(|first| first.name() == "$options");
            let text = "options set in both $regex and $options";
            return Err(Error::new(ErrorCode(if after { 51074 } else { 51075 }), text));
        }
        _ => return Err(Error::bad_value("$regex has to be a string")),
    };
    Ok(Some(Predicate::Regex(Regex::new(pattern, options)?)))
}

/// Parsed together with `$regex`; without it, it is an error.
pub(super) fn options(operand: &Operand<'_>) -> Result<Option<Predicate>> {
    match operand.siblings.get_element("$regex") {
        Some(_) => Ok(None),
        None => Err(Error::bad_value("$options needs a $regex")),
    }
}
