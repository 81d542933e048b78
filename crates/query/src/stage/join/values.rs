//! The join values of a document, and the filter for them.

use mayfly_value::paths::array_index;
use mayfly_value::{DocBuf, DocBuilder, RawDoc, RawValue, ValueBuf};

/// The join values of a document: array items are separate values, and a missing field counts as
/// null.
pub(crate) fn local_values(document: RawDoc<'_>, path: &[String]) -> Vec<ValueBuf> {
    let mut values = Vec::new();
    collect(RawValue::Document(document), path, &mut values);
    values
}

/// Collects the values that a path reaches. Unlike in a filter, an array at a position that the
/// path ends in is several values, too.
fn collect(value: RawValue<'_>, path: &[String], out: &mut Vec<ValueBuf>) {
    let mut add = |value: RawValue<'_>| match value {
        RawValue::Undefined => out.push(RawValue::Null.to_owned()),
        value => out.push(value.to_owned()),
    };
    match (value, path.split_first()) {
        (RawValue::Array(items), None) => items.iter().for_each(|item| add(item.value())),
        (value, None) => add(value),
        (RawValue::Document(inner), Some((name, rest))) => {
            if let Some(next) = inner.get(name) {
                collect(next, rest, out);
            }
        }
        (RawValue::Array(items), Some((name, rest))) => {
            if let Some(item) = array_index(name).and_then(|at| items.iter().nth(at)) {
                collect(item.value(), rest, out);
            }
            for item in items.iter() {
                if let RawValue::Document(_) = item.value() {
                    collect(item.value(), path, out);
                }
            }
        }
        (_, Some(_)) => {}
    }
}

/// The filter `{ field: one of the values }`.
pub(crate) fn equality_filter(field: &str, values: &[ValueBuf]) -> DocBuf {
    let mut out = DocBuilder::new();
    let is_pattern = |value: &ValueBuf| matches!(value.as_raw(), RawValue::Regex { .. });
    if let [value] = values {
        out.start_document(field).append("$eq", value).end();
    } else if values.iter().any(is_pattern) {
        // Inside `$in` a regular expression would be matched instead of compared.
        out.start_array("$or");
        for value in values {
            out.push_document().start_document(field).append("$eq", value).end().end();
        }
        out.end();
    } else {
        out.start_document(field).start_array("$in");
        for value in values {
            out.push(value);
        }
        out.end().end();
    }
    out.finish()
}
