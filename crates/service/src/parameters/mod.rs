//! Server parameters: the table for `getParameter`, `setParameter` and `--setParameter`.
//!
//! A row declares the type and the bounds; the value lives with its owner (the TTL monitor's
//! parameters in `storage`, the others in [`Settings`](crate::Settings)).

use mayfly_base::{Error, ErrorCode, Result};
use mayfly_value::{DocBuf, DocBuilder, RawValue};

use crate::server::Service;

mod clients;
mod convert;
mod row;
mod table;

pub use table::TABLE;

/// When a parameter may be set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SetAt {
    /// Never: the parameter is read-only.
    Never,
    /// Only at startup.
    Startup,
    /// At startup and at runtime.
    Both,
}

/// A parameter's type and bounds.
#[derive(Clone, Copy, Debug)]
pub enum ParameterKind {
    /// A boolean.
    Bool,
    /// A value of any type: true unless it is false, zero or null.
    Truth,
    /// The verbosity of the log: an integer from 0. A value of another type is a bad value, as in
    /// the reference.
    Level,
    /// Text of at most this number of bytes.
    Text {
        /// The number.
        most: usize,
    },
    /// An array.
    List,
    /// A 32-bit integer with a lower bound.
    Int {
        /// The bound.
        least: i64,
        /// Whether the bound itself is refused.
        exclusive: bool,
    },
    /// A 64-bit integer with a lower bound.
    Long {
        /// The bound.
        least: i64,
        /// Whether the bound itself is refused.
        exclusive: bool,
    },
    /// A floating-point number within bounds.
    Double {
        /// The lower bound.
        least: f64,
        /// Whether the lower bound itself is refused.
        exclusive: bool,
        /// The upper bound.
        most: f64,
    },
    /// One of these words.
    Word(&'static [&'static str]),
    /// A document.
    Document,
    /// Log verbosity by component, as a document.
    LogVerbosity,
}

/// A parameter's value.
#[derive(Clone, Debug, PartialEq)]
#[allow(missing_docs, reason = "the names say it")]
pub enum Value {
    Bool(bool),
    Number(i64),
    Double(f64),
    Word(&'static str),
    Text(String),
    List(&'static [&'static str]),
    Document(DocBuf),
}

/// A server parameter: its name and value, when it may be set, and the functions that do so.
pub struct Parameter {
    /// The name in `getParameter`.
    pub name: &'static str,
    /// Its effect, unit, and default: a line of docs/configuration.md.
    pub help: &'static str,
    /// When it may be set.
    pub set_at: SetAt,
    /// Its type and bounds.
    pub kind: ParameterKind,
    /// Reads the value.
    pub get: fn(&Service) -> Value,
    /// Stores a checked value.
    pub set: fn(&Service, &Value),
}

/// Finds a parameter by name.
pub fn find(name: &str) -> Option<&'static Parameter> {
    TABLE.iter().find(|parameter| parameter.name == name)
}

impl Parameter {
    /// Appends the value to a document under a name.
    pub fn append(&self, service: &Service, name: &str, doc: &mut DocBuilder) {
        match (self.get)(service) {
            Value::Bool(value) => doc.append(name, value),
            Value::Number(value) => match self.kind {
                ParameterKind::Int { .. } | ParameterKind::Level => {
                    doc.append(name, i32::try_from(value).unwrap_or(i32::MAX))
                }
                _ => doc.append(name, value),
            },
            Value::Double(value) => doc.append(name, value),
            Value::Word(value) => doc.append(name, value),
            Value::Text(value) => doc.append(name, value.as_str()),
            Value::List(values) => {
                doc.start_array(name);
                for value in values {
                    doc.push(*value);
                }
                doc.end()
            }
            Value::Document(value) => doc.append(name, &value),
        };
    }

    /// Sets the parameter at runtime.
    ///
    /// # Errors
    /// 20 IllegalOperation when it may not be set at runtime, 2 BadValue out of bounds, 14
    /// TypeMismatch.
    pub fn set_running(&self, service: &Service, value: RawValue<'_>) -> Result<()> {
        if self.set_at != SetAt::Both {
            let text = format!("not allowed to change [{}] at runtime", self.name);
            return Err(Error::new(ErrorCode::IllegalOperation, text));
        }
        let value = self.convert(value)?;
        (self.set)(service, &value);
        Ok(())
    }

    /// Sets the parameter at startup, from text.
    ///
    /// # Errors
    /// The same as for [`Parameter::set_running`].
    pub fn set_starting(&self, service: &Service, text: &str) -> Result<()> {
        let value = self.starting_value(text)?;
        (self.set)(service, &value);
        Ok(())
    }

    /// Checks a text for [`set_starting`](Parameter::set_starting), before a service exists.
    ///
    /// # Errors
    /// The same as for [`Parameter::set_running`].
    pub fn check_starting(&self, text: &str) -> Result<()> {
        self.starting_value(text).map(drop)
    }

    fn starting_value(&self, text: &str) -> Result<Value> {
        if self.set_at == SetAt::Never {
            let text = format!("not allowed to change [{}] at startup", self.name);
            return Err(Error::new(ErrorCode::IllegalOperation, text));
        }
        let value = match (self.kind, text.parse::<i64>()) {
            (
                ParameterKind::Bool | ParameterKind::Int { .. } | ParameterKind::Long { .. },
                Ok(number),
            ) => RawValue::Int64(number),
            (ParameterKind::Bool, Err(_)) if text == "true" || text == "false" => {
                RawValue::Bool(text == "true")
            }
            (ParameterKind::Double { .. }, _) if text.parse::<f64>().is_ok() => {
                RawValue::Double(text.parse().unwrap_or_default())
            }
            _ => RawValue::String(text),
        };
        self.convert(value)
    }
}
