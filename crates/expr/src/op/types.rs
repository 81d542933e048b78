//! `$type`, `$isNumber`.

use mayfly_value::RawValue;

use super::{OpRow, list};
use crate::Value;

pub(super) const ROWS: &[OpRow] = &[
    list("$type", "3.4", "The name of the value's type.", (1, 1), |args, frame| {
        Ok(Value::Borrowed(RawValue::String(args[0].evaluate(frame)?.type_name())))
    }),
    list("$isNumber", "4.4", "Whether the value is a number.", (1, 1), |args, frame| {
        Ok(args[0].evaluate(frame)?.or_undefined().is_number().into())
    }),
];
