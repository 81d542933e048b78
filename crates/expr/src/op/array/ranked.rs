//! `$top`, `$topN`, `$bottom`, `$bottomN` over an array: its first or last items in a sort order.

use mayfly_base::Result;
use mayfly_value::{DocBuilder, RawValue};

use super::super::operand::{array, fault, long_integer, parts, required};
use super::super::{OpRow, Prepared, own};
use crate::order::Order;
use crate::parse::Parser;
use crate::{Expression, Frame, Value};

pub(in crate::op) const ROWS: &[OpRow] = &[
    own("$top", "8.1", "The first item in a sort order.", parse),
    own("$topN", "8.1", "The first n items in a sort order.", parse),
    own("$bottom", "8.1", "The last item in a sort order.", parse),
    own("$bottomN", "8.1", "The last n items in a sort order.", parse),
];

/// The codes of an operator's errors.
struct Codes {
    not_an_object: i32,
    unknown: i32,
    no_n: i32,
    no_input: i32,
    not_an_array: i32,
    not_a_number: i32,
    negative: i32,
}

fn codes(name: &str) -> Codes {
    let [not_an_object, unknown, no_n, no_input, not_an_array, not_a_number, negative] = match name
    {
        "$top" => [7_212_113, 7_212_114, 0, 7_212_115, 721_213, 0, 0],
        "$topN" => [721_218, 721_219, 7_212_110, 7_212_111, 721_211, 721_210, 721_212],
        "$bottom" => [7_212_122, 7_212_123, 0, 7_212_124, 721_217, 0, 0],
        _ => [7_212_117, 7_212_118, 7_212_119, 7_212_120, 721_215, 721_214, 721_216],
    };
    Codes { not_an_object, unknown, no_n, no_input, not_an_array, not_a_number, negative }
}

fn parse(
    parser: &mut Parser<'_>,
    row: &'static OpRow,
    operand: RawValue<'_>,
) -> Result<Expression> {
    let name = row.name;
    let codes = codes(name);
    let several = name.ends_with('N');
    let unknown =
        |part: &str| fault(codes.unknown, format!("{name} found an unknown argument: {part}"));
    let [n, input, order] = parts(
        operand,
        ["n", "input", "sortBy"],
        |found| {
            let text = format!("{name} requires an object as an argument, found: {found}");
            fault(codes.not_an_object, text)
        },
        unknown,
    )?;
    let missing =
        |code: i32, part: &str| fault(code, format!("{name} requires '{part}' to be specified"));
    let n = match n {
        Some(_) if !several => return Err(unknown("n")),
        None if !several => Expression::constant(RawValue::Int32(1)),
        n => required(parser, n, || missing(codes.no_n, "n"))?,
    };
    let input = required(parser, input, || missing(codes.no_input, "input"))?;
    let order = Order::parse(order.unwrap_or(RawValue::Int32(1)))?;
    parser.ready(row, run_of(name), Prepared::Sort(order), vec![n, input])
}

fn run_of(name: &str) -> crate::op::RunPrepared {
    match name {
        "$top" => |prepared, arguments, frame| run("$top", prepared, arguments, frame),
        "$topN" => |prepared, arguments, frame| run("$topN", prepared, arguments, frame),
        "$bottom" => |prepared, arguments, frame| run("$bottom", prepared, arguments, frame),
        _ => |prepared, arguments, frame| run("$bottomN", prepared, arguments, frame),
    }
}

fn run<'a>(
    name: &str,
    prepared: &'a Prepared,
    arguments: &'a [Expression],
    frame: Frame<'a>,
) -> Result<Value<'a>> {
    let Prepared::Sort(order) = prepared else { return Ok(Value::NULL) };
    let codes = codes(name);
    let (n, value) = (arguments[0].evaluate(frame)?, arguments[1].evaluate(frame)?);
    if n.is_nullish() || value.is_nullish() {
        return Ok(Value::NULL);
    }
    let n = long_integer(n.or_undefined()).ok_or_else(|| {
        let found = n.type_name();
        fault(codes.not_a_number, format!("{name} requires 'n' to be an integer, found: {found}"))
    })?;
    let RawValue::Array(items) = value.or_undefined() else {
        let found = value.type_name();
        let text = format!("{name} requires 'input' to be an array, found: {found}");
        return Err(fault(codes.not_an_array, text));
    };
    let n = usize::try_from(n).map_err(|_| {
        fault(codes.negative, format!("{name} requires 'n' to be non-negative, found: {n}"))
    })?;
    let items = sorted(items.iter().map(|item| item.value()).collect(), order, frame);
    let kept = match name {
        "$top" | "$topN" => &items[..n.min(items.len())],
        _ => &items[items.len().saturating_sub(n)..],
    };
    if !name.ends_with('N') {
        return Ok(kept.first().map_or(Value::NULL, |item| Value::from(Some(*item)).detached()));
    }
    let mut out = DocBuilder::new_array();
    for item in kept {
        out.push(*item);
    }
    array(out)
}

fn sorted<'v>(mut items: Vec<RawValue<'v>>, order: &Order, frame: Frame<'_>) -> Vec<RawValue<'v>> {
    items.sort_by(|a, b| order.compare(*a, *b, frame.collation()));
    items
}
