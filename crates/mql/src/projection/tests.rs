//! What projections keep, a row per rule.

use mayfly_value::extjson::{Style, parse_document, to_string};

use super::*;

fn parse(spec: &str) -> Result<Projection> {
    Projection::parse(parse_document(spec).unwrap().as_doc(), ProjectionKind::Find)
}

fn check(spec: &str, doc: &str, expected: &str) {
    let doc = parse_document(doc).unwrap();
    let projected = parse(spec).unwrap().project(doc.as_doc());
    let expected = parse_document(expected).unwrap();
    assert_eq!(
        to_string(projected.as_doc(), Style::Canonical),
        to_string(expected.as_doc(), Style::Canonical),
        "{spec} of {doc:?}"
    );
}

/// Manual: "Project Fields to Return from Query", "$project".
#[test]
fn inclusion_and_exclusion() {
    check("{}", "{_id: 1, a: 2}", "{_id: 1, a: 2}");
    check("{a: 1}", "{_id: 1, b: 3, a: 2}", "{_id: 1, a: 2}");
    check("{a: 1, _id: 0}", "{_id: 1, a: 2, b: 3}", "{a: 2}");
    check("{a: 0}", "{_id: 1, a: 2, b: 3}", "{_id: 1, b: 3}");
    check("{a: 0, _id: 1}", "{_id: 1, a: 2, b: 3}", "{_id: 1, b: 3}");
    check("{_id: 0}", "{_id: 1, a: 2}", "{a: 2}");
    check("{_id: 1}", "{_id: 1, a: 2}", "{_id: 1}");
    check("{b: 1, a: true}", "{a: 1, b: 2, c: 3}", "{a: 1, b: 2}");
    check("{'a.b': 1}", "{a: {b: 1, c: 2}, d: 3}", "{a: {b: 1}}");
    check("{a: {b: 1}}", "{a: {b: 1, c: 2}}", "{a: {b: 1}}");
    check("{'a.b': 1}", "{a: [{b: 1, c: 2}, 5, [{b: 3}], {c: 4}]}", "{a: [{b: 1}, [{b: 3}], {}]}");
    check("{'a.b': 0}", "{a: [{b: 1, c: 2}, 5, [{b: 3}]]}", "{a: [{c: 2}, 5, [{}]]}");
    check("{'a.b': 1}", "{a: 5}", "{}");
    check("{'a.b': 0}", "{a: 5}", "{a: 5}");
    check("{'_id.x': 1}", "{_id: {x: 1, y: 2}, a: 1}", "{_id: {x: 1}}");
}

#[test]
fn errors() {
    let cases = [
        ("{a: 0, b: 1}", 31253, "Cannot do inclusion on field b in exclusion projection"),
        ("{a: 1, b: 0}", 31254, "Cannot do exclusion on field b in inclusion projection"),
        ("{a: 1, 'a.b': 1}", 31249, "Path collision at a.b remaining portion b"),
        ("{'a.b': 1, a: 1}", 31250, "Path collision at a"),
        ("{'': 1}", 40352, "FieldPath cannot be constructed with empty string"),
        ("{'a..b': 1}", 15998, "FieldPath field names may not be empty strings."),
        ("{a: {$slice: 1}}", 238, "$slice in a projection is not implemented yet"),
        ("{'a.$': 1}", 238, "the positional projection is not implemented yet"),
    ];
    for (spec, code, text) in cases {
        let error = parse(spec).unwrap_err();
        assert_eq!((error.code().0, error.message()), (code, text), "{spec}");
    }
}

#[test]
fn endless_paths_are_refused() {
    let spec = format!("{{'{}a': 1}}", "a.".repeat(1_000_000));
    assert!(parse(&spec).is_err());
}

#[test]
fn needed_paths() {
    assert_eq!(parse("{'a.b': 1, c: 1}").unwrap().needed_paths().unwrap(), ["_id", "a.b", "c"]);
    assert_eq!(parse("{a: 0}").unwrap().needed_paths(), None);
    assert!(parse("{}").unwrap().is_identity());
}
