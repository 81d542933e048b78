//! `$concat`, `$toLower`, `$toUpper`.

use mayfly_base::{Error, ErrorCode, Result};
use mayfly_value::decimal::Decimal;
use mayfly_value::{Number, RawValue};

use super::{ANY, OpRow, list};
use crate::{Expression, Frame, Value, check_size};

pub(super) const ROWS: &[OpRow] = &[
    list("$concat", "2.4", "Texts joined.", ANY, concat),
    list("$toLower", "2.2", "ASCII letters in lower case.", (1, 1), |args, frame| {
        let text = text_of(&args[0], frame)?.to_ascii_lowercase();
        Ok(Value::Owned(RawValue::String(&text).to_owned()))
    }),
    list("$toUpper", "2.2", "ASCII letters in upper case.", (1, 1), |args, frame| {
        let text = text_of(&args[0], frame)?.to_ascii_uppercase();
        Ok(Value::Owned(RawValue::String(&text).to_owned()))
    }),
];

fn concat<'a>(arguments: &'a [Expression], frame: Frame<'a>) -> Result<Value<'a>> {
    let mut out = String::new();
    for argument in arguments {
        let value = argument.evaluate(frame)?;
        match value.or_undefined() {
            RawValue::String(text) => {
                out.push_str(text);
                check_size(out.len())?;
            }
            RawValue::Null | RawValue::Undefined => return Ok(Value::NULL),
            _ => {
                let text = format!("$concat only supports strings, not {}", value.type_name());
                return Err(Error::new(ErrorCode(16702), text));
            }
        }
    }
    Ok(Value::Owned(RawValue::String(&out).to_owned()))
}

/// A value as text, for the operators that take more than texts.
fn text_of<'a>(argument: &'a Expression, frame: Frame<'a>) -> Result<String> {
    let value = argument.evaluate(frame)?;
    match value.or_undefined() {
        RawValue::String(text) | RawValue::Symbol(text) => Ok(text.to_owned()),
        RawValue::Null | RawValue::Undefined => Ok(String::new()),
        number @ (RawValue::Int32(_) | RawValue::Int64(_) | RawValue::Double(_)) => {
            Ok(match Number::from_value(number) {
                Some(Number::Double(double)) => double.to_string(),
                other => other.and_then(Number::to_i64_exact).unwrap_or_default().to_string(),
            })
        }
        RawValue::Decimal128(bytes) => Ok(Decimal::from_bytes(bytes).to_dec().to_string()),
        RawValue::Date(_) | RawValue::Timestamp { .. } => {
            Err(Error::not_implemented("a date as text"))
        }
        _ => {
            let name = value.type_name();
            Err(Error::new(
                ErrorCode(16007),
                format!("can't convert from BSON type {name} to String"),
            ))
        }
    }
}
