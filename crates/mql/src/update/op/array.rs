//! `$addToSet` and `$pop`.

use mayfly_value::arguments::error::mistyped;
use std::sync::Arc;

use mayfly_base::{Error, Result};
use mayfly_value::shell::ShellValue;
use mayfly_value::{Collation, Number, RawDoc, RawValue, ValueBuf, ValueSet, compare_values_in};

use super::{Change, Modifier, Operand, Target, array_of};

/// Up to this many values are searched linearly.
const FEW_VALUES: usize = 16;

#[derive(Debug)]
struct AddToSet(Vec<ValueBuf>, Option<Arc<Collation>>);

impl Modifier for AddToSet {
    fn apply(&self, current: Option<RawValue<'_>>, target: &Target<'_>) -> Result<Change> {
        let existing = match current {
            None => RawDoc::EMPTY,
            Some(RawValue::Array(items)) => items,
            Some(other) => {
                return Err(Error::bad_value(format!(
                    "Cannot apply $addToSet to non-array field. Field named '{}' has non-array type {}",
                    target.field_name(),
                    other.type_name()
                )));
            }
        };
        let mut items: Vec<RawValue<'_>> = existing.iter().map(|item| item.value()).collect();
        let before = items.len();
        let collation = self.1.as_deref();
        let mut set = (self.0.len() > FEW_VALUES).then(|| ValueSet::new(collation));
        if let Some(set) = &mut set {
            items.iter().for_each(|item| {
                set.insert(*item);
            });
        }
        for value in &self.0 {
            if let Some(set) = &mut set {
                if set.insert(value.as_raw()) {
                    items.push(value.as_raw());
                }
                continue;
            }
            let same = |item| compare_values_in(item, value.as_raw(), collation).is_eq();
            if !items.iter().any(|item| same(*item)) {
                items.push(value.as_raw());
            }
        }
        if items.len() == before && current.is_some() {
            return Ok(Change::Keep);
        }
        Ok(Change::Set(array_of(items.into_iter())))
    }
}

pub(super) fn add_to_set(operand: &Operand<'_>) -> Result<Box<dyn Modifier>> {
    let first = operand.value.as_document().and_then(|doc| doc.iter().next());
    let values = match first {
        Some(clause) if clause.name() == "$each" => each(operand, clause.value())?,
        _ => vec![operand.value.to_owned()],
    };
    Ok(Box::new(AddToSet(values, operand.context.collation.clone())))
}

/// Parses the values of `$each`, which must be the only clause.
fn each(operand: &Operand<'_>, value: RawValue<'_>) -> Result<Vec<ValueBuf>> {
    let RawValue::Array(items) = value else {
        return Err(mistyped(format!(
            "The argument to $each in $addToSet must be an array but it was of type {}",
            value.type_name()
        )));
    };
    if operand.value.as_document().is_some_and(|clauses| clauses.iter().count() > 1) {
        let shown = ShellValue(operand.value);
        return Err(Error::bad_value(format!(
            "Found unexpected fields after $each in $addToSet: {shown}"
        )));
    }
    Ok(items.iter().map(|item| item.value().to_owned()).collect())
}

#[derive(Debug)]
enum Pop {
    First,
    Last,
}

impl Modifier for Pop {
    fn only_existing(&self) -> bool {
        true
    }

    fn apply(&self, current: Option<RawValue<'_>>, target: &Target<'_>) -> Result<Change> {
        let items = match current {
            None => return Ok(Change::Keep),
            Some(RawValue::Array(items)) => items,
            Some(other) => {
                return Err(mistyped(format!(
                    "Path '{}' contains an element of non-array type '{}'",
                    target.path,
                    other.type_name()
                )));
            }
        };
        let mut items: Vec<RawValue<'_>> = items.iter().map(|item| item.value()).collect();
        match self {
            _ if items.is_empty() => return Ok(Change::Keep),
            Pop::First => drop(items.remove(0)),
            Pop::Last => drop(items.pop()),
        }
        Ok(Change::Set(array_of(items.into_iter())))
    }
}

pub(super) fn pop(operand: &Operand<'_>) -> Result<Box<dyn Modifier>> {
    let number = Number::from_value(operand.value).ok_or_else(|| {
        Error::failed_to_parse(format!("Expected a number in: {}", operand.shown()))
    })?;
    match number.to_i64_exact() {
        Some(1) => Ok(Box::new(Pop::Last)),
        Some(-1) => Ok(Box::new(Pop::First)),
        Some(_) => {
            let shown = ShellValue(operand.value);
            Err(Error::failed_to_parse(format!("$pop expects 1 or -1, found: {shown}")))
        }
        None => {
            let shown = operand.shown();
            Err(Error::failed_to_parse(format!("Expected an integer: {shown}")))
        }
    }
}
