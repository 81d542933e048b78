//! Parses `filter` of `$vectorSearch`: a document of conditions in the query language.

use mayfly_base::Result;
use mayfly_value::{RawDoc, RawValue};

use super::value::{is_comparable, key_of, range_of};
use super::{Condition, Test};
use crate::fault::{FieldPath, refused};
use crate::limits::{MAX_CLAUSES, MAX_DEPTH};
use crate::read::Fields;

/// What values of conditions may be.
const COMPARABLE: &str = "boolean, date, number, objectId, string, UUID or null";

/// The operators of a field, as an error lists them.
const OPERATORS: &str = "$eq, $ne, $gt, $gte, $lt, $lte, $in, $nin, $exists, $not";

/// Parses a filter against the filter fields of a definition.
///
/// # Errors
/// Code 8.
pub(crate) fn parse(
    document: RawDoc<'_>,
    path: &FieldPath,
    fields: &[String],
) -> Result<Condition> {
    Parser { fields, count: 0 }.document(document, path, 0)
}

struct Parser<'f> {
    fields: &'f [String],
    count: usize,
}

impl Parser<'_> {
    /// Counts a condition, so that a filter is bounded.
    fn count(&mut self, path: &FieldPath, depth: usize) -> Result<()> {
        self.count += 1;
        if self.count > MAX_CLAUSES {
            return Err(path.refuse(format_args!("is one of more than {MAX_CLAUSES} clauses")));
        }
        if depth > MAX_DEPTH {
            let text = format!("is nested more than {MAX_DEPTH} levels deep");
            return Err(path.refuse(text));
        }
        Ok(())
    }

    fn document(
        &mut self,
        document: RawDoc<'_>,
        path: &FieldPath,
        depth: usize,
    ) -> Result<Condition> {
        let mut parts = Vec::new();
        for element in document {
            let name = element.name();
            let inner = path.field(name);
            self.count(&inner, depth)?;
            parts.push(match name {
                "$and" => Condition::And(self.list(element.value(), &inner, depth)?),
                "$or" => Condition::Or(self.list(element.value(), &inner, depth)?),
                "$nor" => {
                    let parts = self.list(element.value(), &inner, depth)?;
                    Condition::Not(Box::new(Condition::Or(parts)))
                }
                name if name.starts_with('$') => {
                    let text = format!("unrecognized operator \"{name}\"");
                    return Err(path.refuse(text));
                }
                name => self.field(name, element.value(), &inner, depth)?,
            });
        }
        Ok(match parts.len() {
            1 => parts.remove(0),
            _ => Condition::And(parts),
        })
    }

    fn list(
        &mut self,
        value: RawValue<'_>,
        path: &FieldPath,
        depth: usize,
    ) -> Result<Vec<Condition>> {
        let RawValue::Array(items) = value else { return Err(path.wrong_type("array", value)) };
        if items.is_empty() {
            return Err(path.refuse("cannot be empty"));
        }
        let mut parts = Vec::new();
        for (at, element) in items.iter().enumerate() {
            let path = path.item(at);
            let RawValue::Document(document) = element.value() else {
                return Err(path.wrong_type("document", element.value()));
            };
            parts.push(self.document(document, &path, depth + 1)?);
        }
        Ok(parts)
    }

    /// The conditions of one field: a value, or a document of operators.
    fn field(
        &mut self,
        name: &str,
        value: RawValue<'_>,
        path: &FieldPath,
        depth: usize,
    ) -> Result<Condition> {
        let Some(field) = self.fields.iter().position(|field| field == name) else {
            return Err(refused(format!("Path '{name}' needs to be indexed as filter")));
        };
        match value {
            RawValue::Document(operators)
                if operators.iter().any(|element| element.name().starts_with('$')) =>
            {
                self.operators(field, operators, path, depth)
            }
            value => Ok(Condition::Field(field, Test::In(vec![key(path, value)?]))),
        }
    }

    fn operators(
        &mut self,
        field: usize,
        operators: RawDoc<'_>,
        path: &FieldPath,
        depth: usize,
    ) -> Result<Condition> {
        // Repeated operators are refused.
        let mut members = Fields::new(operators, path.clone())?;
        let mut parts = Vec::new();
        for element in operators {
            let inner = path.field(element.name());
            self.count(&inner, depth)?;
            if let Some(value) = members.any(element.name()) {
                parts.push(self.operator(field, element.name(), value, &inner, depth)?);
            }
        }
        match parts.len() {
            0 => Err(path.refuse(format_args!("at least one of [{OPERATORS}] must be present"))),
            1 => Ok(parts.remove(0)),
            _ => Ok(Condition::And(parts)),
        }
    }

    fn operator(
        &mut self,
        field: usize,
        name: &str,
        value: RawValue<'_>,
        path: &FieldPath,
        depth: usize,
    ) -> Result<Condition> {
        let not = |condition| Condition::Not(Box::new(condition));
        Ok(match name {
            "$eq" => Condition::Field(field, Test::In(vec![key(path, value)?])),
            "$ne" => not(Condition::Field(field, Test::In(vec![key(path, value)?]))),
            "$in" => Condition::Field(field, Test::In(self.keys(value, path, depth)?)),
            "$nin" => not(Condition::Field(field, Test::In(self.keys(value, path, depth)?))),
            "$gt" | "$gte" | "$lt" | "$lte" => range(field, name, value, path)?,
            "$exists" => match value {
                RawValue::Bool(true) => Condition::Field(field, Test::Exists),
                RawValue::Bool(false) => not(Condition::Field(field, Test::Exists)),
                value => return Err(path.wrong_type("boolean", value)),
            },
            "$not" => match value {
                RawValue::Document(operators) => {
                    self.count(path, depth + 1)?;
                    not(self.operators(field, operators, path, depth + 1)?)
                }
                value => return Err(path.wrong_type("document", value)),
            },
            _ => {
                let text = format!("is not one of the operators [{OPERATORS}]");
                return Err(path.refuse(text));
            }
        })
    }

    fn keys(
        &mut self,
        value: RawValue<'_>,
        path: &FieldPath,
        depth: usize,
    ) -> Result<Vec<Vec<u8>>> {
        let RawValue::Array(items) = value else { return Err(path.wrong_type("array", value)) };
        if items.is_empty() {
            return Err(path.refuse("cannot be empty"));
        }
        let mut keys = Vec::new();
        for (at, element) in items.iter().enumerate() {
            self.count(path, depth)?;
            keys.push(key(&path.item(at), element.value())?);
        }
        Ok(keys)
    }
}

fn key(path: &FieldPath, value: RawValue<'_>) -> Result<Vec<u8>> {
    if is_comparable(value) {
        return Ok(key_of(value));
    }
    Err(path.refuse(format_args!("must be a {COMPARABLE}")))
}

/// The values of the same type on one side of a value.
fn range(field: usize, name: &str, value: RawValue<'_>, path: &FieldPath) -> Result<Condition> {
    let bound = key(path, value)?;
    if matches!(value, RawValue::Null) {
        return Err(path.refuse("must be a boolean, date, number, objectId, string or UUID"));
    }
    let range = range_of(name.trim_start_matches('$'), value, bound);
    Ok(Condition::Field(field, Test::Range(range)))
}
