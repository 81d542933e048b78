//! `$push` with `$each`, `$position`, `$slice` and `$sort`.

use mayfly_base::{Error, Result};
use mayfly_value::{Number, RawDoc, RawValue, ValueBuf, compare_values};

use super::{Change, Modifier, Operand, Target, array_of};
use crate::SortPattern;

#[derive(Debug)]
struct Push {
    values: Vec<ValueBuf>,
    /// From the end when negative.
    position: Option<i64>,
    /// The last ones when negative.
    slice: Option<i64>,
    sort: Option<ItemSort>,
}

#[derive(Debug)]
enum ItemSort {
    Whole { descending: bool },
    Fields(SortPattern),
}

impl Modifier for Push {
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
        match &self.sort {
            Some(ItemSort::Whole { descending: false }) => {
                items.sort_by(|a, b| compare_values(*a, *b));
            }
            Some(ItemSort::Whole { descending: true }) => {
                items.sort_by(|a, b| compare_values(*b, *a));
            }
            Some(ItemSort::Fields(pattern)) => items.sort_by_cached_key(|item| {
                pattern.sort_key(item.as_document().unwrap_or(RawDoc::EMPTY))
            }),
            None => {}
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
    let mut push = Push { values: Vec::new(), position: None, slice: None, sort: None };
    let clauses = operand.value.as_document().filter(|doc| doc.get_element("$each").is_some());
    let Some(clauses) = clauses else {
        push.values.push(operand.value.to_owned());
        return Ok(Box::new(push));
    };
    for clause in clauses.iter() {
        let value = clause.value();
        match clause.name() {
            "$each" => push.values = each(value, "$push")?,
            "$position" => push.position = Some(integer(value, "$position")?),
            "$slice" => push.slice = Some(integer(value, "$slice")?),
            "$sort" => push.sort = Some(item_sort(value)?),
            other => {
                return Err(Error::bad_value(format!("Unrecognized clause in $push: {other}")));
            }
        }
    }
    Ok(Box::new(push))
}

/// The values of `$each`.
pub(super) fn each(value: RawValue<'_>, operator: &str) -> Result<Vec<ValueBuf>> {
    match value {
        RawValue::Array(items) => Ok(items.iter().map(|item| item.value().to_owned()).collect()),
        other => Err(Error::type_mismatch(format!(
            "The argument to $each in {operator} must be an array but it was of type {}",
            other.type_name()
        ))),
    }
}

fn integer(value: RawValue<'_>, clause: &str) -> Result<i64> {
    Number::from_value(value).and_then(Number::to_i64_exact).ok_or_else(|| {
        let kind = value.type_name();
        Error::bad_value(format!(
            "The value for {clause} must be an integer value but was given type: {kind}"
        ))
    })
}

fn item_sort(value: RawValue<'_>) -> Result<ItemSort> {
    if let RawValue::Document(pattern) = value {
        return SortPattern::parse(pattern).map(ItemSort::Fields);
    }
    match Number::from_value(value).and_then(Number::to_i64_exact) {
        Some(1) => Ok(ItemSort::Whole { descending: false }),
        Some(-1) => Ok(ItemSort::Whole { descending: true }),
        _ => Err(Error::bad_value(
            "The $sort is invalid: use 1/-1 to sort the whole element, or {field:1/-1} to sort embedded fields",
        )),
    }
}
