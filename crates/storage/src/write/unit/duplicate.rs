//! The error for a document whose key in a unique index belongs to another document.

use std::sync::Arc;

use mayfly_base::{Error, ErrorCode};
use mayfly_value::shell::{Shell, ShellValue};
use mayfly_value::{Collation, DocBuf, DocBuilder, RawDoc, RawValue};

use crate::catalog::Index;

/// The error for a document whose key in a unique index belongs to another document.
pub(crate) fn duplicate_key(ns: &str, index: &Index, document: RawDoc<'_>) -> Error {
    let mut value = DocBuilder::new();
    for field in index.spec.fields() {
        let found = plain_value(document, &field.parts);
        value.append(&field.path, found);
    }
    let pattern = index.spec.key().to_owned();
    let collation = index.spec.collation();
    duplicate(ns, index.spec.name(), &pattern, value.finish(), collation)
}

pub(super) fn duplicate(
    ns: &str,
    index: &str,
    pattern: &DocBuf,
    value: DocBuf,
    collation: Option<&Arc<Collation>>,
) -> Error {
    let (value, under) = match collation {
        None => (value, String::new()),
        Some(collation) => {
            let under = format!(" collation: {}", Shell(collation.document()));
            (collated_value(&value, collation), under)
        }
    };
    let shown = value
        .as_doc()
        .iter()
        .map(|element| format!("{}: {}", element.name(), ShellValue(element.value())))
        .collect::<Vec<_>>()
        .join(", ");
    let mut extra = DocBuilder::new();
    extra.append("keyPattern", pattern).append("keyValue", &value);
    if let Some(collation) = collation {
        extra.append("collation", collation.document());
    }
    let text = format!(
        "E11000 duplicate key error collection: {ns} index: {index}{under} dup key: {{ {shown} }}"
    );
    Error::new(ErrorCode::DuplicateKey, text).with_extra(extra.finish().into_bytes())
}

/// The values as they are in an index with a collation: a string is replaced by its key in
/// hexadecimal digits.
fn collated_value(value: &DocBuf, collation: &Collation) -> DocBuf {
    let mut out = DocBuilder::new();
    for element in value.as_doc() {
        match element.value() {
            RawValue::String(text) => {
                out.append(element.name(), collation.key_hex(text).as_str());
            }
            _ => {
                out.append_element(element);
            }
        }
    }
    out.finish()
}

fn plain_value<'a>(document: RawDoc<'a>, parts: &[String]) -> RawValue<'a> {
    let mut value = RawValue::Document(document);
    for part in parts {
        match value.as_document().and_then(|inner| inner.get(part)) {
            Some(next) => value = next,
            None => return RawValue::Null,
        }
    }
    value
}
