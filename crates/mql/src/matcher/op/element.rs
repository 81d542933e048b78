//! `$exists` and `$type`.

use mayfly_base::{Error, Result};
use mayfly_value::arguments::error::mistyped;
use mayfly_value::{Number, RawValue, ty, type_name};

use super::Operand;
use crate::matcher::{Predicate, TypeSet};

pub(super) fn exists(operand: &Operand<'_>) -> Result<Option<Predicate>> {
    let exists = match operand.value {
        RawValue::Bool(exists) => exists,
        RawValue::Null | RawValue::Undefined => false,
        value => Number::from_value(value).is_none_or(|number| number.to_f64() != 0.0),
    };
    Ok(Some(if exists { Predicate::Exists } else { Predicate::Exists.negated() }))
}

/// The type bytes that `$type` accepts.
const TYPES: &[u8] = &[
    ty::DOUBLE,
    ty::STRING,
    ty::DOCUMENT,
    ty::ARRAY,
    ty::BINARY,
    ty::UNDEFINED,
    ty::OBJECT_ID,
    ty::BOOL,
    ty::DATE,
    ty::NULL,
    ty::REGEX,
    ty::DB_POINTER,
    ty::CODE,
    ty::SYMBOL,
    ty::CODE_W_SCOPE,
    ty::INT32,
    ty::TIMESTAMP,
    ty::INT64,
    ty::DECIMAL,
    ty::MIN_KEY,
    ty::MAX_KEY,
];

pub(super) fn types(operand: &Operand<'_>) -> Result<Option<Predicate>> {
    let mut set = TypeSet::default();
    match operand.value {
        RawValue::Array(items) => {
            items.iter().try_for_each(|item| add_type(&mut set, item.value()))?;
        }
        value => add_type(&mut set, value)?,
    }
    if set.is_empty() {
        let text = format!("{} must match at least one type", operand.path);
        return Err(Error::failed_to_parse(text));
    }
    Ok(Some(Predicate::Type(set, operand.written())))
}

fn add_type(set: &mut TypeSet, value: RawValue<'_>) -> Result<()> {
    if let RawValue::String(alias) = value {
        return type_of_alias(set, alias);
    }
    let Some(number) = Number::from_value(value) else {
        return Err(mistyped("type must be represented as a number or a string"));
    };
    let code = number.to_i64_exact();
    let byte = match code {
        Some(-1) => Some(ty::MIN_KEY),
        Some(code) => u8::try_from(code).ok().filter(|byte| *byte != ty::MIN_KEY),
        None => None,
    };
    let known = byte.filter(|byte| TYPES.contains(byte)).ok_or_else(|| {
        Error::bad_value(format!("Invalid numerical type code: {}", number.to_f64()))
    })?;
    set.insert(known);
    Ok(())
}

/// Adds the type with this name; `number` stands for all numeric types.
///
/// # Errors
/// 2 BadValue for an unknown name.
pub(in crate::matcher) fn type_of_alias(set: &mut TypeSet, alias: &str) -> Result<()> {
    if alias == "number" {
        set.insert_numbers();
        return Ok(());
    }
    let known = TYPES.iter().find(|byte| type_name(**byte) == alias);
    set.insert(
        *known.ok_or_else(|| Error::bad_value(format!("Unknown type name alias: {alias}")))?,
    );
    Ok(())
}
