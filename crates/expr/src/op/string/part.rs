//! `$substr`, `$substrBytes`, `$substrCP`.

use mayfly_base::Result;
use mayfly_value::shell::ShellValue;
use mayfly_value::{Number, RawValue};

use super::super::operand::{fault, small_integer, text};
use super::super::{OpRow, list};
use super::text_of;
use crate::{Expression, Frame, Value};

pub(in crate::op) const ROWS: &[OpRow] = &[
    list("$substr", "2.2", "Another name of $substrBytes.", (3, 3), bytes),
    list("$substrBytes", "3.4", "A substring, in bytes of UTF-8.", (3, 3), bytes),
    list("$substrCP", "3.4", "A substring, in code points.", (3, 3), code_points),
];

fn bytes<'a>(arguments: &'a [Expression], frame: Frame<'a>) -> Result<Value<'a>> {
    const NAME: &str = "$substrBytes";
    let whole = text_of(&arguments[0], frame)?;
    let (start, length) = (arguments[1].evaluate(frame)?, arguments[2].evaluate(frame)?);
    let integer = |value: &Value<'_>, code: i32, which: &str| {
        let number = Number::from_value(value.or_undefined()).ok_or_else(|| {
            let found = value.type_name();
            let text = format!("{NAME}:  {which} must be a numeric type (is BSON type {found})");
            fault(code, text)
        })?;
        // Fractions are truncated; values beyond a long are clamped.
        Ok(number.to_i64_truncated().unwrap_or_else(|| number.to_f64() as i64))
    };
    let start = integer(&start, 16034, "starting index")?;
    let length = integer(&length, 16035, "length")?;
    if start < 0 {
        let text = format!("{NAME}:  starting index must be non-negative (got: {start})");
        return Err(fault(50752, text));
    }
    let continues = |at: usize| whole.as_bytes().get(at).is_some_and(|byte| byte & 0xC0 == 0x80);
    let start = usize::try_from(start).unwrap_or(usize::MAX);
    if continues(start) {
        let text = format!("{NAME}:  Invalid range, starting index is a UTF-8 continuation byte.");
        return Err(fault(28656, text));
    }
    if start >= whole.len() {
        return text("");
    }
    // A negative length means the rest of the string.
    let length = usize::try_from(length).unwrap_or(usize::MAX);
    let end = start.saturating_add(length).min(whole.len());
    if continues(end) {
        let text =
            format!("{NAME}:  Invalid range, ending index is in the middle of a UTF-8 character.");
        return Err(fault(28657, text));
    }
    text(whole.get(start..end).unwrap_or(""))
}

fn code_points<'a>(arguments: &'a [Expression], frame: Frame<'a>) -> Result<Value<'a>> {
    const NAME: &str = "$substrCP";
    let whole = text_of(&arguments[0], frame)?;
    let (start, length) = (arguments[1].evaluate(frame)?, arguments[2].evaluate(frame)?);
    let integer = |value: RawValue<'_>, kind: &str, code: i32, which: &str| {
        if !value.is_number() {
            let text = format!("{NAME}: {which} must be a numeric type (is BSON type {kind})");
            return Err(fault(code, text));
        }
        small_integer(value).ok_or_else(|| {
            let shown = ShellValue(value);
            let text = format!(
                "{NAME}: {which} cannot be represented as a 32-bit integral value: {shown}"
            );
            fault(code + 1, text)
        })
    };
    let start = integer(start.or_undefined(), start.type_name(), 34450, "starting index")?;
    let length = integer(length.or_undefined(), length.type_name(), 34452, "length")?;
    let length = usize::try_from(length)
        .map_err(|_| fault(34454, format!("{NAME}: length must be a nonnegative integer.")))?;
    let start = usize::try_from(start).map_err(|_| {
        fault(34455, format!("{NAME}: the starting index must be nonnegative integer."))
    })?;
    text(&whole.chars().skip(start).take(length).collect::<String>())
}
