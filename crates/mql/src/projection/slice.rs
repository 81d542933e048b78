//! `$slice` in a find projection: `n`, or `[skip, limit]`.

use mayfly_base::{Error, ErrorCode, Result};
use mayfly_expr::op::slice_range;
use mayfly_value::{DocBuilder, Number, RawDoc, RawValue};

/// A slice of an array.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Slice {
    skip: Option<i64>,
    take: i64,
}

/// A number as a 32-bit integer: fractions are truncated, other values clamped.
fn clamped(value: RawValue<'_>) -> Option<i64> {
    let number = Number::from_value(value)?;
    let whole = number.to_i64_truncated().unwrap_or(match number.to_f64() {
        high if high > 0.0 => i64::MAX,
        low if low < 0.0 => i64::MIN,
        _ => 0,
    });
    Some(whole.clamp(i64::from(i32::MIN), i64::from(i32::MAX)))
}

impl Slice {
    /// Parses the operand of `$slice`.
    ///
    /// # Errors
    /// 31272 and 31273 for other forms, 31259 for a limit that is not positive: then it may be the
    /// expression `$slice`.
    pub(super) fn parse(operand: RawValue<'_>) -> Result<Slice> {
        let fault = |code: i32, text: &str| Err(Error::new(ErrorCode(code), text));
        match operand {
            RawValue::Array(items) => {
                let mut items = items.iter().map(|item| item.value());
                let (Some(skip), Some(limit), None) = (items.next(), items.next(), items.next())
                else {
                    return fault(31272, "$slice array argument should be of form [skip, limit]");
                };
                let (Some(skip), Some(take)) = (clamped(skip), clamped(limit)) else {
                    return fault(31273, "$slice only supports numbers and [skip, limit] arrays");
                };
                if take <= 0 {
                    return fault(31259, "$slice limit must be positive");
                }
                Ok(Slice { skip: Some(skip), take })
            }
            value => match clamped(value) {
                Some(take) => Ok(Slice { skip: None, take }),
                None => fault(31273, "$slice only supports numbers and [skip, limit] arrays"),
            },
        }
    }

    /// Appends the slice of the array.
    pub(super) fn append(self, name: &str, items: RawDoc<'_>, out: &mut DocBuilder) {
        let (from, most) = slice_range(items, self.skip, self.take);
        out.start_array(name);
        items.iter().skip(from).take(most).for_each(|item| {
            out.push(item.value());
        });
        out.end();
    }
}
