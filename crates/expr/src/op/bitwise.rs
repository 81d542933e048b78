//! `$bitAnd`, `$bitOr`, `$bitXor`, `$bitNot`: bitwise operations on ints and longs; a long operand
//! makes the result a long.

use mayfly_base::Result;
use mayfly_value::RawValue;
use mayfly_value::arguments::error::mistyped;

use super::operand::{fault, int};
use super::{ANY, OpRow, list};
use crate::{Expression, Frame, Value};

pub(super) const ROWS: &[OpRow] = &[
    list("$bitAnd", "6.3", "The bitwise and.", ANY, |args, frame| {
        combine("$bitAnd", -1, |a, b| a & b, args, frame)
    }),
    list("$bitOr", "6.3", "The bitwise or.", ANY, |args, frame| {
        combine("$bitOr", 0, |a, b| a | b, args, frame)
    }),
    list("$bitXor", "6.3", "The bitwise exclusive or.", ANY, |args, frame| {
        combine("$bitXor", 0, |a, b| a ^ b, args, frame)
    }),
    list("$bitNot", "6.3", "The bitwise complement.", (1, 1), |args, frame| {
        let value = args[0].evaluate(frame)?;
        match value.or_undefined() {
            RawValue::Int32(value) => Ok(int(!value)),
            RawValue::Int64(value) => Ok(Value::Borrowed(RawValue::Int64(!value))),
            RawValue::Null | RawValue::Undefined => Ok(Value::NULL),
            other if other.is_number() => Err(mistyped(format!(
                "$bitNot only supports int and long, not: {}.",
                value.type_name()
            ))),
            _ => Err(fault(
                28765,
                format!("$bitNot only supports numeric types, not {}", value.type_name()),
            )),
        }
    }),
];

/// Sign-extended integers give the same low bits regardless of their width.
fn combine<'a>(
    name: &str,
    start: i64,
    operation: fn(i64, i64) -> i64,
    arguments: &'a [Expression],
    frame: Frame<'a>,
) -> Result<Value<'a>> {
    let (mut bits, mut long) = (start, false);
    for argument in arguments {
        let value = argument.evaluate(frame)?;
        bits = match value.or_undefined() {
            RawValue::Int32(value) => operation(bits, i64::from(value)),
            RawValue::Int64(value) => {
                long = true;
                operation(bits, value)
            }
            RawValue::Null | RawValue::Undefined => return Ok(Value::NULL),
            _ => {
                return Err(mistyped(format!("{name} only supports int and long operands.")));
            }
        };
    }
    Ok(if long { Value::Borrowed(RawValue::Int64(bits)) } else { int(bits as i32) })
}
