//! Results of pipelines, one row for each rule.

use mayfly_value::extjson::{Style, parse_document, to_string};

use super::*;

fn pipeline(stages: &str) -> Result<Pipeline> {
    let wrapped = parse_document(&format!("{{u: {stages}}}")).unwrap();
    let mut scope = Scope::at(mayfly_expr::OperationTime::at(5));
    scope.declare(parse_document("{v: 7}").unwrap().as_doc())?;
    let is_stage = |name: &str| matches!(name, "$match" | "$group");
    let stages = wrapped.as_doc().get("u").and_then(RawValue::as_array).unwrap();
    Pipeline::parse(stages, &scope, Some(is_stage))
}

fn check(stages: &str, doc: &str, expected: &str) {
    let doc = parse_document(doc).unwrap();
    let made = pipeline(stages).unwrap().run(doc.as_doc()).unwrap();
    let expected = parse_document(expected).unwrap();
    assert_eq!(
        to_string(made.as_doc(), Style::Canonical),
        to_string(expected.as_doc(), Style::Canonical),
        "{stages} of {doc:?}"
    );
}

/// Manual: "Updates with Aggregation Pipeline", "$set (aggregation)", "$unset (aggregation)",
/// "$replaceWith (aggregation)".
#[test]
fn stages() {
    check("[]", "{a: 1}", "{a: 1}");
    check("[{$set: {b: '$a', a: 2}}]", "{a: 1, c: 3}", "{a: 2, c: 3, b: 1}");
    check("[{$set: {'a.b': 1}}]", "{a: {c: 2}}", "{a: {c: 2, b: 1}}");
    check("[{$set: {a: {b: 1}}}]", "{a: {c: 2}}", "{a: {c: 2, b: 1}}");
    check("[{$addFields: {'a.b': 1}}]", "{a: [{c: 2}, 5]}", "{a: [{c: 2, b: 1}, {b: 1}]}");
    check("[{$set: {'a.b': 1}}]", "{a: 5}", "{a: {b: 1}}");
    check("[{$set: {a: '$gone'}}]", "{a: 1, b: 2}", "{b: 2}");
    check("[{$set: {a: ['$b', 1]}}]", "{b: 2}", "{b: 2, a: [2, 1]}");
    check("[{$set: {a: '$$v', b: '$$NOW'}}]", "{}", "{a: 7, b: {$date: {$numberLong: '5'}}}");
    check("[{$set: {a: {$add: ['$a', 1]}}}]", "{a: 1}", "{a: 2}");
    check("[{$set: {a: '$$REMOVE'}}]", "{a: 1, b: 2}", "{b: 2}");
    check("[{$unset: ['a', 'b.c']}]", "{a: 1, b: {c: 1, d: 2}}", "{b: {d: 2}}");
    check("[{$project: {a: 1}}]", "{_id: 7, a: 1, b: 2}", "{_id: 7, a: 1}");
    check("[{$replaceWith: '$a'}, {$set: {y: 2}}]", "{a: {x: 1}}", "{x: 1, y: 2}");
    check("[{$replaceRoot: {newRoot: {x: '$a'}}}]", "{a: 1}", "{x: 1}");
}

#[test]
fn errors() {
    let cases = [
        ("[{$set: {a: '$$nobody'}}]", 17276),
        ("[5]", 14),
        ("[{}]", 40323),
        ("[{$set: {a: 1}, $unset: 'b'}]", 40323),
        ("[{$match: {}}]", 72),
        ("[{$nope: {}}]", 40324),
        ("[{$set: 5}]", 40272),
        ("[{$set: {}}]", 40177),
        ("[{$set: {a: {'b.c': 1}}}]", 40183),
        ("[{$set: {a: 1, 'a.b': 1}}]", 40176),
        ("[{$set: {'a.b': 1, a: 1}}]", 40176),
        ("[{$set: {'a.$b': 1}}]", 16410),
        ("[{$set: {a: {$add: [1], b: 1}}}]", 40181),
        ("[{$set: {a: {b: 1, $add: [1]}}}]", 40181),
        ("[{$unset: 5}]", 31002),
        ("[{$unset: []}]", 31119),
        ("[{$unset: [5]}]", 31120),
        ("[{$replaceRoot: 5}]", 40229),
        ("[{$replaceRoot: {x: 1}}]", 40415),
        ("[{$replaceRoot: {}}]", 40414),
    ];
    for (stages, code) in cases {
        assert_eq!(pipeline(stages).unwrap_err().code().0, code, "{stages}");
    }
    let doc = parse_document("{a: 1}").unwrap();
    let error = pipeline("[{$replaceWith: '$a'}]").unwrap().run(doc.as_doc()).unwrap_err();
    assert_eq!(error.code().0, 40228);
}
