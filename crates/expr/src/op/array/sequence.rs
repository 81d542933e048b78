//! `$concatArrays`, `$reverseArray`, `$range`, `$indexOfArray`.

use mayfly_base::{Error, ErrorCode, Result, limits};
use mayfly_value::check_size;
use mayfly_value::shell::ShellValue;
use mayfly_value::{DocBuilder, RawDoc, RawValue, compare_values_in};
use mayfly_work::current::spend;

use super::super::operand::{array, count, fault, int, small_integer};
use super::super::{ANY, OpRow, list};
use crate::{Expression, Frame, Value};

pub(in crate::op) const ROWS: &[OpRow] = &[
    list("$concatArrays", "3.2", "The concatenation of arrays.", ANY, concat),
    list("$reverseArray", "3.4", "The items from last to first.", (1, 1), reverse),
    list("$range", "3.4", "Integers from start to end.", (2, 3), range),
    list("$indexOfArray", "3.4", "The first index of a value.", (2, 4), index_of),
];

fn concat<'a>(arguments: &'a [Expression], frame: Frame<'a>) -> Result<Value<'a>> {
    let mut out = DocBuilder::new_array();
    if concat_into(&mut out, arguments, frame)? { array(out) } else { Ok(Value::NULL) }
}

/// Appends the items of the arrays; returns false when one of them is null or missing.
pub(in crate::op) fn concat_into(
    out: &mut DocBuilder,
    arguments: &[Expression],
    frame: Frame<'_>,
) -> Result<bool> {
    for argument in arguments {
        let value = argument.evaluate(frame)?;
        match value.or_undefined() {
            RawValue::Array(items) => push_items(out, items)?,
            RawValue::Null | RawValue::Undefined => return Ok(false),
            _ => {
                let found = value.type_name();
                return Err(fault(
                    28664,
                    format!("$concatArrays only supports arrays, not {found}"),
                ));
            }
        }
    }
    Ok(true)
}

/// Appends the items of an array.
pub(in crate::op) fn push_items(out: &mut DocBuilder, items: RawDoc<'_>) -> Result<()> {
    spend(items.as_bytes().len() >> 10)?;
    for item in items {
        out.push(item.value());
        check_size(out.len())?;
    }
    Ok(())
}

fn reverse<'a>(arguments: &'a [Expression], frame: Frame<'a>) -> Result<Value<'a>> {
    let value = arguments[0].evaluate(frame)?;
    if value.is_nullish() {
        return Ok(Value::NULL);
    }
    let RawValue::Array(items) = value.or_undefined() else {
        let found = value.type_name();
        let text =
            format!("The argument to $reverseArray must be an array, but was of type: {found}");
        return Err(fault(34435, text));
    };
    let items: Vec<_> = items.iter().collect();
    let mut out = DocBuilder::new_array();
    for item in items.iter().rev() {
        out.push(item.value());
    }
    array(out)
}

fn range<'a>(arguments: &'a [Expression], frame: Frame<'a>) -> Result<Value<'a>> {
    let bound = |argument: &'a Expression, name: &str, code: i32| -> Result<i64> {
        let value = argument.evaluate(frame)?;
        let gap = if name == "step" { "" } else { " " };
        if !value.or_undefined().is_number() {
            let kind = value.type_name();
            return Err(fault(
                code,
                format!("$range requires a numeric {name} value, found value of type:{gap}{kind}"),
            ));
        }
        small_integer(value.or_undefined()).map(i64::from).ok_or_else(|| {
            let article = if name == "ending" { "an" } else { "a" };
            let shown = ShellValue(value.or_undefined());
            fault(
                code + 1,
                format!(
                    "$range requires {article} {name} value that can be represented as a 32-bit integer, found value: {shown}"
                ),
            )
        })
    };
    let start = bound(&arguments[0], "starting", 34443)?;
    let end = bound(&arguments[1], "ending", 34445)?;
    let step = match arguments.get(2) {
        Some(step) => bound(step, "step", 34447)?,
        None => 1,
    };
    if step == 0 {
        return Err(fault(34449, "$range requires a non-zero step value"));
    }
    let steps = (end - start) / step;
    check_range_memory(if steps < 0 { 0 } else { steps + 1 })?;
    let mut out = DocBuilder::new_array();
    let mut next = start;
    while (step > 0 && next < end) || (step < 0 && next > end) {
        // Both bounds fit into 32 bits, and so do all values between them.
        out.push(RawValue::Int32(next as i32));
        next += step;
        if out.len() > limits::MAX_WIRE_DOCUMENT_BYTES {
            break;
        }
    }
    array(out)
}

/// Applies the memory limit of the reference, computed by its item size. Here the size limit of
/// documents is reached earlier.
fn check_range_memory(items: i64) -> Result<()> {
    let needed = 24 + 16 * items;
    if needed < limits::MAX_BLOCKING_MEMORY_BYTES as i64 {
        return Ok(());
    }
    let text = format!(
        "$range would use too much memory ({needed} bytes) and cannot spill to disk. Memory limit: {} bytes",
        limits::MAX_BLOCKING_MEMORY_BYTES
    );
    Err(Error::new(ErrorCode(146), text))
}

/// Evaluates a position argument of a search operator. The codes are those for a value that is no
/// 32-bit integer, and for a negative one.
pub(in crate::op) fn position<'a>(
    name: &str,
    which: &str,
    codes: (i32, i32),
    argument: &'a Expression,
    frame: Frame<'a>,
) -> Result<usize> {
    let value = argument.evaluate(frame)?;
    let Some(at) = small_integer(value.or_undefined()) else {
        let (kind, shown) = (value.type_name(), ShellValue(value.or_undefined()));
        let text = format!(
            "{name}requires an integral {which}, found a value of type: {kind}, with value: {shown}"
        );
        return Err(fault(codes.0, text));
    };
    usize::try_from(at)
        .map_err(|_| fault(codes.1, format!("{name} requires a nonnegative {which}, found: {at}")))
}

fn index_of<'a>(arguments: &'a [Expression], frame: Frame<'a>) -> Result<Value<'a>> {
    let array = arguments[0].evaluate(frame)?;
    if array.is_nullish() {
        return Ok(Value::NULL);
    }
    let RawValue::Array(items) = array.or_undefined() else {
        let kind = array.type_name();
        let text = format!("$indexOfArray requires an array as a first argument, found: {kind}");
        return Err(fault(40090, text));
    };
    let needle = arguments[1].evaluate(frame)?;
    let at = |nth: usize, which: &str| {
        let codes = (9_711_600, 9_711_601);
        arguments.get(nth).map(|argument| position("$indexOfArray", which, codes, argument, frame))
    };
    let start = at(2, "starting index").transpose()?.unwrap_or(0);
    let end = at(3, "ending index").transpose()?.unwrap_or(usize::MAX);
    let found =
        items.iter().enumerate().take_while(|(at, _)| *at < end).skip(start).find(|(_, item)| {
            compare_values_in(item.value(), needle.or_undefined(), frame.collation()).is_eq()
        });
    Ok(found.map_or(int(-1), |(at, _)| count(at)))
}
