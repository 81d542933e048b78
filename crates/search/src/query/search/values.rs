//! `equals`, `in`, `range`, `exists`, `near`.

use mayfly_base::Result;
use mayfly_value::{RawValue, canonical_type};

use super::options::{items, number, strings};
use super::{Node, NumberKind, Reader};
use crate::definition::FieldType;
use crate::fault::{FieldPath, refused};
use crate::filter::Test;
use crate::filter::value::{is_comparable, key_of, range_of};
use crate::read::Fields;
use crate::text::lower_case;

/// Refuses the facets that an operator does not affect.
fn check_affected(fields: &mut Fields<'_>) -> Result<()> {
    match fields.value("doesNotAffect") {
        None => Ok(()),
        Some(_) => {
            let path = fields.path_of("doesNotAffect");
            Err(path.not_supported("a facet that an operator does not affect"))
        }
    }
}

impl Reader<'_> {
    pub(super) fn equals(&mut self, fields: &mut Fields<'_>) -> Result<Node> {
        let path = fields.text("path")?;
        let path = fields.required("path", path)?.to_owned();
        check_affected(fields)?;
        let value = fields.any("value");
        let value = fields.required("value", value)?;
        let key = self.key(&fields.path_of("value"), value, std::slice::from_ref(&path))?;
        Ok(Node::Values { paths: vec![path], test: Test::In(vec![key]) })
    }

    pub(super) fn is_in(&mut self, fields: &mut Fields<'_>) -> Result<Node> {
        check_affected(fields)?;
        let paths = strings(fields, "path")?;
        let mut keys = Vec::new();
        let mut first = None;
        for (path, value) in items(fields, "value")? {
            self.count(&path)?;
            let canonical = canonical_type(value.type_byte());
            if *first.get_or_insert(canonical) != canonical {
                return Err(path.refuse("must have the type of the first item"));
            }
            keys.push(self.key(&path, value, &paths)?);
        }
        Ok(Node::Values { paths, test: Test::In(keys) })
    }

    pub(super) fn exists(&mut self, fields: &mut Fields<'_>) -> Result<Node> {
        let path = fields.text("path")?;
        let path = fields.required("path", path)?.to_owned();
        Ok(Node::Values { paths: vec![path], test: Test::Exists })
    }

    pub(super) fn range(&mut self, fields: &mut Fields<'_>) -> Result<Node> {
        check_affected(fields)?;
        let paths = strings(fields, "path")?;
        let mut bounds = Vec::new();
        for pair in [["gt", "gte"], ["lt", "lte"]] {
            if pair.iter().all(|name| fields.has(name)) {
                let text = format!("at most one of [{}] may be present", pair.join(", "));
                return Err(fields.path().refuse(text));
            }
            for name in pair {
                if let Some(value) = fields.value(name) {
                    bounds.push((name, fields.path_of(name), value));
                }
            }
        }
        if bounds.is_empty() {
            return Err(fields.path().refuse("at least one of [gt, gte, lt, lte] must be present"));
        }
        let canonical = canonical_type(bounds[0].2.type_byte());
        let mut range: Option<std::ops::Range<Vec<u8>>> = None;
        for (name, path, value) in bounds {
            if canonical_type(value.type_byte()) != canonical {
                return Err(path.refuse("must have the same type as the other bound"));
            }
            let bound = self.key(&path, value, &paths)?;
            let added = range_of(name, value, bound);
            range = Some(match range {
                None => added,
                Some(std::ops::Range { start, end }) => start.max(added.start)..end.min(added.end),
            });
        }
        let range = range.unwrap_or_default();
        Ok(Node::Values { paths, test: Test::Range(range) })
    }

    pub(super) fn near(&mut self, fields: &mut Fields<'_>) -> Result<Node> {
        let paths = strings(fields, "path")?;
        let pivot = number(fields, "pivot")?;
        let pivot = fields.required("pivot", pivot)?;
        if pivot <= 0.0 {
            return Err(fields.path_of("pivot").refuse("must be positive"));
        }
        let path = fields.path_of("origin");
        let value = fields.value("origin");
        let value = fields.required("origin", value)?;
        let (origin, kind) = match value {
            RawValue::Date(time) => (time as f64, NumberKind::Date),
            RawValue::Document(_) => return Err(path.not_supported("a geographic point")),
            _ => (number(fields, "origin")?.unwrap_or(0.0), NumberKind::Number),
        };
        self.check_indexed(value, &paths)?;
        Ok(Node::Near { paths, origin, pivot, kind })
    }

    /// The key of an operand, which the paths must be indexed for.
    fn key(&self, path: &FieldPath, value: RawValue<'_>, paths: &[String]) -> Result<Vec<u8>> {
        if !is_comparable(value) {
            let text = "must be a boolean, date, number, objectId, string, UUID or null";
            return Err(path.refuse(text));
        }
        self.check_indexed(value, paths)?;
        if let RawValue::String(text) = value
            && self.is_lower_case(&paths[0])
        {
            return Ok(key_of(RawValue::String(&lower_case(text))));
        }
        Ok(key_of(value))
    }

    /// Whether strings at a path are indexed in lower case.
    fn is_lower_case(&self, path: &str) -> bool {
        let is_lower = |field_type: &FieldType| matches!(field_type, FieldType::Token(field) if field.is_lower_case);
        self.definition.types_at(path).iter().any(is_lower)
    }

    fn check_indexed(&self, value: RawValue<'_>, paths: &[String]) -> Result<()> {
        let (name, accepts): (&str, fn(&FieldType) -> bool) = match value {
            RawValue::Bool(_) => ("boolean", |field| matches!(field, FieldType::Boolean)),
            RawValue::Date(_) => ("date", |field| matches!(field, FieldType::Date)),
            RawValue::ObjectId(_) => ("objectId", |field| matches!(field, FieldType::ObjectId)),
            RawValue::String(_) => ("token", |field| matches!(field, FieldType::Token(_))),
            RawValue::Binary { .. } => ("uuid", |field| matches!(field, FieldType::Uuid)),
            RawValue::Null => return Ok(()),
            _ => ("number", |field| matches!(field, FieldType::Number(_))),
        };
        for path in paths {
            if !self.definition.types_at(path).iter().any(accepts) {
                return Err(refused(format!("Path '{path}' needs to be indexed as {name}")));
            }
        }
        Ok(())
    }
}
