//! Arrays. Here: `$size`, `$in`, `$arrayElemAt`, `$first`, `$last`, `$isArray`, `$slice`.

pub(crate) mod ends;
pub(crate) mod positions;
pub(super) mod ranked;
pub(super) mod sequence;
pub(super) mod sort;
pub(super) mod zip;

use mayfly_base::Result;
use mayfly_value::shell::ShellValue;
use mayfly_value::{DocBuilder, Number, RawDoc, RawValue, compare_values_in};

use self::positions::{count, items_from};
use super::operand::fault;
use super::{OpRow, Prepared, list, searched};
use crate::{Expression, Frame, Value};

pub(super) const ROWS: &[OpRow] = &[
    list("$size", "2.6", "The number of an array's items.", (1, 1), size),
    searched("$in", "3.4", "Whether a value is in an array.", is_in, is_in_constant),
    list("$arrayElemAt", "3.2", "The item at a position.", (2, 2), item_at),
    list("$first", "4.4", "The first item.", (1, 1), |args, frame| end("$first", args, frame)),
    list("$last", "4.4", "The last item.", (1, 1), |args, frame| end("$last", args, frame)),
    list("$isArray", "3.2", "Whether the value is an array.", (1, 1), |args, frame| {
        Ok(args[0].evaluate(frame)?.or_undefined().as_array().is_some().into())
    }),
    list("$slice", "3.2", "A slice of an array.", (2, 3), slice),
];

fn size<'a>(arguments: &'a [Expression], frame: Frame<'a>) -> Result<Value<'a>> {
    let array = arguments[0].evaluate(frame)?;
    match array.or_undefined() {
        RawValue::Array(items) => {
            let count = count(&array, items, (&arguments[0], frame));
            let count = i32::try_from(count).unwrap_or(i32::MAX);
            Ok(Value::Borrowed(RawValue::Int32(count)))
        }
        _ => Err(fault(
            17124,
            format!(
                "The argument to $size must be an array, but was of type: {}",
                array.type_name()
            ),
        )),
    }
}

fn is_in<'a>(arguments: &'a [Expression], frame: Frame<'a>) -> Result<Value<'a>> {
    let needle = arguments[0].evaluate(frame)?;
    let array = arguments[1].evaluate(frame)?;
    let RawValue::Array(items) = array.or_undefined() else {
        let name = array.type_name();
        let text = format!("$in requires an array as a second argument, found: {name}");
        return Err(fault(40081, text));
    };
    let needle = needle.or_undefined();
    let collation = frame.collation();
    let equal = |item: RawValue<'_>| compare_values_in(item, needle, collation).is_eq();
    Ok(items.iter().any(|item| equal(item.value())).into())
}

fn is_in_constant<'a>(
    prepared: &'a Prepared,
    arguments: &'a [Expression],
    frame: Frame<'a>,
) -> Result<Value<'a>> {
    let Prepared::Items(items) = prepared else { return is_in(arguments, frame) };
    let value = arguments[0].evaluate(frame)?;
    Ok(items.contains(value.or_undefined()).into())
}

/// A number that fits into 32 bits; `None` for others.
fn small_integer(value: RawValue<'_>) -> Option<i64> {
    let number = Number::from_value(value)?.to_i64_exact()?;
    i32::try_from(number).ok().map(i64::from)
}

fn item_at<'a>(arguments: &'a [Expression], frame: Frame<'a>) -> Result<Value<'a>> {
    let array = arguments[0].evaluate(frame)?;
    let position = arguments[1].evaluate(frame)?;
    if array.is_nullish() || position.is_nullish() {
        return Ok(Value::NULL);
    }
    let RawValue::Array(items) = array.or_undefined() else {
        let name = array.type_name();
        let text = format!("$arrayElemAt's first argument must be an array, but is {name}");
        return Err(fault(28689, text));
    };
    let position = position.or_undefined();
    if !position.is_number() {
        let name = position.type_name();
        let text = format!("$arrayElemAt's second argument must be a numeric value, but is {name}");
        return Err(fault(28690, text));
    }
    let Some(at) = small_integer(position) else {
        let text = format!(
            "$arrayElemAt's second argument must be representable as a 32-bit integer: {}",
            ShellValue(position)
        );
        return Err(fault(28691, text));
    };
    let source = (&arguments[0], frame);
    let at = if at < 0 { at + count(&array, items, source) as i64 } else { at };
    let item = usize::try_from(at).ok().and_then(|at| items_from(&array, items, at, source).next());
    Ok(item.map_or(Value::Missing, |item| Value::Borrowed(item.value()).detached()))
}

fn end<'a>(name: &str, arguments: &'a [Expression], frame: Frame<'a>) -> Result<Value<'a>> {
    let array = arguments[0].evaluate(frame)?;
    if array.is_nullish() {
        return Ok(Value::NULL);
    }
    let RawValue::Array(items) = array.or_undefined() else {
        let found = array.type_name();
        return Err(fault(28689, format!("{name}'s argument must be an array, but is {found}")));
    };
    let item = if name == "$first" { items.iter().next() } else { items.iter().last() };
    Ok(item.map_or(Value::Missing, |item| Value::Borrowed(item.value()).detached()))
}

fn slice<'a>(arguments: &'a [Expression], frame: Frame<'a>) -> Result<Value<'a>> {
    let array = arguments[0].evaluate(frame)?;
    let second = arguments[1].evaluate(frame)?;
    if array.is_nullish() || second.is_nullish() {
        return Ok(Value::NULL);
    }
    let RawValue::Array(items) = array.or_undefined() else {
        let name = array.type_name();
        let text = format!("First argument to $slice must be an array, but is of type: {name}");
        return Err(fault(28724, text));
    };
    let second = slice_number(&second, "Second", 28725)?;
    let (skip, take) = match arguments.get(2) {
        None => (None, second),
        Some(third) => {
            let third = third.evaluate(frame)?;
            if third.is_nullish() {
                return Ok(Value::NULL);
            }
            let take = slice_number(&third, "Third", 28727)?;
            if take <= 0 {
                let text = format!("Third argument to $slice must be positive: {take}");
                return Err(fault(28729, text));
            }
            (Some(second), take)
        }
    };
    let (from, most) = slice_range(items, skip, take);
    let mut out = DocBuilder::new_array();
    let taken = items_from(&array, items, from, (&arguments[0], frame)).take(most);
    taken.for_each(|item| {
        out.push(item.value());
    });
    Ok(Value::Owned(RawValue::Array(out.finish().as_doc()).to_owned()))
}

fn slice_number(value: &Value<'_>, which: &str, code: i32) -> Result<i64> {
    let number = value.or_undefined();
    if !number.is_number() {
        let name = value.type_name();
        let what = if which == "Second" { "a numeric value" } else { "numeric" };
        let text = format!("{which} argument to $slice must be {what}, but is of type: {name}");
        return Err(fault(code, text));
    }
    small_integer(number).ok_or_else(|| {
        let shown = ShellValue(number);
        fault(
            code + 1,
            format!("{which} argument to $slice can't be represented as a 32-bit integer: {shown}"),
        )
    })
}

/// The range of items as the number to skip and the number to take. Without `skip`, the first
/// `take` items or, when it is negative, the last; a negative `skip` counts from the end.
pub fn slice_range(items: RawDoc<'_>, skip: Option<i64>, take: i64) -> (usize, usize) {
    let count = || items.iter().count() as i64;
    let from_end = |back: i64| usize::try_from(count().saturating_add(back)).unwrap_or(0);
    let size = |number: i64| usize::try_from(number).unwrap_or(0);
    match skip {
        None if take < 0 => (from_end(take), usize::MAX),
        None => (0, size(take)),
        Some(skip) if skip < 0 => (from_end(skip), size(take)),
        Some(skip) => (size(skip), size(take)),
    }
}
