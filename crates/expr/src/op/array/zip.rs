//! `$zip`: transposes arrays, to an array of their first items, of their second items, and so on.

use mayfly_base::Result;
use mayfly_value::shell::ShellValue;
use mayfly_value::{DocBuilder, RawValue, check_size};

use super::super::operand::{array, fault, parts};
use super::super::{OpRow, Prepared, own};
use crate::parse::Parser;
use crate::{Expression, Frame, Value};

pub(in crate::op) const ROWS: &[OpRow] =
    &[own("$zip", "3.4", "The transposition of arrays.", parse)];

const LONGEST: &str = "longest";
const SHORTEST: &str = "shortest";

/// The arguments are the inputs, followed by as many defaults, or none.
fn parse(
    parser: &mut Parser<'_>,
    row: &'static OpRow,
    operand: RawValue<'_>,
) -> Result<Expression> {
    let [inputs, longest, defaults] = parts(
        operand,
        ["inputs", "useLongestLength", "defaults"],
        |found| fault(34460, format!("$zip only supports an object as an argument, found {found}")),
        |name| fault(34464, format!("$zip found an unknown argument: {name}")),
    )?;
    let longest = match longest {
        None => false,
        Some(RawValue::Bool(longest)) => longest,
        Some(other) => {
            let found = other.type_name();
            return Err(fault(34463, format!("useLongestLength must be a bool, found {found}")));
        }
    };
    let mut arguments = match inputs {
        None => Vec::new(),
        Some(RawValue::Array(inputs)) => parser.list(inputs)?,
        Some(other) => {
            let found = other.type_name();
            return Err(fault(
                34461,
                format!("inputs must be an array of expressions, found {found}"),
            ));
        }
    };
    let defaults = match defaults {
        None => Vec::new(),
        Some(RawValue::Array(defaults)) => parser.list(defaults)?,
        Some(other) => {
            let found = other.type_name();
            let text = format!("defaults must be an array of expressions, found {found}");
            return Err(fault(34462, text));
        }
    };
    if arguments.is_empty() {
        return Err(fault(34465, "$zip requires at least one input array"));
    }
    if !defaults.is_empty() && !longest {
        return Err(fault(34466, "cannot specify defaults unless useLongestLength is true"));
    }
    if !defaults.is_empty() && defaults.len() != arguments.len() {
        return Err(fault(34467, "defaults and inputs must have the same length"));
    }
    if defaults.is_empty() {
        arguments.extend(std::iter::repeat_n(Expression::Absent, arguments.len()));
    } else {
        arguments.extend(defaults);
    }
    let which = if longest { LONGEST } else { SHORTEST };
    parser.ready(row, zip, Prepared::Which(which), arguments)
}

fn zip<'a>(
    prepared: &'a Prepared,
    arguments: &'a [Expression],
    frame: Frame<'a>,
) -> Result<Value<'a>> {
    let (inputs, defaults) = arguments.split_at(arguments.len() / 2);
    let evaluate = |part: &'a [Expression]| -> Result<Vec<Value<'a>>> {
        part.iter().map(|argument| argument.evaluate(frame)).collect()
    };
    let inputs = evaluate(inputs)?;
    let mut rows = Vec::with_capacity(inputs.len());
    for input in &inputs {
        match input.or_undefined() {
            RawValue::Array(items) => rows.push(items.iter().peekable()),
            RawValue::Null | RawValue::Undefined => return Ok(Value::NULL),
            _ => {
                let shown = ShellValue(input.or_undefined());
                let text = format!("$zip found a non-array expression in input: {shown}");
                return Err(fault(34468, text));
            }
        }
    }
    let defaults = evaluate(defaults)?;
    let longest = matches!(prepared, Prepared::Which(LONGEST));
    let mut out = DocBuilder::new_array();
    loop {
        let left = rows.iter_mut().filter_map(|row| row.peek().map(|_| ())).count();
        if left == 0 || (!longest && left < rows.len()) {
            break;
        }
        out.push_array();
        for (row, default) in rows.iter_mut().zip(&defaults) {
            let default = default.as_raw().unwrap_or(RawValue::Null);
            out.push(row.next().map_or(default, |item| item.value()));
        }
        out.end();
        check_size(out.len())?;
    }
    array(out)
}
