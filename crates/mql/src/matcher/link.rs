//! Links to documents (DBRefs) in filters: `{$ref: ..., $id: ..., $db: ...}` is a value, although its names begin with `$`.
//!
//! A value has to be a whole link, with `$ref` and `$id`, to be told from operators. Where a condition is on documents and
//! not on a field (`$elemMatch`), each field of a link is a condition of its own.

use mayfly_value::paths::LINK_FIELDS;
use mayfly_value::{RawDoc, RawValue};

/// How much of a link a document has, whatever other fields it has.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum LinkParts {
    /// No field of a link, or one of a wrong type.
    None,
    /// Some fields, but not both `$ref` and `$id`.
    Some,
    /// `$ref` and `$id`, in any order.
    All,
}

/// Reads the fields of a link; `$ref` and `$db` must be strings.
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

/// Whether a document is a set of operators (its first field begins with `$`) and not a literal. A link is a literal.
pub fn is_operator_document(doc: RawDoc<'_>) -> bool {
    let first = doc.iter().next();
    first.is_some_and(|first| first.name_bytes().starts_with(b"$"))
        && link_parts(doc) != LinkParts::All
}

/// Whether a name is a field of a link.
pub(super) fn is_link_field(name: &str) -> bool {
    LINK_FIELDS.contains(&name)
}
