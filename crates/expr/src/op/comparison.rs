//! `$eq`, `$ne`, `$gt`, `$gte`, `$lt`, `$lte`, `$cmp`: comparison over all types; a missing value
//! is less than null.

use std::cmp::Ordering;

use mayfly_base::Result;
use mayfly_value::{RawValue, compare_values_in};

use super::{OpRow, list};
use crate::{Expression, Frame, Value};

pub(super) const ROWS: &[OpRow] = &[
    list("$eq", "2.2", "Whether two values are equal.", (2, 2), |args, frame| {
        order(args, frame).map(|order| order.is_eq().into())
    }),
    list("$ne", "2.2", "Whether two values differ.", (2, 2), |args, frame| {
        order(args, frame).map(|order| order.is_ne().into())
    }),
    list("$gt", "2.2", "Whether the first is greater.", (2, 2), |args, frame| {
        order(args, frame).map(|order| order.is_gt().into())
    }),
    list("$gte", "2.2", "Whether the first is not less.", (2, 2), |args, frame| {
        order(args, frame).map(|order| order.is_ge().into())
    }),
    list("$lt", "2.2", "Whether the first is less.", (2, 2), |args, frame| {
        order(args, frame).map(|order| order.is_lt().into())
    }),
    list("$lte", "2.2", "Whether the first is not greater.", (2, 2), |args, frame| {
        order(args, frame).map(|order| order.is_le().into())
    }),
    list("$cmp", "2.2", "-1, 0 or 1 for less, equal, greater.", (2, 2), |args, frame| {
        order(args, frame).map(|order| Value::Borrowed(RawValue::Int32(order as i32)))
    }),
];

fn order<'a>(arguments: &'a [Expression], frame: Frame<'a>) -> Result<Ordering> {
    let left = arguments[0].evaluate(frame)?;
    let right = arguments[1].evaluate(frame)?;
    Ok(compare_values_in(left.or_undefined(), right.or_undefined(), frame.collation()))
}
