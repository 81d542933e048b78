//! `$let`.

use mayfly_base::{Error, ErrorCode, Result};
use mayfly_value::RawValue;

use super::{OpRow, own};
use crate::Expression;
use crate::parse::Parser;
use crate::scope::check_variable_name;

pub(super) const ROWS: &[OpRow] =
    &[own("$let", "2.6", "Binds variables for one expression.", parse)];

fn parse(parser: &mut Parser<'_>, _: &'static OpRow, operand: RawValue<'_>) -> Result<Expression> {
    let RawValue::Document(named) = operand else {
        let text = "$let only supports an object as its argument";
        return Err(Error::new(ErrorCode(16874), text));
    };
    let (mut vars, mut body) = (None, None);
    for element in named {
        match element.name() {
            "vars" => vars = Some(element.value()),
            "in" => body = Some(element.value()),
            other => {
                let text = format!("Unrecognized parameter to $let: {other}");
                return Err(Error::new(ErrorCode(16875), text));
            }
        }
    }
    let missing = |code: i32, name: &str| {
        Error::new(ErrorCode(code), format!("Missing '{name}' parameter to $let"))
    };
    let vars = vars.ok_or_else(|| missing(16876, "vars"))?;
    let body = body.ok_or_else(|| missing(16877, "in"))?;
    // The positions of an array are no names of variables.
    let (RawValue::Document(vars) | RawValue::Array(vars)) = vars else {
        return Err(Error::new(ErrorCode(10065), "invalid parameter: expected an object (vars)"));
    };
    let (mut names, mut variables) = (Vec::new(), Vec::new());
    for element in vars {
        check_variable_name(element.name())?;
        names.push(element.name().to_owned());
        variables.push(parser.parse(element.value())?);
    }
    let (first, body) = parser.with_locals(names, body)?;
    Ok(Expression::Let { first, variables, body: Box::new(body) })
}
