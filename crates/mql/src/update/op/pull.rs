//! `$pull` and `$pullAll`.

use std::sync::Arc;

use mayfly_base::{Error, Result};
use mayfly_value::{Collation, RawValue, ValueBuf, compare_values_in};

use super::{Change, Modifier, Operand, Target, array_of};
use crate::matcher::{ItemMatcher, Matcher};

/// Which items go.
#[derive(Debug)]
enum Pull {
    /// Documents that match a filter.
    Documents(Matcher),
    /// Items that satisfy operators, equal a value or match a pattern.
    Items(ItemMatcher),
    /// Items that equal one of the values.
    Listed(Vec<ValueBuf>, Option<Arc<Collation>>),
}

impl Pull {
    fn takes(&self, item: RawValue<'_>) -> bool {
        match self {
            Pull::Documents(filter) => item.as_document().is_some_and(|doc| filter.matches(doc)),
            Pull::Items(condition) => condition.matches(item),
            Pull::Listed(values, collation) => values
                .iter()
                .any(|value| compare_values_in(value.as_raw(), item, collation.as_deref()).is_eq()),
        }
    }
}

impl Modifier for Pull {
    fn apply(&self, current: Option<RawValue<'_>>, _target: &Target<'_>) -> Result<Change> {
        let items = match current {
            None => return Ok(Change::Keep),
            Some(RawValue::Array(items)) => items,
            Some(_) => return Err(Error::bad_value("Cannot apply $pull to a non-array value")),
        };
        let all = || items.iter().map(|item| item.value());
        if !all().any(|item| self.takes(item)) {
            return Ok(Change::Keep);
        }
        Ok(Change::Set(array_of(all().filter(|item| !self.takes(*item)))))
    }
}

pub(super) fn pull(operand: &Operand<'_>) -> Result<Box<dyn Modifier>> {
    Ok(Box::new(match operand.value {
        RawValue::Document(inner) if ItemMatcher::is_operators(inner) => {
            Pull::Items(ItemMatcher::parse_operators(inner, operand.name, operand.context)?)
        }
        RawValue::Document(filter) => {
            Pull::Documents(Matcher::parse_pulled(filter, operand.context)?)
        }
        value => Pull::Items(ItemMatcher::parse_equality(value, operand.context)?),
    }))
}

pub(super) fn pull_all(operand: &Operand<'_>) -> Result<Box<dyn Modifier>> {
    let RawValue::Array(items) = operand.value else {
        return Err(Error::bad_value(format!(
            "$pullAll requires an array argument but was given a {}",
            operand.value.type_name()
        )));
    };
    let values = items.iter().map(|item| item.value().to_owned()).collect();
    Ok(Box::new(Pull::Listed(values, operand.context.collation.clone())))
}
