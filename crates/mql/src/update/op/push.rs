//! `$push` with `$each`, `$position`, `$slice` and `$sort`.

use std::sync::Arc;

use mayfly_base::{Error, Result};
use mayfly_expr::Order;
use mayfly_value::{Collation, Number, PathWrite, RawDoc, RawValue, SortOrder, ValueBuf};

use super::{Change, Modifier, Operand, Target, array_of};

#[derive(Debug)]
struct Push {
    values: Vec<ValueBuf>,
    /// Counts from the end when negative.
    position: Option<i64>,
    /// Keeps the last items when negative.
    slice: Option<i64>,
    sort: Option<Order>,
    collation: Option<Arc<Collation>>,
}

impl Modifier for Push {
    fn writes(&self) -> PathWrite {
        PathWrite::Append
    }

    fn apply(&self, current: Option<RawValue<'_>>, target: &Target<'_>) -> Result<Change> {
        let existing = match current {
            None => RawDoc::EMPTY,
            Some(RawValue::Array(items)) => items,
            Some(other) => {
                return Err(Error::bad_value(format!(
                    "The field '{}' must be an array but is of type {} in document {}",
                    target.field_name(),
                    other.type_name(),
                    target.document_name()
                )));
            }
        };
        let mut items: Vec<RawValue<'_>> = existing.iter().map(|item| item.value()).collect();
        let at = position_in(self.position, items.len());
        items.splice(at..at, self.values.iter().map(ValueBuf::as_raw));
        let collation = self.collation.as_deref();
        if let Some(order) = &self.sort {
            items.sort_by(|a, b| order.compare(*a, *b, collation));
        }
        let kept = match self.slice {
            Some(first @ 0..) => &items[..clamped(first, items.len())],
            Some(last) => &items[items.len() - clamped(last.saturating_neg(), items.len())..],
            None => &items[..],
        };
        Ok(Change::Set(array_of(kept.iter().copied())))
    }
}

fn clamped(count: i64, len: usize) -> usize {
    usize::try_from(count).map_or(len, |count| count.min(len))
}

fn position_in(position: Option<i64>, len: usize) -> usize {
    match position {
        None => len,
        Some(at @ 0..) => clamped(at, len),
        Some(from_end) => len - clamped(from_end.saturating_neg(), len),
    }
}

pub(super) fn push(operand: &Operand<'_>) -> Result<Box<dyn Modifier>> {
    let collation = operand.context.collation.clone();
    let mut push = Push { values: Vec::new(), position: None, slice: None, sort: None, collation };
    let clauses = operand.value.as_document().filter(|doc| doc.get_element("$each").is_some());
    let Some(clauses) = clauses else {
        push.values.push(operand.value.to_owned());
        return Ok(Box::new(push));
    };
    for clause in clauses.iter() {
        let value = clause.value();
        match clause.name() {
            "$each" => match value {
                RawValue::Array(items) => {
                    push.values = items.iter().map(|item| item.value().to_owned()).collect();
                }
                other => {
                    return Err(Error::bad_value(format!(
                        "The argument to $each in $push must be an array but it was of type: {}",
                        other.type_name()
                    )));
                }
            },
            "$position" => push.position = Some(integer(value, "$position", ", not of")?),
            "$slice" => push.slice = Some(integer(value, "$slice", " but was given")?),
            "$sort" => push.sort = Some(item_sort(value)?),
            other => {
                return Err(Error::bad_value(format!("Unrecognized clause in $push: {other}")));
            }
        }
    }
    Ok(Box::new(push))
}

fn integer(value: RawValue<'_>, clause: &str, verb: &str) -> Result<i64> {
    Number::from_value(value).and_then(Number::to_i64_exact).ok_or_else(|| {
        let kind = value.type_name();
        Error::bad_value(format!(
            "The value for {clause} must be an integer value{verb} type: {kind}"
        ))
    })
}

fn item_sort(value: RawValue<'_>) -> Result<Order> {
    if let RawValue::Document(pattern) = value {
        return Order::parse_items(pattern);
    }
    match Number::from_value(value).and_then(Number::to_i64_exact) {
        Some(1) => Ok(Order::Whole(SortOrder::Ascending)),
        Some(-1) => Ok(Order::Whole(SortOrder::Descending)),
        _ if value.is_number() => {
            Err(Error::bad_value("The $sort element value must be either 1 or -1"))
        }
        _ => Err(Error::bad_value(
            "The $sort is invalid: use 1/-1 to sort the whole element, or {field:1/-1} to sort embedded fields",
        )),
    }
}
