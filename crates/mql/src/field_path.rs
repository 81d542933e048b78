//! A dotted path, split once when it is parsed.

use std::fmt;

use mayfly_base::{Error, Result};
use mayfly_value::paths::MAX_PATH_PARTS;

/// A dotted path and its parts.
#[derive(Clone, PartialEq, Eq)]
pub struct FieldPath(Parts);

#[derive(Clone, PartialEq, Eq)]
enum Parts {
    /// The only part, which is the path in dotted form as well.
    One([Box<str>; 1]),
    Several {
        dotted: Box<str>,
        parts: Vec<Box<str>>,
    },
}

impl FieldPath {
    /// Splits a path; fails when it has too many parts.
    pub fn new(dotted: &str) -> Result<FieldPath> {
        if !dotted.contains('.') {
            return Ok(FieldPath(Parts::One([dotted.into()])));
        }
        let parts: Vec<Box<str>> =
            dotted.split('.').take(MAX_PATH_PARTS + 1).map(Box::from).collect();
        if parts.len() > MAX_PATH_PARTS {
            return Err(Error::bad_value(format!(
                "FieldPath is too long: more than {MAX_PATH_PARTS} parts"
            )));
        }
        Ok(FieldPath(Parts::Several { dotted: dotted.into(), parts }))
    }

    /// The path in dotted form.
    pub fn as_str(&self) -> &str {
        match &self.0 {
            Parts::One([only]) => only,
            Parts::Several { dotted, .. } => dotted,
        }
    }

    /// Its parts; at least one.
    pub fn parts(&self) -> &[Box<str>] {
        match &self.0 {
            Parts::One(only) => only,
            Parts::Several { parts, .. } => parts,
        }
    }

    /// The field name, if the path has only one part.
    pub fn as_single(&self) -> Option<&str> {
        match self.parts() {
            [name] => Some(name),
            _ => None,
        }
    }
}

impl fmt::Debug for FieldPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl fmt::Display for FieldPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}
