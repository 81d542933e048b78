//! `$and`, `$or`, `$not`.

use mayfly_base::Result;
use mayfly_value::RawValue;

use super::{ANY, OpRow, Run, list, own};
use crate::parse::Parser;
use crate::{Expression, Value};

pub(super) const ROWS: &[OpRow] = &[
    list("$and", "2.2", "Whether all are true.", ANY, |args, frame| {
        for argument in args {
            if !argument.evaluate(frame)?.is_true() {
                return Ok(false.into());
            }
        }
        Ok(true.into())
    }),
    own("$or", "2.2", "Whether any is true.", parse_or),
    list("$not", "2.2", "The logical negation.", (1, 1), |args, frame| {
        Ok((!args[0].evaluate(frame)?.is_true()).into())
    }),
];

/// Parses `$or`. With an operand that is always true it is true, even if the constant expression in
/// another operand fails.
fn parse_or(
    parser: &mut Parser<'_>,
    row: &'static OpRow,
    operand: RawValue<'_>,
) -> Result<Expression> {
    let run: Run = |args, frame| {
        for argument in args {
            if argument.evaluate(frame)?.is_true() {
                return Ok(true.into());
            }
        }
        Ok(false.into())
    };
    let (arguments, error) = parser.apart(|parser| parser.arguments(operand))?;
    let truth = |known: RawValue<'_>| Value::Borrowed(known).is_true();
    if arguments.iter().filter_map(Expression::as_constant).any(truth) {
        return Ok(Expression::constant(RawValue::Bool(true)));
    }
    parser.defer(error);
    parser.call(row, run, arguments)
}
