//! BSON to JSON for the page: numbers as numbers, dates as milliseconds since 1970, and all other
//! types as the page shows them.

use mayfly_value::{RawDoc, RawValue};
use serde_json::{Map, Value, json};

/// The longest text of a value that the page shows, in bytes.
const MAX_TEXT_BYTES: usize = 4096;

/// A document as an object.
pub(super) fn object(doc: RawDoc<'_>) -> Value {
    let fields = doc.iter().map(|element| (element.name().to_owned(), value(element.value())));
    Value::Object(fields.collect::<Map<_, _>>())
}

/// The elements of an array as an array.
pub(super) fn array(doc: RawDoc<'_>) -> Value {
    Value::Array(doc.iter().map(|element| value(element.value())).collect())
}

/// A value.
pub(super) fn value(of: RawValue<'_>) -> Value {
    match of {
        RawValue::Null | RawValue::Undefined => Value::Null,
        RawValue::Bool(flag) => json!(flag),
        RawValue::Int32(number) => json!(number),
        RawValue::Int64(number) => json!(number),
        // JSON has neither infinity nor NaN.
        RawValue::Double(number) => json!(number),
        RawValue::Date(ms) => json!(ms),
        RawValue::String(text) => json!(shortened(text)),
        RawValue::Document(doc) => object(doc),
        RawValue::Array(doc) => array(doc),
        RawValue::Timestamp(time) => json!((time >> 32) * 1000),
        other => json!(shortened(&format!("{other:?}"))),
    }
}

/// A command as text, shortened and without the fields that drivers add to every command.
pub(super) fn text(command: RawDoc<'_>) -> String {
    let own = command.iter().filter(|it| !it.name().starts_with('$') && it.name() != "lsid");
    let fields: Map<String, Value> =
        own.map(|element| (element.name().to_owned(), value(element.value()))).collect();
    match fields.is_empty() {
        true => String::new(),
        false => shortened(&Value::Object(fields).to_string()),
    }
}

/// The beginning of a long text.
pub(super) fn shortened(text: &str) -> String {
    if text.len() <= MAX_TEXT_BYTES {
        return text.to_owned();
    }
    let mut end = MAX_TEXT_BYTES;
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    format!("{}…", &text[..end])
}

#[cfg(test)]
mod tests {
    use mayfly_value::DocBuf;
    use mayfly_value::bson::{Bson, DateTime, doc};

    use super::*;

    #[test]
    fn values_that_json_lacks_are_numbers_or_text() {
        let all = doc! {
            "a": f64::NAN, "b": DateTime::from_millis(7), "c": [1, "x"], "d": { "e": true },
            "f": Bson::Null, "g": i64::MAX,
        };
        let shown = object(DocBuf::from_bson(&all).as_doc()).to_string();
        let expected =
            r#"{"a":null,"b":7,"c":[1,"x"],"d":{"e":true},"f":null,"g":9223372036854775807}"#;
        assert_eq!(shown, expected);
    }

    #[test]
    fn a_long_text_is_cut_between_characters() {
        let long = "é".repeat(MAX_TEXT_BYTES);
        let cut = shortened(&long);
        assert!(cut.len() < MAX_TEXT_BYTES + 8 && cut.ends_with('…'));
        let command = doc! { "find": "c", "lsid": 1, "$db": "test" };
        assert_eq!(text(DocBuf::from_bson(&command).as_doc()), r#"{"find":"c"}"#);
    }
}
