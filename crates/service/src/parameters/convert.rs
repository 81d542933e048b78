//! Conversion of a given value to a parameter's type, within its bounds.

use mayfly_base::{Error, ErrorCode, Result};
use mayfly_value::RawValue;
use mayfly_value::arguments::convert::{truth, whole_number};
use mayfly_value::arguments::error::mistyped;

use super::{Parameter, ParameterKind, Value};
use crate::settings::LogVerbosity;

impl Parameter {
    /// Converts a value.
    ///
    /// # Errors
    /// 14 TypeMismatch, 2 BadValue out of bounds, 15 Overflow for a long text.
    pub(super) fn convert(&self, value: RawValue<'_>) -> Result<Value> {
        let number = match value {
            RawValue::Bool(flag) => Some(i64::from(flag)),
            number => whole_number(number),
        };
        match (self.kind, number, value) {
            (ParameterKind::LogVerbosity, _, RawValue::Document(document)) => {
                LogVerbosity::default().changed_by(document)?;
                Ok(Value::Document(document.to_owned()))
            }
            (ParameterKind::Truth, ..) => {
                let is_null = matches!(value, RawValue::Null | RawValue::Undefined);
                Ok(Value::Bool(truth(value).unwrap_or(!is_null)))
            }
            (ParameterKind::Level, None, _) => {
                Err(self.invalid(&format!("a value of type {}", value.type_name())))
            }
            (ParameterKind::Text { most }, _, RawValue::String(text)) => self.text(text, most),
            (ParameterKind::Word(words), None, _) => self.word(value, words),
            (ParameterKind::Double { .. }, Some(_), RawValue::Double(number)) => {
                self.double(number)
            }
            (_, Some(number), _) => self.number(number).ok_or_else(|| self.wrong_type(value))?,
            (_, None, _) => Err(self.wrong_type(value)),
        }
    }

    /// An integer as a value of the type; `None` if the type is not numeric.
    fn number(&self, number: i64) -> Option<Result<Value>> {
        Some(match self.kind {
            ParameterKind::Bool => Ok(Value::Bool(number != 0)),
            ParameterKind::Level => {
                let level = Value::Number(number.min(i64::from(i32::MAX)));
                self.check_bounds(number, 0, false).map(|()| level)
            }
            ParameterKind::Int { least, exclusive } => {
                let checked = self.check_bounds(number, least, exclusive);
                checked.and_then(|()| match number > i64::from(i32::MAX) {
                    true => Err(self.invalid(&format!("{number} is not a 32-bit integer"))),
                    false => Ok(Value::Number(number)),
                })
            }
            ParameterKind::Long { least, exclusive } => {
                self.check_bounds(number, least, exclusive).map(|()| Value::Number(number))
            }
            ParameterKind::Double { .. } => self.double(number as f64),
            _ => return None,
        })
    }

    fn double(&self, number: f64) -> Result<Value> {
        let ParameterKind::Double { least, exclusive, most } = self.kind else {
            return Ok(Value::Double(number));
        };
        if exclusive && number <= least || number.is_nan() {
            return Err(self.invalid(&format!("{number} is not greater than {least}")));
        }
        if number < least {
            return Err(self.invalid(&format!("{number} is not greater than or equal to {least}")));
        }
        if number > most {
            return Err(self.invalid(&format!("{number} is not less than or equal to {most}")));
        }
        Ok(Value::Double(number))
    }

    fn text(&self, text: &str, most: usize) -> Result<Value> {
        if text.len() > most {
            let name = self.name;
            let text = format!("Value for parameter {name} must be no more than {most} bytes");
            return Err(Error::new(ErrorCode::Overflow, text));
        }
        Ok(Value::Text(text.to_owned()))
    }

    fn word(&self, value: RawValue<'_>, words: &'static [&'static str]) -> Result<Value> {
        let given = value.as_str().unwrap_or_default();
        match words.iter().find(|word| **word == given) {
            Some(word) => Ok(Value::Word(word)),
            None => {
                let words = words.join(", ");
                Err(self.invalid(&format!("'{given}' is not one of {words}")))
            }
        }
    }

    fn wrong_type(&self, value: RawValue<'_>) -> Error {
        let (name, found) = (self.name, value.type_name());
        mistyped(format!("Invalid type for parameter {name}: {found}"))
    }

    fn check_bounds(&self, number: i64, least: i64, exclusive: bool) -> Result<()> {
        if exclusive && number <= least {
            return Err(self.invalid(&format!("{number} is not greater than {least}")));
        }
        if number < least {
            return Err(self.invalid(&format!("{number} is not greater than or equal to {least}")));
        }
        Ok(())
    }

    fn invalid(&self, why: &str) -> Error {
        Error::bad_value(format!("Invalid value for parameter {}: {why}", self.name))
    }
}
