//! `$indexOfBytes`, `$indexOfCP`: the position of a substring, -1 if it does not occur.

use mayfly_base::Result;
use mayfly_value::RawValue;

use super::super::array::sequence::position;
use super::super::operand::{count, fault, int};
use super::super::{OpRow, list};
use crate::{Expression, Frame, Value};

pub(in crate::op) const ROWS: &[OpRow] = &[
    list(
        "$indexOfBytes",
        "3.4",
        "The position of a substring, in bytes.",
        (2, 4),
        |args, frame| search("$indexOfBytes", (40091, 40092), args, frame),
    ),
    list(
        "$indexOfCP",
        "3.4",
        "The position of a substring, in code points.",
        (2, 4),
        |args, frame| search("$indexOfCP", (40093, 40094), args, frame),
    ),
];

fn search<'a>(
    name: &str,
    codes: (i32, i32),
    arguments: &'a [Expression],
    frame: Frame<'a>,
) -> Result<Value<'a>> {
    let value = arguments[0].evaluate(frame)?;
    if value.is_nullish() {
        return Ok(Value::NULL);
    }
    let wrong = |value: &Value<'_>, code: i32, which: &str| {
        let found = value.type_name();
        let text = format!("{name} requires a string as the {which} argument, found: {found}");
        fault(code, text)
    };
    let RawValue::String(whole) = value.or_undefined() else {
        return Err(wrong(&value, codes.0, "first"));
    };
    let substring = arguments[1].evaluate(frame)?;
    let RawValue::String(substring) = substring.or_undefined() else {
        return Err(wrong(&substring, codes.1, "second"));
    };
    let at = |nth: usize, which: &str| {
        arguments.get(nth).map(|argument| position(name, which, (40096, 40097), argument, frame))
    };
    let start = at(2, "starting index").transpose()?.unwrap_or(0);
    let end = at(3, "ending index").transpose()?.unwrap_or(usize::MAX);
    if name == "$indexOfBytes" {
        let end = end.min(whole.len());
        if start > end {
            return Ok(int(-1));
        }
        return Ok(find(whole, substring, start, end).map_or(int(-1), count));
    }
    if whole.is_empty() && substring.is_empty() && start == 0 {
        return Ok(int(0));
    }
    // The bounds apply to the start of the match: it may extend beyond the end.
    let places: Vec<usize> = whole.char_indices().map(|(at, _)| at).collect();
    let end = end.min(places.len());
    if start >= end {
        return Ok(int(-1));
    }
    let first = places[start];
    let found = whole[first..].find(substring).map(|at| first + at);
    let found = found.map(|found| places.partition_point(|place| *place < found));
    Ok(found.filter(|at| *at < end).map_or(int(-1), count))
}

/// Finds a substring between two byte offsets, which may be inside characters: a match never begins
/// or ends there.
fn find(whole: &str, substring: &str, start: usize, end: usize) -> Option<usize> {
    if substring.is_empty() {
        return Some(start);
    }
    let first = (start..=end).find(|at| whole.is_char_boundary(*at))?;
    let last = (first..=end).rev().find(|at| whole.is_char_boundary(*at))?;
    whole[first..last].find(substring).map(|at| at + first)
}
