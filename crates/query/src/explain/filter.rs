//! The shape of a filter: queries of one shape differ in nothing but values.

pub(super) use mayfly_mql::matcher::{condition_parts as parts, joined};
use mayfly_value::paths::is_dollar_name;
use mayfly_value::{DocBuf, RawDoc, RawValue};

/// A filter without its values: queries of one shape differ in nothing else.
pub(super) fn shape(conditions: &[DocBuf]) -> String {
    let mut out = String::new();
    for condition in conditions {
        append_shape(condition.as_doc(), &mut out);
    }
    out
}

fn append_shape(doc: RawDoc<'_>, out: &mut String) {
    for element in doc.iter() {
        out.push_str(element.name());
        out.push(' ');
        match (element.name(), element.value()) {
            ("$or" | "$nor" | "$and", RawValue::Array(parts)) => {
                for part in parts.iter().filter_map(|part| part.value().as_document()) {
                    out.push('(');
                    append_shape(part, out);
                    out.push(')');
                }
            }
            (name, RawValue::Document(inner)) if !is_dollar_name(name) || name == "$not" => {
                append_shape(inner, out);
            }
            _ => {}
        }
    }
}
