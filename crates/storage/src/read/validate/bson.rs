//! Checks of stored documents: unreadable bytes, and readable ones that violate the rules of BSON.

use std::collections::HashSet;

use mayfly_base::limits::MAX_BSON_DEPTH;
use mayfly_value::{RawDoc, RawValue, validate};

/// Whether the document's bytes are well-formed.
pub(super) fn is_readable(document: RawDoc<'_>) -> bool {
    validate(document.as_bytes(), MAX_BSON_DEPTH).is_ok()
}

/// Whether no document in it repeats a name, and all arrays number their items from 0. The document
/// is readable, and so not too deep.
pub(super) fn is_conformant(document: RawDoc<'_>) -> bool {
    let mut names = HashSet::new();
    document.iter().all(|element| names.insert(element.name_bytes()) && inner(element.value()))
}

fn inner(value: RawValue<'_>) -> bool {
    match value {
        RawValue::Document(document) => is_conformant(document),
        RawValue::Array(items) => items
            .iter()
            .enumerate()
            .all(|(at, item)| item.name() == at.to_string() && inner(item.value())),
        RawValue::CodeWithScope { scope, .. } => is_conformant(scope),
        _ => true,
    }
}
