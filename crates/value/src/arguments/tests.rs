//! Declared arguments: order of the checks, codes, texts, conversions.

use mayfly_base::ErrorCode;

use super::convert::{truth, whole_number};
use super::{Argument, Fields, Form};
use crate::{DocBuf, RawValue};

const OPTIONS: &[Argument] =
    &[Argument::whole("batchSize").at_least(0), Argument::bool("strict").null_is_value()];
const DECLARED: &[Argument] = &[
    Argument::any("key").required(),
    Argument::document("filter").null_is_value(),
    Argument::whole("limit").at_least(0).at_most(10),
    Argument::flag("flag"),
    Argument::new("id", Form::Int64),
    Argument::one_of("hint", &[Form::String, Form::Document]),
    Argument::choice("mode", &["a", "b"]),
    Argument::fields("cursor", OPTIONS),
    Argument::string("odd").refused_with(51178, "odd must be a string, but found: {}"),
];

fn doc(text: &str) -> DocBuf {
    crate::extjson::parse_document(text).unwrap()
}

fn refusal(text: &str) -> (i32, String) {
    match Fields::read(doc(text).as_doc(), "c", DECLARED) {
        Ok(_) => (0, String::new()),
        Err(error) => (error.code().0, error.message().to_owned()),
    }
}

#[test]
fn the_first_wrong_field_decides() {
    assert_eq!(refusal(r#"{"limit": "x", "foo": 1}"#).0, 14);
    assert_eq!(refusal(r#"{"foo": 1, "limit": "x"}"#).0, 40415);
    assert_eq!(refusal(r#"{"limit": 1, "limit": 2}"#).0, 40413);
    // Missing fields come last.
    assert_eq!(refusal(r#"{"limit": 1}"#).0, 40414);
    assert_eq!(refusal(r#"{"key": null, "limit": 1}"#).0, 0);
}

#[test]
fn errors_are_worded_like_the_reference() {
    let cases = [
        (
            r#"{"limit": "x"}"#,
            "BSON field 'c.limit' is the wrong type 'string', expected types '[long, int, decimal, double']",
        ),
        (
            r#"{"filter": null}"#,
            "BSON field 'c.filter' is the wrong type 'null', expected type 'object'",
        ),
        (
            r#"{"hint": 1}"#,
            "BSON field 'c.hint' is the wrong type 'int', expected types '[string, object']",
        ),
        (r#"{"limit": -1}"#, "BSON field 'limit' value must be >= 0, actual value '-1'"),
        (r#"{"limit": 11}"#, "BSON field 'limit' value must be <= 10, actual value '11'"),
        (r#"{"mode": "c"}"#, "Enumeration value 'c' for field 'c.mode' is not a valid value."),
        (r#"{"cursor": {"x": 1}}"#, "BSON field 'c.cursor.x' is an unknown field."),
        (
            r#"{"cursor": {"strict": 1}}"#,
            "BSON field 'c.cursor.strict' is the wrong type 'int', expected type 'bool'",
        ),
        (r#"{}"#, "BSON field 'c.key' is missing but a required field"),
        (r#"{"odd": true}"#, "odd must be a string, but found: bool"),
    ];
    for (text, expected) in cases {
        assert_eq!(refusal(text).1, expected, "{text}");
    }
}

#[test]
fn accepted_values() {
    for text in [
        r#"{"key": 1, "limit": null, "flag": null, "cursor": null, "mode": null}"#,
        r#"{"key": 1, "limit": 10.9, "flag": 0.5, "id": {"$numberLong": "1"}, "hint": "a"}"#,
        r#"{"key": 1, "hint": {}, "cursor": {"batchSize": null, "strict": false}, "mode": "b"}"#,
    ] {
        assert_eq!(refusal(text), (0, String::new()), "{text}");
    }
    let given = doc(r#"{"key": 1, "limit": {"$numberDecimal": "2.5"}, "gone": null, "flag": 2}"#);
    let fields = Fields::new(given.as_doc(), "c");
    assert_eq!(fields.long("limit").unwrap(), Some(2));
    assert_eq!(fields.bool("flag").unwrap(), Some(true));
    assert_eq!(fields.string("gone").unwrap(), None);
    assert_eq!(fields.required("gone").unwrap_err().code(), ErrorCode(40414));
}

#[test]
fn numbers_become_integers_and_booleans() {
    let of = |text: &str| doc(&format!(r#"{{"v": {text}}}"#));
    let decimal = |text: &str| of(&format!(r#"{{"$numberDecimal": "{text}"}}"#));
    let double = |text: &str| of(&format!(r#"{{"$numberDouble": "{text}"}}"#));
    let cases = [
        (double("1.9"), Some(1), true),
        (double("-1.9"), Some(-1), true),
        (double("NaN"), Some(0), true),
        (double("Infinity"), Some(i64::MAX), true),
        (double("-0.0"), Some(0), false),
        (decimal("1.5"), Some(2), true),
        (decimal("2.5"), Some(2), true),
        (decimal("0.51"), Some(1), true),
        (decimal("-0.6"), Some(-1), true),
        (decimal("0.5"), Some(0), true),
        (decimal("1E-6176"), Some(0), true),
        (decimal("-0"), Some(0), false),
        (decimal("NaN"), Some(0), true),
        (decimal("-Infinity"), Some(i64::MIN), true),
        (decimal("9223372036854775808"), Some(i64::MAX), true),
    ];
    for (given, whole, flag) in cases {
        let value = given.as_doc().get("v").unwrap();
        assert_eq!((whole_number(value), truth(value)), (whole, Some(flag)), "{given:?}");
    }
    assert_eq!(whole_number(RawValue::Bool(true)), None);
    assert_eq!(truth(RawValue::String("true")), None);
}
