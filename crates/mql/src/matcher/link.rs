//! DBRefs in filters: `{$ref: ..., $id: ..., $db: ...}` is a value, although its names begin with
//! `$`.
//!
//! A value must be a complete DBRef, with `$ref` and `$id`, to be distinguished from operators. In
//! a condition on documents (`$elemMatch`), each field of a DBRef is a condition of its own.

use mayfly_value::paths::LINK_FIELDS;
use mayfly_value::{RawDoc, RawValue};

/// How many fields of a DBRef a document has, ignoring other fields.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum LinkParts {
    /// No field of a DBRef, or one of a wrong type.
    None,
    /// Some fields, but not both `$ref` and `$id`.
    Some,
    /// `$ref` and `$id`, in any order.
    All,
}

/// Examines the fields of a DBRef; `$ref` and `$db` must be strings.
pub(super) fn link_parts(doc: RawDoc<'_>) -> LinkParts {
    let (mut has_ref, mut has_id, mut has_db) = (false, false, false);
    for element in doc {
        match (element.name(), element.value()) {
            ("$ref", RawValue::String(_)) => has_ref = true,
            ("$db", RawValue::String(_)) => has_db = true,
            ("$ref", _) if !has_ref => return LinkParts::None,
            ("$db", _) if !has_db => return LinkParts::None,
            ("$id", _) => has_id = true,
            _ => {}
        }
        if has_ref && has_id {
            return LinkParts::All;
        }
    }
    if has_ref || has_id || has_db { LinkParts::Some } else { LinkParts::None }
}

/// Whether a document consists of operators (its first field begins with `$`), and is not a
/// literal. A DBRef is a literal.
pub fn is_operator_document(doc: RawDoc<'_>) -> bool {
    let first = doc.iter().next();
    first.is_some_and(|first| first.name_bytes().starts_with(b"$"))
        && link_parts(doc) != LinkParts::All
}

/// Whether a name is a field of a DBRef.
pub(super) fn is_link_field(name: &str) -> bool {
    LINK_FIELDS.contains(&name)
}
