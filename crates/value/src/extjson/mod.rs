//! Extended JSON version 2, written (relaxed or canonical) and read (both, and a shell-like dialect
//! with bare keys and single quotes), for tests, logs and files. Not for the wire.
//!
//! Not the extended JSON of the `bson` crate: that builds a tree of `Bson` and one of `serde_json`
//! for every document, loses duplicate fields, does not read the dialect, and does not write
//! version 1, which the audit log uses. Archives write a line of it for every document that
//! expires.

mod json;
mod read;
mod write;

pub use read::{ExtJsonError, parse_document, parse_value};
pub use write::{Style, to_string, value_to_string};

#[cfg(test)]
mod tests {
    use super::*;

    /// Manual: "System Event Audit Messages"; MongoDB Extended JSON (v1), "Strict Mode".
    #[test]
    fn the_first_version_is_written() {
        let text = r#"{"n":1,"l":{"$numberLong":"5"},"d":{"$date":"2021-08-09T13:45:05.072Z"},
            "b":{"$binary":{"base64":"AQIDBA==","subType":"04"}},
            "r":{"$regularExpression":{"pattern":"a","options":"i"}}}"#;
        let expected = r#"{"n":1,"l":{"$numberLong":"5"},"d":{"$date":"2021-08-09T13:45:05.072+00:00"},"b":{"$binary":"AQIDBA==","$type":"04"},"r":{"$regex":"a","$options":"i"}}"#;
        assert_eq!(to_string(parse_document(text).unwrap().as_doc(), Style::First), expected);
    }

    /// Canonical text, and the relaxed text where it differs. Specification: "MongoDB Extended JSON
    /// (v2)".
    #[test]
    fn texts_round_trip() {
        let cases = [
            (r#"{"a":{"$numberInt":"1"}}"#, r#"{"a":1}"#),
            (r#"{"a":{"$numberLong":"5"}}"#, r#"{"a":5}"#),
            (r#"{"a":{"$numberDouble":"-0.0"}}"#, r#"{"a":-0.0}"#),
            (r#"{"a":{"$numberDouble":"1.5"}}"#, r#"{"a":1.5}"#),
            (r#"{"a":{"$numberDouble":"NaN"}}"#, r#"{"a":{"$numberDouble":"NaN"}}"#),
            (r#"{"a":{"$numberDecimal":"1.50"}}"#, r#"{"a":{"$numberDecimal":"1.50"}}"#),
            (r#"{"a":"x\"\n\u0001"}"#, r#"{"a":"x\"\n\u0001"}"#),
            (r#"{"a":[true,null,{"b":{}}]}"#, r#"{"a":[true,null,{"b":{}}]}"#),
            (
                r#"{"a":{"$date":{"$numberLong":"1356351330501"}}}"#,
                r#"{"a":{"$date":"2012-12-24T12:15:30.501Z"}}"#,
            ),
            (r#"{"a":{"$date":{"$numberLong":"-1"}}}"#, r#"{"a":{"$date":{"$numberLong":"-1"}}}"#),
            (
                r#"{"a":{"$oid":"56e1fc72e0c917e9c4714161"}}"#,
                r#"{"a":{"$oid":"56e1fc72e0c917e9c4714161"}}"#,
            ),
            (
                r#"{"a":{"$binary":{"base64":"AQIDBA==","subType":"00"}}}"#,
                r#"{"a":{"$binary":{"base64":"AQIDBA==","subType":"00"}}}"#,
            ),
            (
                r#"{"a":{"$regularExpression":{"pattern":"a","options":"i"}}}"#,
                r#"{"a":{"$regularExpression":{"pattern":"a","options":"i"}}}"#,
            ),
            (r#"{"a":{"$timestamp":{"t":42,"i":1}}}"#, r#"{"a":{"$timestamp":{"t":42,"i":1}}}"#),
            (
                r#"{"a":{"$minKey":1},"b":{"$maxKey":1}}"#,
                r#"{"a":{"$minKey":1},"b":{"$maxKey":1}}"#,
            ),
            (r#"{"a":{"$symbol":"s"}}"#, r#"{"a":{"$symbol":"s"}}"#),
            (r#"{"a":{"$undefined":true}}"#, r#"{"a":{"$undefined":true}}"#),
            (
                r#"{"a":{"$code":"f()","$scope":{"x":{"$numberInt":"1"}}}}"#,
                r#"{"a":{"$code":"f()","$scope":{"x":1}}}"#,
            ),
            (r#"{"a":{"$code":"f()"}}"#, r#"{"a":{"$code":"f()"}}"#),
            (
                r#"{"a":{"$dbPointer":{"$ref":"b.c","$id":{"$oid":"56e1fc72e0c917e9c4714161"}}}}"#,
                r#"{"a":{"$dbPointer":{"$ref":"b.c","$id":{"$oid":"56e1fc72e0c917e9c4714161"}}}}"#,
            ),
        ];
        for (canonical, relaxed) in cases {
            let doc = parse_document(canonical).unwrap();
            assert_eq!(to_string(doc.as_doc(), Style::Canonical), canonical);
            assert_eq!(to_string(doc.as_doc(), Style::Relaxed), relaxed);
            assert!(crate::validate(doc.as_bytes(), 200).is_ok(), "{canonical}");
            assert!(parse_document(relaxed).is_ok(), "{relaxed}");
        }
    }

    #[test]
    fn shell_dialect_and_errors() {
        let doc = parse_document("{a: 1, $b: 'x', c: [3000000000, 1.0,],}").unwrap();
        assert_eq!(format!("{doc:?}"), "{\"a\": 1, \"$b\": \"x\", \"c\": [ 3000000000, 1.0 ]}");
        let digits = "{a: {$binary: {base64: 'MC==', subType: '00'}}}";
        let read = parse_document(digits).unwrap();
        let written = r#"{"a":{"$binary":{"base64":"MA==","subType":"00"}}}"#;
        assert_eq!(to_string(read.as_doc(), Style::Relaxed), written);
        for bad in
            ["", "{", "{a}", "{a:1} x", "[1]", "{a: {$oid: 'x'}}", "{a: \"\\u12\"}", "{a: -}"]
        {
            assert!(parse_document(bad).is_err(), "{bad}");
        }
        assert!(parse_document(&"{a:".repeat(1000)).is_err());
    }
}
