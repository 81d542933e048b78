//! `$function`: a script in the statement. It is compiled at its first call, as in the reference:
//! an error in it is reported only if there is a document. It is never evaluated at parse time,
//! even with constant arguments.

use std::sync::Arc;

use mayfly_base::{Error, ErrorCode, Result};
use mayfly_scripts::{Script, source_of};
use mayfly_value::RawValue;

use super::{OpRow, own};
use crate::parse::Parser;
use crate::{Expression, Frame, Value};

pub(super) const ROWS: &[OpRow] =
    &[own("$function", "4.4", "The result of a JavaScript function.", parse)];

fn parse(parser: &mut Parser<'_>, _: &'static OpRow, operand: RawValue<'_>) -> Result<Expression> {
    let fault = |code: i32, text: &str| Error::new(ErrorCode(code), text);
    if parser.in_validator() {
        return Err(fault(4_660_800, "$function cannot be used inside a validator."));
    }
    let RawValue::Document(named) = operand else {
        let text =
            format!("$function requires an object as an argument, found: {}", operand.type_name());
        return Err(fault(31260, &text));
    };
    let body =
        named.get("body").ok_or_else(|| fault(31261, "The body function must be specified."))?;
    let Expression::Constant(body) = parser.parse(body)? else {
        return Err(fault(31432, "The body function must be a constant expression"));
    };
    let source = source_of(body.as_raw())
        .ok_or_else(|| fault(31262, "The body function must evaluate to type string or code"))?;
    let args =
        named.get("args").ok_or_else(|| fault(31263, "The args field must be specified."))?;
    let arguments = parser.parse(args)?;
    match named.get("lang") {
        None => Err(fault(31418, "The lang field must be specified.")),
        Some(RawValue::String("js")) => {
            let script = Script::new(source, parser.scope().script_limits());
            Ok(Expression::Script(Arc::new(script), Box::new(arguments)))
        }
        Some(_) => Err(fault(31419, "Currently the only supported language specifier is 'js'.")),
    }
}

/// Calls a script with the items of an array.
pub(crate) fn call_script<'a>(
    script: &Script,
    arguments: &'a Expression,
    frame: Frame<'a>,
) -> Result<Value<'a>> {
    script.check_enabled()?;
    let arguments = arguments.evaluate(frame)?;
    match arguments.as_raw() {
        Some(RawValue::Array(items)) => script.call(items).map(Value::Owned),
        _ => Err(Error::new(ErrorCode(31266), "The args field must be of type array")),
    }
}
