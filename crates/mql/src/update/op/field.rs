//! `$set` (and `$setOnInsert`), `$unset`, `$currentDate`.

use mayfly_base::{Error, Result};
use mayfly_value::{RawValue, ValueBuf};

use super::{Change, Modifier, Operand, Target};

#[derive(Debug)]
struct Set(ValueBuf);

impl Modifier for Set {
    fn apply(&self, _current: Option<RawValue<'_>>, _target: &Target<'_>) -> Result<Change> {
        Ok(Change::Set(self.0.clone()))
    }
}

pub(super) fn set(operand: &Operand<'_>) -> Result<Box<dyn Modifier>> {
    Ok(Box::new(Set(operand.value.to_owned())))
}

#[derive(Debug)]
struct Unset;

impl Modifier for Unset {
    fn apply(&self, current: Option<RawValue<'_>>, _target: &Target<'_>) -> Result<Change> {
        Ok(if current.is_some() { Change::Remove } else { Change::Keep })
    }

    fn accepts_blocked_paths(&self) -> bool {
        true
    }
}

pub(super) fn unset(_operand: &Operand<'_>) -> Result<Box<dyn Modifier>> {
    Ok(Box::new(Unset))
}

/// The type of the current date.
#[derive(Debug)]
enum CurrentDate {
    Date,
    Timestamp,
}

impl Modifier for CurrentDate {
    fn apply(&self, _current: Option<RawValue<'_>>, target: &Target<'_>) -> Result<Change> {
        let now_ms = target.context.now_ms;
        let now = match self {
            CurrentDate::Date => RawValue::Date(now_ms),
            CurrentDate::Timestamp => {
                let seconds = u32::try_from(now_ms.div_euclid(1000)).unwrap_or(0);
                RawValue::Timestamp(u64::from(seconds) << 32 | 1)
            }
        };
        Ok(Change::Set(now.to_owned()))
    }
}

pub(super) fn current_date(operand: &Operand<'_>) -> Result<Box<dyn Modifier>> {
    const TYPE_REQUIRED: &str = "The '$type' string field is required to be 'date' or 'timestamp': {$currentDate: \
                          {field : {$type: 'date'}}}";
    let kind = match operand.value {
        RawValue::Bool(_) => CurrentDate::Date,
        RawValue::Document(spec) => {
            if let Some(other) = spec.iter().find(|element| element.name() != "$type") {
                let text = format!("Unrecognized $currentDate option: {}", other.name());
                return Err(Error::bad_value(text));
            }
            match spec.get("$type") {
                Some(RawValue::String("date")) => CurrentDate::Date,
                Some(RawValue::String("timestamp")) => CurrentDate::Timestamp,
                _ => return Err(Error::bad_value(TYPE_REQUIRED)),
            }
        }
        value => {
            return Err(Error::bad_value(format!(
                "{} is not valid type for $currentDate. Please use a boolean ('true') or a $type \
                 expression ({{$type: 'timestamp/date'}}).",
                value.type_name()
            )));
        }
    };
    Ok(Box::new(kind))
}
