//! Results of schemas, one row for each keyword.

use mayfly_value::extjson::parse_document;

use super::*;

fn parse(schema: &str) -> Result<Schema> {
    Schema::parse(parse_document(schema).unwrap().as_doc())
}

fn check(schema: &str, yes: &[&str], no: &[&str]) {
    let parsed = parse(schema).unwrap();
    for (documents, expected) in [(yes, true), (no, false)] {
        for document in documents {
            let found = parsed.fits_document(parse_document(document).unwrap().as_doc());
            assert_eq!(found.unwrap(), expected, "{schema} on {document}");
        }
    }
}

/// Manual: "$jsonSchema", "Available Keywords".
#[test]
fn keywords() {
    check("{}", &["{}", "{a: 1}"], &[]);
    check("{type: 'object'}", &["{}"], &[]);
    check("{bsonType: 'string'}", &[], &["{}"]);
    check("{required: ['a', 'b']}", &["{a: 1, b: null}"], &["{a: 1}"]);
    let a = |inner: &str| format!("{{properties: {{a: {inner}}}}}");
    check(&a("{bsonType: 'int'}"), &["{}", "{a: 1}"], &["{a: 1.5}", "{a: 'x'}", "{a: null}"]);
    check(&a("{bsonType: ['int', 'null']}"), &["{a: null}"], &["{a: []}"]);
    check(&a("{type: 'number'}"), &["{a: 1.5}", "{a: {$numberDecimal: '1'}}"], &["{a: true}"]);
    check(&a("{type: ['boolean', 'array']}"), &["{a: true}", "{a: []}"], &["{a: {}}"]);
    check(
        &a("{enum: [1, {x: 1, y: 2}, [1, 2]]}"),
        &["{a: 1.0}", "{a: {y: 2, x: 1}}"],
        &["{a: 2}", "{a: [2, 1]}"],
    );
    check(
        &a("{minimum: 2}"),
        &["{a: 2}", "{a: 'x'}"],
        &["{a: 1.9}", "{a: {$numberDouble: 'NaN'}}"],
    );
    check(&a("{minimum: 2, exclusiveMinimum: true}"), &["{a: 3}"], &["{a: 2}"]);
    check(&a("{maximum: 2, exclusiveMaximum: true}"), &["{a: 1}"], &["{a: 2}", "{a: 3}"]);
    check(&a("{maximum: 2, exclusiveMaximum: false}"), &["{a: 2}"], &["{a: 3}"]);
    check(&a("{multipleOf: 3}"), &["{a: 9}", "{a: -3.0}", "{a: 0}"], &["{a: 10}", "{a: 4.5}"]);
    check(
        &a("{multipleOf: 1.5}"),
        &["{a: 4.5}", "{a: 3}"],
        &["{a: 4}", "{a: {$numberDouble: 'Infinity'}}"],
    );
    check(
        &a("{minLength: 2, maxLength: 3}"),
        &["{a: 'äö'}", "{a: 5}"],
        &["{a: 'x'}", "{a: 'abcd'}"],
    );
    check(&a("{pattern: '^a.c$'}"), &["{a: 'abc'}", "{a: 1}"], &["{a: 'abcd'}"]);
    check(&a("{title: 'x', description: 'y'}"), &["{a: 1}"], &[]);
}

#[test]
fn documents_and_arrays() {
    check("{properties: {a: {}}, additionalProperties: false}", &["{a: 1}"], &["{a: 1, b: 2}"]);
    check("{additionalProperties: {type: 'string'}}", &["{a: 'x'}"], &["{a: 1}"]);
    let patterns = "{patternProperties: {'^s_': {type: 'string'}}, additionalProperties: false}";
    check(patterns, &["{s_a: 'x'}", "{}"], &["{s_a: 1}", "{x: 'x'}"]);
    check("{minProperties: 1, maxProperties: 2}", &["{a: 1}"], &["{}", "{a: 1, b: 2, c: 3}"]);
    check("{dependencies: {a: ['b']}}", &["{}", "{b: 1}", "{a: 1, b: 1}"], &["{a: 1}"]);
    check("{dependencies: {a: {required: ['b']}}}", &["{b: 1}"], &["{a: 1}"]);
    let a = |inner: &str| format!("{{properties: {{a: {inner}}}}}");
    check(
        &a("{items: {type: 'number'}}"),
        &["{a: [1, 2]}", "{a: []}", "{a: 'x'}"],
        &["{a: [1, 'x']}"],
    );
    let in_turn = "{items: [{type: 'number'}, {type: 'string'}], additionalItems: false}";
    check(&a(in_turn), &["{a: [1]}", "{a: [1, 'x']}"], &["{a: ['x']}", "{a: [1, 'x', 2]}"]);
    check(
        &a("{items: [{}], additionalItems: {type: 'null'}}"),
        &["{a: [1, null]}"],
        &["{a: [1, 2]}"],
    );
    check(
        &a("{minItems: 1, maxItems: 2}"),
        &["{a: [1]}", "{a: 1}"],
        &["{a: []}", "{a: [1, 2, 3]}"],
    );
    check(
        &a("{uniqueItems: true}"),
        &["{a: [1, '1', {x: 1}]}"],
        &["{a: [1, 1.0]}", "{a: [{x: 1, y: 2}, {y: 2, x: 1}]}"],
    );
    check(
        &a("{properties: {b: {required: ['c']}}}"),
        &["{a: {b: {c: 1}}}", "{a: 1}"],
        &["{a: {b: {}}}"],
    );
}

#[test]
fn combinations() {
    let (has_a, has_b) = ("{required: ['a']}", "{required: ['b']}");
    check(&format!("{{allOf: [{has_a}, {has_b}]}}"), &["{a: 1, b: 1}"], &["{a: 1}"]);
    check(&format!("{{anyOf: [{has_a}, {has_b}]}}"), &["{a: 1}", "{a: 1, b: 1}"], &["{}"]);
    check(&format!("{{oneOf: [{has_a}, {has_b}]}}"), &["{a: 1}"], &["{}", "{a: 1, b: 1}"]);
    check(&format!("{{not: {has_a}}}"), &["{}"], &["{a: 1}"]);
}

#[test]
fn errors() {
    let cases = [
        ("{foo: 1}", 9, "Unknown $jsonSchema keyword: foo"),
        ("{format: 'x'}", 9, "$jsonSchema keyword 'format' is not currently supported"),
        ("{type: 'integer'}", 9, "$jsonSchema type 'integer' is not currently supported."),
        ("{type: 'int'}", 2, "Unknown type name alias: int"),
        (
            "{type: 'object', bsonType: 'object'}",
            9,
            "Cannot specify both $jsonSchema keywords 'type' and 'bsonType'",
        ),
        (
            "{bsonType: 2}",
            14,
            "$jsonSchema keyword 'bsonType' must be either a string or an array of strings",
        ),
        ("{required: []}", 9, "$jsonSchema keyword 'required' cannot be an empty array"),
        (
            "{required: [1]}",
            14,
            "$jsonSchema keyword 'required' must be an array of strings, but found an element of type int",
        ),
        (
            "{required: ['a', 'a']}",
            9,
            "$jsonSchema keyword 'required' array cannot contain duplicate values",
        ),
        ("{properties: 1}", 14, "$jsonSchema keyword 'properties' must be an object"),
        (
            "{properties: {a: 1}}",
            14,
            "Nested schema for $jsonSchema property 'a' must be an object",
        ),
        ("{enum: []}", 9, "$jsonSchema keyword 'enum' cannot be an empty array"),
        (
            "{exclusiveMaximum: true}",
            9,
            "$jsonSchema keyword 'maximum' must be a present if exclusiveMaximum is present",
        ),
        ("{multipleOf: 0}", 9, "$jsonSchema keyword 'multipleOf' must have a positive value"),
        ("{minLength: -1}", 9, "Expected a non-negative number in: minLength: -1"),
        ("{minLength: 'x'}", 9, "Expected a number in: minLength: \"x\""),
        ("{maxItems: null}", 9, "Expected a number in: maxItems: null"),
        ("{allOf: []}", 2, "$jsonSchema keyword 'allOf' must be a non-empty array"),
        (
            "{allOf: [1]}",
            14,
            "$jsonSchema keyword 'allOf' must be an array of objects, but found an element of type int",
        ),
        ("{uniqueItems: 1}", 14, "$jsonSchema keyword 'uniqueItems' must be a boolean"),
        ("{encrypt: {}}", 238, "$jsonSchema keyword 'encrypt' is not implemented yet"),
    ];
    for (schema, code, text) in cases {
        let error = parse(schema).unwrap_err();
        assert_eq!((error.code().0, error.message()), (code, text), "{schema}");
    }
    let deep = format!("{}{{}}{}", "{not: ".repeat(150), "}".repeat(150));
    assert!(parse(&deep).is_err());
}
