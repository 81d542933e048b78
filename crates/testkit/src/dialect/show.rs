//! Formats values in the dialect.

use std::fmt::Write;

use mayfly_value::{RawDoc, RawValue};

/// Formats a document, so that [`super::document`] parses it again.
pub fn show(document: RawDoc<'_>) -> String {
    let mut out = String::new();
    show_document(document, &mut out);
    out
}

/// Formats a value, so that [`super::value`] parses it again.
pub fn show_value(value: RawValue<'_>) -> String {
    let mut out = String::new();
    show_into(value, &mut out);
    out
}

fn show_document(document: RawDoc<'_>, out: &mut String) {
    out.push('{');
    for (at, element) in document.iter().enumerate() {
        if at > 0 {
            out.push_str(", ");
        }
        let name = element.name();
        let bare = !name.is_empty()
            && !name.starts_with(|c: char| c.is_ascii_digit())
            && name.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '_' | '$'));
        out.push_str(&if bare { name.to_owned() } else { quoted(name) });
        out.push_str(": ");
        show_into(element.value(), out);
    }
    out.push('}');
}

fn show_into(value: RawValue<'_>, out: &mut String) {
    let text = match value {
        RawValue::MinKey => "MinKey".to_owned(),
        RawValue::Undefined => "undefined".to_owned(),
        RawValue::Null => "null".to_owned(),
        RawValue::Double(v) if v.is_nan() => "NaN".to_owned(),
        RawValue::Double(v) if v.is_infinite() => {
            if v > 0.0 { "Infinity" } else { "-Infinity" }.to_owned()
        }
        RawValue::Double(v) => format!("{v:?}"),
        RawValue::Int32(v) => v.to_string(),
        RawValue::Int64(v) => format!("NumberLong({v})"),
        RawValue::Decimal128(v) => {
            format!("NumberDecimal('{}')", mayfly_value::bson::Decimal128::from_bytes(v))
        }
        RawValue::String(v) => quoted(v),
        RawValue::Document(v) => return show_document(v, out),
        RawValue::Array(v) => {
            out.push('[');
            for (at, element) in v.iter().enumerate() {
                if at > 0 {
                    out.push_str(", ");
                }
                show_into(element.value(), out);
            }
            out.push(']');
            return;
        }
        RawValue::ObjectId(v) => format!("ObjectId('{}')", hex::encode(v)),
        RawValue::Bool(v) => v.to_string(),
        RawValue::Date(v) => format!("Date({v})"),
        RawValue::Timestamp(v) => format!("Timestamp({}, {})", v >> 32, v & 0xFFFF_FFFF),
        RawValue::Regex { pattern, options } => {
            format!("/{}/{options}", pattern.replace('/', "\\/"))
        }
        RawValue::MaxKey => "MaxKey".to_owned(),
        other => return show_as_json(other, out),
    };
    out.push_str(&text);
}

/// Types that scripts hardly ever have.
fn show_as_json(value: RawValue<'_>, out: &mut String) {
    use mayfly_value::extjson::{Style, value_to_string};
    out.push_str(&value_to_string(value, Style::Canonical));
}

/// A string literal.
pub(super) fn quoted(text: &str) -> String {
    let mut out = String::with_capacity(text.len() + 2);
    out.push('\'');
    for c in text.chars() {
        match c {
            '\'' | '\\' => out.extend(['\\', c]),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            c if (c as u32) < 0x20 => {
                let _ = write!(out, "\\u{:04x}", c as u32);
            }
            c => out.push(c),
        }
    }
    out.push('\'');
    out
}
