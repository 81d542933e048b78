//! `$literal` and its old name `$const`; `$rand`.

use mayfly_base::{Error, ErrorCode, Result};
use mayfly_value::RawValue;

use super::{OpRow, check_text, own};
use crate::parse::Parser;
use crate::{Expression, Frame, Value, random_unit};

pub(super) const ROWS: &[OpRow] = &[
    own("$literal", "2.6", "The value without interpretation of dollar signs.", parse_literal),
    own("$const", "2.2", "Another name of $literal.", parse_literal),
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
