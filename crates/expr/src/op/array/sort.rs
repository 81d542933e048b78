//! `$sortArray`: a stable sort of the items.

use mayfly_base::Result;
use mayfly_value::{DocBuilder, RawValue};

use super::super::operand::{array, fault, parts, required};
use super::super::{OpRow, Prepared, own};
use crate::order::Order;
use crate::parse::Parser;
use crate::{Expression, Frame, Value};

pub(in crate::op) const ROWS: &[OpRow] = &[own("$sortArray", "5.2", "The sorted items.", parse)];

fn parse(
    parser: &mut Parser<'_>,
    row: &'static OpRow,
    operand: RawValue<'_>,
) -> Result<Expression> {
    let [input, order] = parts(
        operand,
        ["input", "sortBy"],
        |found| {
            let text = format!("$sortArray requires an object as an argument, found: {found}");
            fault(2_942_500, text)
        },
        |name| fault(2_942_501, format!("$sortArray found an unknown argument: {name}")),
    )?;
    let input = required(parser, input, || {
        fault(2_942_502, "$sortArray requires 'input' to be specified")
    })?;
    let order =
        order.ok_or_else(|| fault(2_942_503, "$sortArray requires 'sortBy' to be specified"))?;
    parser.ready(row, sort, Prepared::Sort(Order::parse(order)?), vec![input])
}

fn sort<'a>(
    prepared: &'a Prepared,
    arguments: &'a [Expression],
    frame: Frame<'a>,
) -> Result<Value<'a>> {
    let value = arguments[0].evaluate(frame)?;
    if value.is_nullish() {
        return Ok(Value::NULL);
    }
    let RawValue::Array(items) = value.or_undefined() else {
        let found = value.type_name();
        let text =
            format!("The input argument to $sortArray must be an array, but was of type: {found}");
        return Err(fault(2_942_504, text));
    };
    let Prepared::Sort(order) = prepared else { return Ok(Value::NULL) };
    let mut items: Vec<RawValue<'_>> = items.iter().map(|item| item.value()).collect();
    items.sort_by(|a, b| order.compare(*a, *b, frame.collation()));
    let mut out = DocBuilder::new_array();
    for item in items {
        out.push(item);
    }
    array(out)
}
