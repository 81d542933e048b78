//! `$pull` and `$pullAll`.

use mayfly_base::{Error, Result};
use mayfly_value::RawValue;

use super::{Change, Modifier, Operand, Target, array_of};
use crate::matcher::{InList, ItemMatcher, Matcher};

/// The items to remove.
#[derive(Debug)]
enum Pull {
    /// Documents that match a filter.
    Documents(Matcher),
    /// Items that satisfy operators, equal a value or match a regular expression.
    Items(ItemMatcher),
    /// Items that equal one of the values.
    Listed(InList),
}

impl Pull {
    fn takes(&self, item: RawValue<'_>) -> Result<bool> {
        match self {
            Pull::Documents(filter) => match item {
                RawValue::Document(doc) => filter.matches(doc),
                _ => Ok(false),
            },
            Pull::Items(condition) => condition.matches(item),
            Pull::Listed(values) => values.contains(item),
        }
    }
}

impl Modifier for Pull {
    fn only_existing(&self) -> bool {
        true
    }

    fn apply(&self, current: Option<RawValue<'_>>, _target: &Target<'_>) -> Result<Change> {
        let items = match current {
            None => return Ok(Change::Keep),
            Some(RawValue::Array(items)) => items,
            Some(_) => return Err(Error::bad_value("Cannot apply $pull to a non-array value")),
        };
        let (mut left, mut taken) = (Vec::new(), false);
        for item in items.iter().map(|item| item.value()) {
            match self.takes(item)? {
                true => taken = true,
                false => left.push(item),
            }
        }
        if !taken {
            return Ok(Change::Keep);
        }
        Ok(Change::Set(array_of(left.into_iter())))
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
    let collation = operand.context.collation.as_ref();
    Ok(Box::new(Pull::Listed(InList::new(values, Vec::new(), collation))))
}
