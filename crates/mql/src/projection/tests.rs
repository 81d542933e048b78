//! Results of projections, one row for each rule.

use mayfly_value::extjson::{Style, parse_document, to_string};

use super::*;

fn parse(spec: &str) -> Result<Projection> {
    Projection::parse(parse_document(spec).unwrap().as_doc(), ProjectionKind::Find)
}

fn check(spec: &str, doc: &str, expected: &str) {
    let doc = parse_document(doc).unwrap();
    let projected = parse(spec).unwrap().project(doc.as_doc()).unwrap();
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

/// Manual: "$slice (projection)".
#[test]
fn slices() {
    let doc = "{_id: 1, a: [1, 2, 3], b: 5}";
    check("{a: {$slice: 2}}", doc, "{_id: 1, a: [1, 2], b: 5}");
    check("{a: {$slice: -2}}", doc, "{_id: 1, a: [2, 3], b: 5}");
    check("{a: {$slice: 0}}", doc, "{_id: 1, a: [], b: 5}");
    check("{a: {$slice: [1, 1]}}", doc, "{_id: 1, a: [2], b: 5}");
    check("{a: {$slice: [-2, 1]}}", doc, "{_id: 1, a: [2], b: 5}");
    check("{a: {$slice: [-9, 2]}}", doc, "{_id: 1, a: [1, 2], b: 5}");
    check("{a: {$slice: [9, 2]}}", doc, "{_id: 1, a: [], b: 5}");
    check("{b: {$slice: 1}}", doc, doc);
    check("{a: {$slice: 1}, b: 0}", doc, "{_id: 1, a: [1]}");
    check("{a: {$slice: 1}, b: 1}", "{c: 1, b: 2, a: [3, 4]}", "{b: 2, a: [3]}");
    check("{a: {$slice: 1}, _id: 0}", doc, "{a: [1], b: 5}");
    check(
        "{'x.a': {$slice: 1}}",
        "{x: [{a: [1, 2]}, 7, {a: [3, 4], b: 1}]}",
        "{x: [{a: [1]}, 7, {a: [3], b: 1}]}",
    );
    check("{a: {$slice: ['$b', 1]}}", "{_id: 1, b: [4, 5]}", "{_id: 1, a: [4]}");
}

/// Manual: "$elemMatch (projection)": the field comes after the others.
#[test]
fn first_items_that_satisfy_a_condition() {
    let doc = "{_id: 1, a: [{x: 1}, {x: 2, y: 1}, {x: 2}], b: 5}";
    check("{a: {$elemMatch: {x: 2}}}", doc, "{_id: 1, a: [{x: 2, y: 1}]}");
    check("{a: {$elemMatch: {x: 9}}}", doc, "{_id: 1}");
    check("{a: {$elemMatch: {x: 2}}, b: 1}", doc, "{_id: 1, b: 5, a: [{x: 2, y: 1}]}");
    check("{a: {$elemMatch: {x: 2}}, b: 0}", doc, "{_id: 1, a: [{x: 2, y: 1}]}");
    check("{a: {$elemMatch: {$gte: 2}}}", "{a: [1, 2, 3]}", "{a: [2]}");
    check("{a: {$elemMatch: {x: 2}}}", "{a: {x: 2}}", "{}");
}

/// Manual: "$project", "Project Fields to Return from Query": expressions and literals.
#[test]
fn made_fields() {
    let doc = "{_id: 1, a: 5, b: 2, o: {p: 9, r: 4}}";
    check("{n: '$b', a: 1}", doc, "{_id: 1, a: 5, n: 2}");
    check("{n: 'plain'}", doc, "{_id: 1, n: 'plain'}");
    check("{n: null, m: ['$a', 7]}", doc, "{_id: 1, n: null, m: [5, 7]}");
    check("{n: '$z'}", doc, "{_id: 1}");
    check("{a: {$add: ['$a', 1]}}", doc, "{_id: 1, a: 6}");
    check("{a: {$literal: 0}}", doc, "{_id: 1, a: 0}");
    check("{_id: '$b', a: 1}", doc, "{a: 5, _id: 2}");
    check("{o: {p: 1, z: '$b'}}", doc, "{_id: 1, o: {p: 9, z: 2}}");
    check("{o: {q: '$b', r: 7}}", doc, "{_id: 1, o: {r: 4, q: 2}}");
    check("{o: {q: '$b', r: 7}}", "{_id: 2, b: 3}", "{_id: 2, o: {q: 3}}");
    check("{'a.x': '$b'}", "{a: 1, b: 2}", "{a: {x: 2}}");
    check("{'a.x': '$b'}", "{a: [1, {y: 2}, {x: 3}], b: 2}", "{a: [{x: 2}, {x: 2}, {x: 2}]}");
}

/// Manual: "$ (projection)".
#[test]
fn positions() {
    let cases = [
        ("{'a.$': 1}", "{a: {$gte: 2}}", "{_id: 1, a: [1, 2, 3]}", Ok("{_id: 1, a: [2]}")),
        ("{'a.$': 1}", "{'a.x': 2}", "{a: [{x: 1}, {x: 2, y: 3}]}", Ok("{a: [{x: 2, y: 3}]}")),
        ("{'a.x.$': 1}", "{'a.x': 2}", "{a: [{x: 1}, {x: 2, y: 3}]}", Ok("{a: [{x: 2}]}")),
        ("{'o.a.$': 1}", "{'o.a': 2}", "{o: {a: [1, 2], b: 1}}", Ok("{o: {a: [2]}}")),
        ("{'a.$': 1, b: {$slice: 1}}", "{a: 2}", "{a: [1, 2], b: [3, 4]}", Ok("{a: [2], b: [3]}")),
        ("{'a.$': 1}", "{a: 2}", "{a: 2}", Ok("{a: 2}")),
        ("{'a.$': 1}", "{}", "{b: 2}", Ok("{}")),
        ("{'a.$': 1}", "{}", "{a: [1]}", Err(51246)),
        ("{'a.$': 1}", "{b: 3}", "{a: [1], b: [2, 3]}", Err(51247)),
    ];
    for (spec, filter, doc, expected) in cases {
        let filter = parse_document(filter).unwrap();
        let filter = Matcher::parse(filter.as_doc(), &crate::ParseContext::default()).unwrap();
        let doc = parse_document(doc).unwrap();
        let found = parse(spec).unwrap().project_found(doc.as_doc(), &filter);
        let found = found.map(|doc| to_string(doc.as_doc(), Style::Canonical));
        let expected =
            expected.map(|doc| to_string(parse_document(doc).unwrap().as_doc(), Style::Canonical));
        assert_eq!(found.map_err(|error| error.code().0), expected, "{spec} of {doc:?}");
    }
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
        ("{a: 0, o: {p: 1}}", 31253, "Cannot do inclusion on field p in exclusion projection"),
        ("{a: 0, n: 'x'}", 31310, "Cannot use an expression n: \"x\" in an exclusion projection"),
        (
            "{a: 0, n: {$literal: 1}}",
            31252,
            "Cannot use expression other than $meta in exclusion projection",
        ),
        ("{n: 'x', a: 0}", 31254, "Cannot do exclusion on field a in inclusion projection"),
        ("{a: {$slice: 1}, 'a.b': 1}", 31249, "Path collision at a.b remaining portion b"),
        (
            "{a: {$elemMatch: 1}}",
            31274,
            "elemMatch: Invalid argument, object required, but got int",
        ),
        ("{'a.b': {$elemMatch: {}}}", 31275, "Cannot use $elemMatch projection on a nested field."),
        (
            "{'a.$': 1, b: {$elemMatch: {}}}",
            31255,
            "Cannot specify positional operator and $elemMatch.",
        ),
        (
            "{b: {$elemMatch: {}}, 'a.$': 1}",
            31256,
            "Cannot specify positional operator and $elemMatch.",
        ),
        (
            "{'a.$': 1, 'b.$': 1}",
            31276,
            "Cannot specify more than one positional projection per query.",
        ),
        ("{'a.$': 0}", 31395, "positional projection cannot be used with exclusion"),
        ("{'a.$': 'x'}", 31308, "positional projection cannot be used with a literal"),
        (
            "{'a.$': {$slice: 1}}",
            31271,
            "positional projection cannot be used with an expression or sub object",
        ),
        ("{'a.$': 1, b: 0}", 31254, "Cannot do exclusion on field b in inclusion projection"),
        (
            "{a: {$meta: 'textScore'}}",
            40218,
            "query requires text score metadata, but it is not available",
        ),
        ("{a: {$meta: 'foo'}}", 17308, "Unsupported argument to $meta: foo"),
        ("{a: {$foo: 1}}", 31325, "Unknown expression $foo"),
        (
            "{a: {$slice: [1]}}",
            28667,
            "Invalid $slice syntax. The given syntax { $slice: [ 1 ] } did not match the find() syntax because :: \
             Location31272: $slice array argument should be of form [skip, limit] :: The given syntax did not match the \
             expression $slice syntax. :: caused by :: Expression $slice takes at least 2 arguments, and at most 3, but 1 \
             were passed in.",
        ),
    ];
    for (spec, code, text) in cases {
        let error = parse(spec).unwrap_err();
        assert_eq!((error.code().0, error.message()), (code, text), "{spec}");
    }
}

#[test]
fn long_paths_are_refused() {
    let spec = format!("{{'{}a': 1}}", "a.".repeat(1_000_000));
    assert!(parse(&spec).is_err());
}

#[test]
fn needed_paths() {
    assert_eq!(parse("{'a.b': 1, c: 1}").unwrap().needed_paths().unwrap(), ["_id", "a.b", "c"]);
    assert_eq!(parse("{a: 0}").unwrap().needed_paths(), None);
    assert!(parse("{}").unwrap().is_identity());
}
