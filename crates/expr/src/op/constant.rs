//! `$literal` and its old name `$const`; `$rand`; `$currentDate`.

use mayfly_base::{Error, ErrorCode, Result};
use mayfly_value::RawValue;
use mayfly_work::current::current;

use super::{OpRow, check_text, own};
use crate::parse::Parser;
use crate::{Expression, Frame, Value, random_unit};

pub(super) const ROWS: &[OpRow] = &[
    own("$literal", "2.6", "The value without interpretation of dollar signs.", parse_literal),
    own("$const", "2.2", "Another name of $literal.", parse_literal),
    own("$currentDate", "8.2", "The date of the evaluation.", parse_current_date),
    own("$rand", "4.4.2", "A random number from 0 to 1.", parse_rand),
];

fn parse_literal(
    _: &mut Parser<'_>,
    _: &'static OpRow,
    operand: RawValue<'_>,
) -> Result<Expression> {
    if let RawValue::String(text) = operand {
        check_text(text.len())?;
    }
    Ok(Expression::constant(operand))
}

fn parse_rand(
    _: &mut Parser<'_>,
    row: &'static OpRow,
    operand: RawValue<'_>,
) -> Result<Expression> {
    match operand {
        RawValue::Document(empty) | RawValue::Array(empty) if empty.is_empty() => {
            // Not folded: each document gets its own number.
            Ok(Expression::Call { row, run: rand, arguments: Vec::new() })
        }
        RawValue::Document(_) | RawValue::Array(_) => {
            Err(Error::new(ErrorCode(3_040_501), "$rand does not currently accept arguments"))
        }
        _ => Err(Error::new(ErrorCode(10065), "invalid parameter: expected an object ($rand)")),
    }
}

fn rand<'a>(_: &'a [Expression], _: Frame<'a>) -> Result<Value<'a>> {
    Ok(Value::Borrowed(RawValue::Double(random_unit())))
}

fn parse_current_date(
    _: &mut Parser<'_>,
    row: &'static OpRow,
    operand: RawValue<'_>,
) -> Result<Expression> {
    match operand {
        // Not folded: the date is that of each evaluation.
        RawValue::Document(empty) if empty.is_empty() => {
            Ok(Expression::Call { row, run: current_date, arguments: Vec::new() })
        }
        _ => Err(Error::failed_to_parse("$currentDate requires an empty object")),
    }
}

fn current_date<'a>(_: &'a [Expression], _: Frame<'a>) -> Result<Value<'a>> {
    let op = current().op.ok_or_else(|| Error::internal("$currentDate outside of an operation"))?;
    Ok(Value::Borrowed(RawValue::Date(op.now_ms())))
}
