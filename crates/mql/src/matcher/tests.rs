//! Results of filters, one row for each rule.

use mayfly_value::extjson::parse_document;

use super::*;

fn parse(filter: &str) -> Result<Matcher> {
    let filter = parse_document(filter).unwrap();
    Matcher::parse(filter.as_doc(), &ParseContext::default())
}

fn check(filter: &str, yes: &[&str], no: &[&str]) {
    let matcher = parse(filter).unwrap();
    for (docs, expected) in [(yes, true), (no, false)] {
        for doc in docs {
            let parsed = parse_document(doc).unwrap();
            assert_eq!(matcher.matches(parsed.as_doc()).unwrap(), expected, "{filter} on {doc}");
        }
    }
}

/// Manual: "$eq", "$ne", "$gt", "Query for Null or Missing Fields".
#[test]
fn comparison() {
    check("{}", &["{}", "{a: 1}"], &[]);
    check("{a: 1}", &["{a: 1}", "{a: 1.0}", "{a: [1, 2]}"], &["{}", "{a: '1'}", "{a: [[1]]}"]);
    check(
        "{a: {b: 1, c: 2}}",
        &["{a: {b: 1, c: 2}}", "{a: [{b: 1, c: 2}]}"],
        &["{a: {c: 2, b: 1}}"],
    );
    check("{a: {}}", &["{a: {}}"], &["{a: {b: 1}}", "{}"]);
    check("{a: [1, 2]}", &["{a: [1, 2]}", "{a: [[1, 2]]}"], &["{a: [2, 1]}", "{a: [1, 2, 3]}"]);
    check(
        "{a: null}",
        &["{a: null}", "{}", "{a: [1, null]}"],
        &["{a: 1}", "{a: []}", "{a: {$undefined: true}}"],
    );
    check(
        "{'a.b': null}",
        &["{}", "{a: {}}", "{a: 5}", "{a: [{}]}"],
        &["{a: {b: 1}}", "{a: []}", "{a: [1]}"],
    );
    check("{a: {$gt: 5}}", &["{a: 6}", "{a: [1, 6]}"], &["{a: 5}", "{a: 'x'}", "{}", "{a: null}"]);
    check("{a: {$gte: null}}", &["{a: null}", "{}"], &["{a: 1}"]);
    check("{a: {$lt: 5}}", &["{a: 4}"], &["{a: {$numberDouble: 'NaN'}}"]);
    check("{a: {$gt: 1, $lt: 3}}", &["{a: 2}", "{a: [0, 5]}"], &["{a: 3}"]);
    check("{a: {$gt: {$minKey: 1}}}", &["{a: 1}", "{a: 'x'}"], &["{a: {$minKey: 1}}"]);
    check("{a: {$ne: 1}}", &["{}", "{a: 2}"], &["{a: 1}", "{a: [1, 2]}"]);
    check(
        "{a: {$in: [1, 'x', {$regularExpression: {pattern: '^y', options: ''}}]}}",
        &["{a: 1}", "{a: ['x']}", "{a: 'yes'}"],
        &["{a: 2}", "{}"],
    );
    check("{a: {$in: [null]}}", &["{}", "{a: null}"], &["{a: 0}"]);
    check("{a: {$nin: [1, null]}}", &["{a: 2}"], &["{}", "{a: [1, 2]}"]);
    check("{a: {$ref: 'x', $id: 1}}", &["{a: {$ref: 'x', $id: 1}}"], &["{a: 1}"]);
}

/// Manual: "$and", "$or", "$nor", "$not".
#[test]
fn logic() {
    check("{$and: [{a: 1}, {b: 2}]}", &["{a: 1, b: 2}"], &["{a: 1}"]);
    check(
        "{$or: [{a: 1}, {b: 2}], c: 3}",
        &["{a: 1, c: 3}", "{b: 2, c: 3}"],
        &["{a: 1}", "{c: 3}"],
    );
    check("{$nor: [{a: 1}, {b: 2}]}", &["{}"], &["{a: 1}", "{b: 2}"]);
    check("{a: {$not: {$gt: 5}}}", &["{}", "{a: 5}", "{a: 'x'}"], &["{a: 6}", "{a: [1, 6]}"]);
    check("{a: {$not: {$gt: 1, $lt: 3}}}", &["{a: 3}"], &["{a: 2}"]);
    check("{$comment: 'x', $alwaysTrue: 1}", &["{}"], &[]);
    check("{$alwaysFalse: 1}", &[], &["{}"]);
}

/// Manual: "$exists", "$type", "$mod", "$regex".
#[test]
fn element_and_evaluation() {
    check("{a: {$exists: true}}", &["{a: null}", "{a: []}"], &["{}", "{b: 1}"]);
    check("{'a.b': {$exists: false}}", &["{}", "{a: 1}", "{a: []}"], &["{a: [{b: 1}, {}]}"]);
    check("{a: {$type: 'number'}}", &["{a: 1}", "{a: 1.5}", "{a: ['x', 1]}"], &["{a: 'x'}", "{}"]);
    check("{a: {$type: ['string', 10]}}", &["{a: 'x'}", "{a: null}"], &["{a: 1}", "{}"]);
    check("{a: {$type: 'array'}}", &["{a: []}", "{a: [[1]]}"], &["{a: 1}"]);
    check("{a: {$type: -1}}", &["{a: {$minKey: 1}}"], &["{a: 1}", "{a: {$maxKey: 1}}"]);
    check(
        "{a: {$mod: [4, 1]}}",
        &["{a: 5}", "{a: 5.9}", "{a: [2, 9]}"],
        &["{a: 4}", "{a: 'x'}", "{a: -3}"],
    );
    check(
        "{a: {$regex: '^AB', $options: 'i'}}",
        &["{a: 'abc'}", "{a: ['x', 'ABC']}"],
        &["{a: 'xab'}", "{a: 1}"],
    );
    check(
        "{a: {$regularExpression: {pattern: 'a.c', options: 's'}}}",
        &["{a: 'a\\nc'}"],
        &["{a: 'ac'}"],
    );
    check("{a: {$regex: '(?<=x)y(?!z)'}}", &["{a: 'xy'}"], &["{a: 'xyz'}"]);
    check("{a: {$not: {$regex: 'x'}}}", &["{a: 'y'}", "{}"], &["{a: 'x'}"]);
}

/// Manual: "$all", "$elemMatch", "$size", "Query an Array of Embedded Documents".
#[test]
fn arrays() {
    check("{a: {$all: [1, 2]}}", &["{a: [2, 3, 1]}"], &["{a: [1]}", "{a: 1}"]);
    check("{a: {$all: [1]}}", &["{a: 1}"], &[]);
    check("{a: {$all: []}}", &[], &["{a: []}", "{}"]);
    check("{a: {$all: [[1, 2]]}}", &["{a: [1, 2]}", "{a: [[1, 2]]}"], &["{a: [1]}"]);
    check(
        "{a: {$all: [{$elemMatch: {b: 1, c: 1}}, {$elemMatch: {b: 2}}]}}",
        &["{a: [{b: 1, c: 1}, {b: 2}]}"],
        &["{a: [{b: 1, c: 1}]}"],
    );
    check("{a: {$size: 2}}", &["{a: [1, [2]]}"], &["{a: [1]}", "{a: 2}", "{}"]);
    check("{a: {$elemMatch: {$gt: 1, $lt: 3}}}", &["{a: [0, 2]}"], &["{a: [0, 5]}", "{a: 2}"]);
    check(
        "{a: {$elemMatch: {b: 1, c: 2}}}",
        &["{a: [{b: 1, c: 2}]}"],
        &["{a: [{b: 1}, {c: 2}]}", "{a: {b: 1, c: 2}}"],
    );
    check("{a: {$elemMatch: {$or: [{b: 1}, {b: 2}]}}}", &["{a: [{b: 2}]}"], &["{a: [{b: 3}]}"]);
    check("{'a.b': 1, 'a.c': 2}", &["{a: [{b: 1}, {c: 2}]}"], &["{a: [{b: 1}]}"]);
    check("{'a.1': 5}", &["{a: [1, 5]}", "{a: {'1': 5}}"], &["{a: [5]}"]);
}

#[test]
fn errors() {
    let cases = [
        ("{a: {$foo: 1}}", 2, "unknown operator: $foo"),
        ("{a: {$gt: 1, b: 2}}", 2, "unknown operator: b"),
        ("{a: {$and: []}}", 2, "unknown operator: $and"),
        (
            "{$foo: 1}",
            2,
            "unknown top level operator: $foo. If you have a field name that starts with a '$' symbol, \
             consider using $getField or $setField.",
        ),
        ("{$and: 1}", 2, "$and must be an array"),
        ("{$or: []}", 2, "$and/$or/$nor must be a nonempty array"),
        ("{a: {$in: 1}}", 2, "$in needs an array"),
        ("{a: {$mod: [0, 1]}}", 2, "divisor cannot be 0"),
        ("{a: {$type: 'foo'}}", 2, "Unknown type name alias: foo"),
        (
            "{a: {$size: -1}}",
            9,
            "Failed to parse $size. Expected a non-negative number in: $size: -1",
        ),
        ("{$where: 'true'}", 2, "$where is not allowed in this context"),
        ("{a: {$elemMatch: {$where: 'true'}}}", 2, "$elemMatch cannot contain $where expression"),
        (
            "{a: {$elemMatch: {$expr: true}}}",
            2,
            "$expr can only be applied to the top-level document",
        ),
        ("{a: {$geoWithin: 1}}", 2, "geometry must be an object"),
        ("{a: {$maxDistance: 1}}", 2, "unknown operator: $maxDistance"),
        ("{a: {$options: 'i'}}", 2, "$options needs a $regex"),
    ];
    for (filter, code, text) in cases {
        let error = parse(filter).unwrap_err();
        assert_eq!((error.code().0, error.message()), (code, text), "{filter}");
    }
    assert!(parse("{a: {$regex: '('}}").unwrap_err().message().starts_with("Regular expression"));
    let deep = format!("{}{{}}{}", "{$and: [".repeat(90), "]}".repeat(90));
    assert!(parse(&deep).is_ok());
}

/// Manual: "$bitsAllSet" and related pages.
#[test]
fn bits() {
    check(
        "{a: {$bitsAllSet: [1, 5]}}",
        &[
            "{a: 50}",
            "{a: 54.0}",
            "{a: [1, 34]}",
            "{a: {$binary: {base64: 'Ng==', subType: '00'}}}",
        ],
        &["{a: 20}", "{a: 34.5}", "{a: '34'}", "{}", "{a: {$numberDouble: '1e300'}}"],
    );
    check("{a: {$bitsAllSet: 50}}", &["{a: 54}", "{a: -1}"], &["{a: 20}"]);
    check("{a: {$bitsAllClear: [1, 5]}}", &["{a: 20}", "{a: 0}"], &["{a: 54}", "{a: 2}"]);
    check("{a: {$bitsAnySet: [1, 5]}}", &["{a: 2}"], &["{a: 20}"]);
    check("{a: {$bitsAnyClear: 35}}", &["{a: 34}", "{a: 20}"], &["{a: 35}", "{a: 'x'}"]);
    check("{a: {$bitsAllSet: [200]}}", &["{a: -5}"], &["{a: 5}"]);
    check(
        "{a: {$bitsAllClear: {$binary: {base64: 'AAE=', subType: '00'}}}}",
        &["{a: 255}", "{a: {$binary: {base64: '/w==', subType: '00'}}}"],
        &["{a: 256}"],
    );
    let cases = [
        (
            "{a: {$bitsAllSet: 'x'}}",
            2,
            "a takes an Array, a number, or a BinData but received: $bitsAllSet: \"x\"",
        ),
        ("{a: {$bitsAllSet: -1}}", 9, "Expected a non-negative number in: $bitsAllSet: -1"),
        ("{a: {$bitsAllSet: 1.5}}", 9, "Expected an integer: $bitsAllSet: 1.5"),
        ("{a: {$bitsAnySet: ['x']}}", 2, "bit positions must be an integer but got: 0: \"x\""),
        ("{a: {$bitsAnySet: [-1]}}", 2, "bit positions must be >= 0 but got: 0: -1"),
    ];
    for (filter, code, text) in cases {
        let error = parse(filter).unwrap_err();
        assert_eq!((error.code().0, error.message()), (code, text), "{filter}");
    }
}

/// Manual: "$expr", "$sampleRate".
#[test]
fn conditions_on_the_whole_document() {
    check(
        "{$expr: {$gt: ['$spent', '$budget']}}",
        &["{spent: 5, budget: 4}"],
        &["{spent: 3, budget: 4}"],
    );
    check("{$expr: '$a'}", &["{a: 1}", "{a: []}"], &["{}", "{a: 0}", "{a: null}"]);
    check(
        "{$or: [{a: 1}, {$expr: {$eq: ['$b', '$c']}}]}",
        &["{a: 1}", "{b: 2, c: 2}"],
        &["{b: 2}"],
    );
    check("{$nor: [{$expr: '$a'}]}", &["{}"], &["{a: 1}"]);
    check("{$sampleRate: 1, a: 1}", &["{a: 1}"], &["{}"]);
    check("{$sampleRate: 0}", &[], &["{}"]);
    check("{$jsonSchema: {required: ['a']}}", &["{a: 1}"], &["{}"]);
    let fails = parse("{$nor: [{$expr: {$divide: [1, '$a']}}]}").unwrap();
    let zero = parse_document("{a: 0}").unwrap();
    assert_eq!(fails.matches(zero.as_doc()).unwrap_err().message(), "can't $divide by zero");
    assert!(parse("{$sampleRate: 2}").is_err());
}

/// Manual: "$ (projection)", "$ (update)".
#[test]
fn positions_that_filters_find() {
    let cases = [
        ("{a: 2}", "{a: [1, 2, 2]}", Some(1)),
        ("{a: {$gte: 2}}", "{a: [1, 5]}", Some(1)),
        ("{'a.b': 2}", "{a: [{b: 1}, {b: [0, 2]}]}", Some(1)),
        ("{'a.b': 2}", "{a: {b: [1, 2]}}", Some(1)),
        ("{'a.0.b': 2}", "{a: [{b: [1, 2]}]}", Some(1)),
        ("{a: {$elemMatch: {b: 2, c: 3}}}", "{a: [{b: 2}, {b: 2, c: 3}]}", Some(1)),
        ("{a: {$elemMatch: {$gt: 1, $lt: 3}}}", "{a: [0, 2]}", Some(1)),
        ("{a: {$in: [3]}}", "{a: [1, 3]}", Some(1)),
        ("{$or: [{x: 1}, {a: 2}]}", "{a: [1, 2]}", None),
        ("{$or: [{a: 3}, {a: 2}]}", "{a: [1, 2]}", Some(1)),
        ("{a: [1, 2]}", "{a: [1, 2]}", None),
        ("{a: {$ne: 2}}", "{a: [1]}", None),
        ("{a: {$size: 1}}", "{a: [1]}", None),
        ("{a: 2}", "{a: 2}", None),
        ("{}", "{a: [1]}", None),
    ];
    for (filter, doc, position) in cases {
        let (matcher, doc) = (parse(filter).unwrap(), parse_document(doc).unwrap());
        assert!(matcher.matches(doc.as_doc()).unwrap());
        assert_eq!(matcher.array_position(doc.as_doc()).unwrap(), position, "{filter} on {doc:?}");
    }
}

#[test]
fn literal_prefixes() {
    let cases = [
        ("^abc", Some("abc")),
        ("^ab*", Some("a")),
        ("^a|b", None),
        ("abc", None),
        ("^ab+", Some("ab")),
        ("^a.c", Some("a")),
    ];
    for (pattern, prefix) in cases {
        assert_eq!(Regex::new(pattern, "").unwrap().literal_prefix(), prefix, "{pattern}");
    }
}

/// Many conditions give the same result as each of them alone.
#[test]
fn many_conditions_behave_like_few() {
    let fields = |value: &dyn Fn(i32) -> String| {
        (0..100).map(|at| format!("f{at}: {}", value(at))).collect::<Vec<_>>().join(", ")
    };
    let plain = fields(&|at| at.to_string());
    let items = "1, 2.0, 'x', null, {$numberDouble: 'NaN'}, {b: 1}, [3], [4, 5], 1";
    let documents = [
        "{}".to_owned(),
        format!("{{{plain}}}"),
        format!("{{a: [{items}], {plain}}}"),
        format!("{{a: {{b: [{items}]}}, o: {{{plain}}}, {plain}}}"),
        format!("{{a: [{{b: 1}}, {{b: [{items}]}}], o: [{{{plain}}}, 5, [{{f1: 1}}]]}}"),
        "{a: 1, f1: null, o: {f1: [1]}}".to_owned(),
    ];
    let values = [
        "1",
        "2",
        "'x'",
        "'X'",
        "null",
        "{$numberDouble: 'NaN'}",
        "{b: 1}",
        "[3]",
        "3",
        "[4, 5]",
        "7",
        "{$exists: true}",
        "{$ne: 1}",
        "{$not: {$eq: 'x'}}",
        "{$type: 'array'}",
        "{$size: 9}",
        "{$elemMatch: {$gt: 1}}",
        "{$all: [1, 2]}",
    ];
    let strength = parse_document("{locale: 'en', strength: 2}").unwrap();
    let collation = Collation::of_options(strength.as_doc()).unwrap();
    for collation in [None, collation] {
        let context = ParseContext { collation, ..ParseContext::default() };
        let matches = |filter: &str, document: &str| {
            let filter = parse_document(filter).unwrap_or_else(|why| panic!("{why}: {filter}"));
            let filter = Matcher::parse(filter.as_doc(), &context).unwrap();
            filter.matches(parse_document(document).unwrap().as_doc()).unwrap()
        };
        for document in &documents {
            for path in ["a", "a.b", "f1", "o.f1", "o.f99", "a.0", "a.1.b"] {
                for value in values {
                    let one = format!("{{'{path}': {value}}}");
                    let alone = matches(&one, document);
                    let many = vec![one.as_str(); 70].join(", ");
                    let text = format!("{one} of {document}");
                    assert_eq!(matches(&format!("{{$and: [{many}]}}"), document), alone, "{text}");
                    assert_eq!(matches(&format!("{{$or: [{many}]}}"), document), alone, "{text}");
                    assert_eq!(matches(&format!("{{$nor: [{many}]}}"), document), !alone, "{text}");
                }
            }
        }
    }
}

/// A filter with many predicates on one large array ends with its operation.
#[test]
fn reading_large_arrays_is_work() {
    use mayfly_base::{ErrorCode, ManualClock};
    use mayfly_work::OpCtx;
    use mayfly_work::current::{Current, enter};
    use std::sync::Arc;

    let document = parse_document(&format!("{{a: [{}]}}", vec!["7"; 100_000].join(","))).unwrap();
    let filter = parse("{$or: [{a: 1}, {a: {$elemMatch: {$in: [2, 3]}}}]}").unwrap();
    assert!(!filter.matches(document.as_doc()).unwrap());
    let op = OpCtx::detached(Arc::new(ManualClock::at_ms(0)));
    op.kill(ErrorCode::Interrupted);
    let _entered = enter(Current { op: Some(op) });
    assert!(
        parse("{a: 1}").unwrap().matches(parse_document("{a: [2, 1]}").unwrap().as_doc()).unwrap()
    );
    let error = filter.matches(document.as_doc()).unwrap_err();
    assert_eq!(error.code(), ErrorCode::Interrupted);
}
