//! Sort patterns, and the sort keys of documents.
//!
//! A document's sort key is one byte string: the ordered key of each field, inverted where the
//! pattern is descending. Of an array the least item counts when ascending, the greatest when
//! descending; an empty array sorts as undefined, a missing field as null. A field of the pattern
//! can also be metadata of the document: `{ score: { $meta: "textScore" } }`.

use std::cmp::Ordering;
use std::sync::Arc;

use mayfly_base::{Error, ErrorCode, Result};
use mayfly_expr::op::check_metadata;
use mayfly_expr::{Frame, Scope};
use mayfly_value::arguments::convert::whole_number;
use mayfly_value::keys::{TypeBits, append_value_in};
use mayfly_value::paths::{array_index, check_field_path, check_positions, visit_index_values};
use mayfly_value::shell::ShellValue;
use mayfly_value::{
    Collation, DocBuf, DocBuilder, Number, RawDoc, RawElement, RawValue, SortOrder,
    compare_values_in,
};

use crate::FieldPath;

/// Most fields of a pattern.
const MAX_SORT_FIELDS: usize = mayfly_base::limits::MAX_INDEX_FIELDS;

/// One field of a pattern.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SortField {
    /// The path to sort by; for metadata a path that no document has.
    pub path: FieldPath,
    /// The order of its values.
    pub order: SortOrder,
    /// The name in `$meta`, if the document is sorted by metadata.
    pub metadata: Option<&'static str>,
}

/// A parsed sort pattern.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SortPattern {
    fields: Vec<SortField>,
    collation: Option<Arc<Collation>>,
    /// Whether a path contains an array position.
    has_positions: bool,
}

impl SortPattern {
    /// Parses a pattern such as `{a: 1, b: -1}`; an empty pattern keeps the order.
    ///
    /// # Errors
    /// Errors of [`SortPattern::parse_in`].
    pub fn parse(pattern: RawDoc<'_>) -> Result<SortPattern> {
        SortPattern::parse_in(pattern, &Scope::default())
    }

    /// The same with the metadata available in a scope.
    ///
    /// # Errors
    /// 15974, 15975 for invalid orders, 7472500 for duplicates, 17312, 31138, 40218 for an invalid
    /// `$meta`, errors of paths.
    pub fn parse_in(pattern: RawDoc<'_>, scope: &Scope) -> Result<SortPattern> {
        let mut fields: Vec<SortField> = Vec::new();
        for element in pattern.iter() {
            let field = parse_field(element, scope)?;
            if fields.len() == MAX_SORT_FIELDS {
                let text = format!("too many fields in sort pattern, at most {MAX_SORT_FIELDS}");
                return Err(Error::bad_value(text));
            }
            if fields.iter().any(|have| have.path == field.path) {
                let text =
                    format!("$sort key must not contain duplicate keys (field: '{}')", field.path);
                return Err(Error::new(ErrorCode(7472500), text));
            }
            fields.push(field);
        }
        let has_positions =
            fields.iter().any(|it| it.path.parts().iter().any(|part| array_index(part).is_some()));
        Ok(SortPattern { fields, collation: None, has_positions })
    }

    /// The same pattern with strings compared by a collation.
    #[must_use]
    pub fn collated(self, collation: Option<Arc<Collation>>) -> SortPattern {
        SortPattern { collation, ..self }
    }

    /// The fields, the most significant first.
    pub fn fields(&self) -> &[SortField] {
        &self.fields
    }

    /// The pattern as a document.
    pub fn to_document(&self) -> DocBuf {
        let mut out = DocBuilder::new();
        for field in &self.fields {
            match field.metadata {
                None => out.append(field.path.as_str(), field.order.sign()),
                Some(name) => out.start_document(field.path.as_str()).append("$meta", name).end(),
            };
        }
        out.finish()
    }

    /// Whether it has no fields.
    pub fn is_empty(&self) -> bool {
        self.fields.is_empty()
    }

    /// Whether it sorts by metadata.
    pub fn has_metadata(&self) -> bool {
        self.fields.iter().any(|field| field.metadata.is_some())
    }

    /// The sort key of a document: bytes ordered as this pattern orders documents.
    pub fn sort_key<'a>(&self, doc: impl Into<Frame<'a>>) -> Vec<u8> {
        let mut key = Vec::with_capacity(16 * self.fields.len());
        self.append_sort_key(doc, &mut key);
        key
    }

    /// Refuses a document that a path with a position is ambiguous in.
    ///
    /// # Errors
    /// 16746.
    pub fn check(&self, doc: RawDoc<'_>) -> Result<()> {
        if !self.has_positions {
            return Ok(());
        }
        let of_documents = self.fields.iter().filter(|field| field.metadata.is_none());
        for field in of_documents {
            check_positions(RawValue::Document(doc), field.path.parts())?;
        }
        Ok(())
    }

    /// The values by which the pattern orders a document, as an array.
    pub fn key_values<'a>(&self, doc: impl Into<Frame<'a>>) -> DocBuf {
        let frame = doc.into();
        let mut out = DocBuilder::new_array();
        for field in &self.fields {
            out.push(self.value_of(field, frame));
        }
        out.finish()
    }

    fn value_of<'a>(&self, field: &SortField, frame: Frame<'a>) -> RawValue<'a> {
        match field.metadata {
            None => sort_value(frame.root(), field, self.collation.as_deref()),
            Some(name) => {
                let value = frame.metadata().and_then(|metadata| metadata.get(name));
                value.unwrap_or(RawValue::Null)
            }
        }
    }

    /// Appends the sort key to a buffer.
    pub fn append_sort_key<'a>(&self, doc: impl Into<Frame<'a>>, key: &mut Vec<u8>) {
        let frame = doc.into();
        // Equal numbers of different types sort equally, so the type bits are not needed.
        let mut bits = TypeBits::new();
        let collation = self.collation.as_deref();
        for field in &self.fields {
            append_value_in(key, &mut bits, self.value_of(field, frame), field.order, collation);
        }
    }
}

fn parse_field(element: RawElement<'_>, scope: &Scope) -> Result<SortField> {
    let name = element.name();
    if name.is_empty() {
        let text = "FieldPath cannot be constructed with empty string";
        return Err(Error::new(ErrorCode(40352), text));
    }
    let order = match element.value() {
        RawValue::Document(meta) => return parse_metadata(meta, scope),
        // A double is truncated, and a decimal rounded.
        value => match Number::from_value(value).map(|_| whole_number(value)) {
            Some(Some(1)) => SortOrder::Ascending,
            Some(Some(-1)) => SortOrder::Descending,
            Some(_) => {
                let text = "$sort key ordering must be 1 (for ascending) or -1 (for descending)";
                return Err(Error::new(ErrorCode(15975), text));
            }
            None => {
                let shown = ShellValue(value);
                let text = format!("Illegal key in $sort specification: {name}: {shown}");
                return Err(Error::new(ErrorCode(15974), text));
            }
        },
    };
    check_field_path(name)?;
    Ok(SortField { path: FieldPath::new(name)?, order, metadata: None })
}

/// Parses `{ $meta: "textScore" }`: the best score comes first.
fn parse_metadata(meta: RawDoc<'_>, scope: &Scope) -> Result<SortField> {
    let fault = |code: i32, text: &str| Err(Error::new(ErrorCode(code), text));
    let mut fields = meta.iter();
    let Some(field) = fields.next().filter(|field| field.name() == "$meta") else {
        return fault(17312, "$meta is the only expression supported by $sort right now");
    };
    if fields.next().is_some() {
        let text = "Cannot have additional keys in a $meta sort specification";
        return Err(Error::failed_to_parse(text));
    }
    let asked = check_metadata(field.value(), scope)?;
    let Some((name, order)) = SORTED_METADATA.iter().find(|(name, _)| *name == asked) else {
        return fault(31138, &format!("Illegal $meta sort: $meta: \"{asked}\""));
    };
    let path = FieldPath::new(&format!("$meta {name}"))?;
    Ok(SortField { path, order: *order, metadata: Some(name) })
}

/// Metadata that can be sorted by, and in which order.
const SORTED_METADATA: &[(&str, SortOrder)] = &[
    ("textScore", SortOrder::Descending),
    ("geoNearDistance", SortOrder::Descending),
    ("score", SortOrder::Descending),
    ("randVal", SortOrder::Descending),
    ("indexKey", SortOrder::Descending),
    ("searchScore", SortOrder::Descending),
    ("vectorSearchScore", SortOrder::Descending),
    ("searchHighlights", SortOrder::Descending),
];

/// The value of a field that determines the order.
fn sort_value<'a>(
    doc: RawDoc<'a>,
    field: &SortField,
    collation: Option<&Collation>,
) -> RawValue<'a> {
    if let Some(name) = field.path.as_single() {
        match doc.get(name) {
            Some(RawValue::Array(_)) => {}
            value => return value.unwrap_or(RawValue::Null),
        }
    }
    let mut best = None;
    visit_index_values(doc, field.path.parts(), &mut |value| {
        best = Some(better(best, value, field, collation))
    });
    best.unwrap_or(RawValue::Null)
}

/// The one of two values that sorts first in the field's direction.
fn better<'a>(
    best: Option<RawValue<'a>>,
    value: RawValue<'a>,
    field: &SortField,
    collation: Option<&Collation>,
) -> RawValue<'a> {
    let Some(best) = best else {
        return value;
    };
    let preferred = field.order.apply(Ordering::Less);
    if compare_values_in(value, best, collation) == preferred { value } else { best }
}

#[cfg(test)]
mod tests {
    use mayfly_value::extjson::parse_document;

    use super::*;

    fn check(pattern: &str, ascending_docs: &[&str]) {
        let pattern = parse_document(pattern).unwrap();
        let pattern = SortPattern::parse(pattern.as_doc()).unwrap();
        let key = |doc: &&str| pattern.sort_key(parse_document(doc).unwrap().as_doc());
        let keys: Vec<_> = ascending_docs.iter().map(key).collect();
        assert!(keys.windows(2).all(|pair| pair[0] < pair[1]), "{ascending_docs:?} {keys:?}");
    }

    /// Manual: "cursor.sort(): Ascending/Descending Sort", "Sort on array fields".
    #[test]
    fn documents_sort() {
        check("{a: 1}", &["{a: []}", "{}", "{a: 1}", "{a: [7, 2]}", "{a: 3}", "{a: 'x'}"]);
        check("{a: -1}", &["{a: 'x'}", "{a: [7, 2]}", "{a: 3}", "{a: 1}", "{}", "{a: []}"]);
        check("{a: 1, b: -1}", &["{a: 1, b: 2}", "{a: 1, b: 1}", "{a: 2, b: 9}"]);
        check("{'a.b': 1}", &["{a: [{b: 3}, {b: 1}]}", "{a: {b: 2}}", "{a: [{b: 4}]}"]);
        check("{'a.b': 1}", &["{a: [{b: 3}, 5]}", "{a: {b: 2}}"]);
        check("{'a.b': -1}", &["{a: [{b: 3}, {b: 1}]}", "{a: {b: 2}}", "{a: 5}"]);
    }

    #[test]
    fn errors() {
        let cases = [
            ("{a: 2}", 15975),
            ("{a: 'x'}", 15974),
            ("{a: {$meta: 'textScore'}}", 40218),
            ("{a: {$meta: 'foo'}}", 17308),
            ("{a: {$foo: 1}}", 17312),
            ("{a: {$meta: 'textScore', b: 1}}", 9),
            ("{'': 1}", 40352),
            ("{'a.': 1}", 40353),
            ("{'a..b': 1}", 15998),
            ("{$a: 1}", 16410),
        ];
        for (pattern, code) in cases {
            let pattern = parse_document(pattern).unwrap();
            let error = SortPattern::parse(pattern.as_doc()).unwrap_err();
            assert_eq!(error.code().0, code, "{pattern:?}");
        }
    }
}
