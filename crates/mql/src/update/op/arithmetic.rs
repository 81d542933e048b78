//! `$inc`, `$mul`, `$min`, `$max`, `$bit`.

use mayfly_value::arguments::error::mistyped;
use std::cmp::Ordering;
use std::sync::Arc;

use mayfly_base::{Error, Result};
use mayfly_value::decimal::Decimal;
use mayfly_value::{Collation, Number, RawValue, ValueBuf, compare_values_in};

use super::{Change, Modifier, Operand, Target};

#[derive(Clone, Copy, Debug, PartialEq)]
enum Operation {
    Inc,
    Mul,
}

impl Operation {
    fn name(self) -> &'static str {
        match self {
            Operation::Inc => "$inc",
            Operation::Mul => "$mul",
        }
    }
}

#[derive(Debug)]
struct Arithmetic {
    operation: Operation,
    by: Number,
}

impl Modifier for Arithmetic {
    fn apply(&self, current: Option<RawValue<'_>>, target: &Target<'_>) -> Result<Change> {
        let Some(value) = current else {
            let fresh = match self.operation {
                Operation::Inc => self.by,
                // Zero of the factor's type.
                Operation::Mul => match self.by {
                    Number::Int32(_) => Number::Int32(0),
                    Number::Int64(_) => Number::Int64(0),
                    Number::Double(_) => Number::Double(0.0),
                    Number::Decimal(_) => Number::Decimal(Decimal::from_i64(0)),
                },
            };
            return Ok(Change::Set(fresh.to_value().to_owned()));
        };
        let name = self.operation.name();
        let number = Number::from_value(value).ok_or_else(|| {
            mistyped(format!(
                "Cannot apply {name} to a value of non-numeric type. {} has the field '{}' of non-numeric \
                 type {}",
                target.document_name(),
                target.field_name(),
                value.type_name()
            ))
        })?;
        let result = match self.operation {
            Operation::Inc => number.checked_add(self.by),
            Operation::Mul => number.checked_mul(self.by),
        };
        let result = result.ok_or_else(|| {
            let kind = if matches!(number, Number::Int32(_)) { "NumberInt" } else { "NumberLong" };
            Error::bad_value(format!(
                "Failed to apply {name} operations to current value (({kind}){}) for document {}",
                mayfly_value::shell::ShellValue(value),
                target.document_name()
            ))
        })?;
        // As in the reference an equal number is no change, so a zero keeps its sign, and a decimal
        // its digits.
        let equal = !number.is_nan() && result.compare(number).is_eq();
        let result = result.to_value();
        if equal && result.type_byte() == value.type_byte() {
            return Ok(Change::Keep);
        }
        Ok(Change::Set(result.to_owned()))
    }
}

fn arithmetic(
    operation: Operation,
    verb: &str,
    operand: &Operand<'_>,
) -> Result<Box<dyn Modifier>> {
    let by = Number::from_value(operand.value).ok_or_else(|| {
        let shown = operand.shown();
        mistyped(format!("Cannot {verb} with non-numeric argument: {{{shown}}}"))
    })?;
    Ok(Box::new(Arithmetic { operation, by }))
}

pub(super) fn inc(operand: &Operand<'_>) -> Result<Box<dyn Modifier>> {
    arithmetic(Operation::Inc, "increment", operand)
}

pub(super) fn mul(operand: &Operand<'_>) -> Result<Box<dyn Modifier>> {
    arithmetic(Operation::Mul, "multiply", operand)
}

/// Sets the operand if its comparison with the current value has this result.
#[derive(Debug)]
struct Extreme {
    value: ValueBuf,
    wins: Ordering,
    collation: Option<Arc<Collation>>,
}

impl Modifier for Extreme {
    fn apply(&self, current: Option<RawValue<'_>>, _target: &Target<'_>) -> Result<Change> {
        let collation = self.collation.as_deref();
        let order = |current| compare_values_in(self.value.as_raw(), current, collation);
        let wins = current.is_none_or(|current| order(current) == self.wins);
        Ok(if wins { Change::Set(self.value.clone()) } else { Change::Keep })
    }
}

fn extreme(operand: &Operand<'_>, wins: Ordering) -> Box<dyn Modifier> {
    let collation = operand.context.collation.clone();
    Box::new(Extreme { value: operand.value.to_owned(), wins, collation })
}

pub(super) fn min(operand: &Operand<'_>) -> Result<Box<dyn Modifier>> {
    Ok(extreme(operand, Ordering::Less))
}

pub(super) fn max(operand: &Operand<'_>) -> Result<Box<dyn Modifier>> {
    Ok(extreme(operand, Ordering::Greater))
}

/// The function of one operation of `$bit`.
type BitOperation = fn(i64, i64) -> i64;

#[derive(Debug)]
struct Bits(Vec<(BitOperation, Number)>);

impl Modifier for Bits {
    fn apply(&self, current: Option<RawValue<'_>>, target: &Target<'_>) -> Result<Change> {
        let value = current.unwrap_or(RawValue::Int32(0));
        let mut number = match value {
            RawValue::Int32(int) => Number::Int32(int),
            RawValue::Int64(long) => Number::Int64(long),
            other => {
                return Err(Error::bad_value(format!(
                    "Cannot apply $bit to a value of non-integral type.{} has the field {} of \
                     non-integer type {}",
                    target.document_name(),
                    target.field_name(),
                    other.type_name()
                )));
            }
        };
        for (operation, operand) in &self.0 {
            number = match (number, *operand) {
                (Number::Int32(a), Number::Int32(b)) => {
                    Number::Int32(operation(i64::from(a), i64::from(b)) as i32)
                }
                (a, b) => {
                    let long = |number: Number| number.to_i64_exact().unwrap_or(0);
                    Number::Int64(operation(long(a), long(b)))
                }
            };
        }
        Ok(Change::Set(number.to_value().to_owned()))
    }
}

pub(super) fn bit(operand: &Operand<'_>) -> Result<Box<dyn Modifier>> {
    let RawValue::Document(spec) = operand.value else {
        return Err(Error::bad_value(format!(
            "The $bit modifier is not compatible with a {}. You must pass in an embedded document: \
             {{$bit: {{field: {{and/or/xor: #}}}}",
            operand.value.type_name()
        )));
    };
    let mut operations: Vec<(BitOperation, Number)> = Vec::new();
    for element in spec.iter() {
        let operation: BitOperation = match element.name() {
            "and" => |a, b| a & b,
            "or" => |a, b| a | b,
            "xor" => |a, b| a ^ b,
            other => {
                return Err(Error::bad_value(format!(
                    "The $bit modifier only supports 'and', 'or', and 'xor', not '{other}' which is an \
                     unknown operator: {{{}}}",
                    operand.shown()
                )));
            }
        };
        match Number::from_value(element.value()) {
            Some(number @ (Number::Int32(_) | Number::Int64(_))) => {
                operations.push((operation, number));
            }
            _ => {
                return Err(Error::bad_value(format!(
                    "The $bit modifier field must be an Integer(32/64 bit); a '{}' is not supported here: \
                     {{{}}}",
                    element.value().type_name(),
                    operand.shown()
                )));
            }
        }
    }
    if operations.is_empty() {
        return Err(Error::bad_value(format!(
            "You must pass in at least one bitwise operation. The format is: {{$bit: {{field: \
             {{and/or/xor: #}}}}, not {{{}}}",
            operand.shown()
        )));
    }
    Ok(Box::new(Bits(operations)))
}
