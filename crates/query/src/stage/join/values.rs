//! The join values of a document, and the filter for them.

use std::ops::ControlFlow;

use mayfly_value::paths::{Hit, visit_path};
use mayfly_value::{DocBuf, DocBuilder, RawDoc, RawValue, ValueBuf};

/// The join values of a document: array items are separate values, and a missing field counts as
/// null.
pub(crate) fn local_values(document: RawDoc<'_>, path: &[String]) -> Vec<ValueBuf> {
    let mut values = Vec::new();
    let _ = visit_path(document, path, &mut |hit| {
        match hit {
            Hit::Value(RawValue::Array(_), false) | Hit::Missing => {}
            Hit::Value(RawValue::Undefined, _) => values.push(RawValue::Null.to_owned()),
            Hit::Value(value, _) => values.push(value.to_owned()),
        }
        ControlFlow::Continue(())
    });
    values
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
