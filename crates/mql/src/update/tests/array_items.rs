//! Updates of array items: `$`, `$[]`, `$[identifier]` and array filters.

use super::*;

fn with_filters(update: &str, filters: &[&str]) -> Result<Update> {
    let filters: Vec<DocBuf> = filters.iter().map(|f| parse_document(f).unwrap()).collect();
    let filters: Vec<RawDoc<'_>> = filters.iter().map(DocBuf::as_doc).collect();
    let update = parse_document(update).unwrap();
    let context = ParseContext::default();
    let update = RawValue::Document(update.as_doc());
    Update::parse_in(update, &filters, &Scope::default(), &context)
}

fn matched(filter: &str, update: &Update, doc: &DocBuf) -> Option<usize> {
    let filter = parse_document(filter).unwrap();
    let matcher = Matcher::parse(filter.as_doc(), &ParseContext::default()).unwrap();
    assert!(matcher.matches(doc.as_doc()).unwrap(), "{filter:?}");
    update.position(&matcher, doc.as_doc()).unwrap()
}

#[test]
fn changed_paths() {
    let update = parse("{$set: {'a.b': 1, 'c.$[].d': 1, 'e.$': 1}, $rename: {f: 'g.h'}}").unwrap();
    assert_eq!(update.changed_paths().unwrap(), ["a.b", "c", "e", "g.h", "f"]);
    assert!(parse("{a: 1}").unwrap().changed_paths().is_none());
}

/// Manual: "$ (update)".
#[test]
fn positions() {
    let update = parse("{$set: {'a.$': 'X'}}").unwrap();
    let cases = [
        ("{a: 2}", "{a: [1, 2, 3]}", Some(1)),
        ("{a: {$gt: 1}}", "{a: [1, 2, 3]}", Some(1)),
        ("{_id: 1, a: 3}", "{_id: 1, a: [1, 2, 3]}", Some(2)),
        ("{a: {$elemMatch: {$gt: 1, $lt: 3}}}", "{a: [1, 2, 3]}", Some(1)),
        ("{a: {$elemMatch: {b: 1, c: 2}}}", "{a: [{b: 1}, {b: 1, c: 2}]}", Some(1)),
        ("{'a.b': 2}", "{a: [{b: 1}, {b: 2}]}", Some(1)),
        ("{'a.b': 2}", "{a: [{b: 1}, {b: [5, 2]}]}", Some(1)),
        ("{'a.b.c': 2}", "{a: {b: [{c: 1}, {c: 2}]}}", Some(1)),
        ("{'a.1': 2}", "{a: [1, 2]}", None),
        ("{'a.b': null}", "{a: [{b: 1}, {c: 2}]}", Some(1)),
        ("{a: {$in: [9, 3]}}", "{a: [1, 2, 3]}", Some(2)),
        ("{a: 1, b: 5}", "{a: [1, 2], b: [4, 5]}", Some(1)),
        ("{$or: [{a: 9}, {a: 2}]}", "{a: [1, 2]}", Some(1)),
        ("{a: {$ne: 7}}", "{a: [1, 2]}", None),
        ("{a: {$size: 2}}", "{a: [1, 2]}", None),
        ("{_id: 1}", "{_id: 1, a: [1]}", None),
        ("{}", "{a: [1]}", None),
    ];
    for (filter, doc, position) in cases {
        let doc = parse_document(doc).unwrap();
        assert_eq!(matched(filter, &update, &doc), position, "{filter} {doc:?}");
    }
    let plain = parse("{$set: {a: 1}}").unwrap();
    let doc = parse_document("{a: [1]}").unwrap();
    assert_eq!(matched("{a: 1}", &plain, &doc), None);
}

#[track_caller]
fn check_items(update: &str, filters: &[&str], position: Option<usize>, doc: &str, expected: &str) {
    let context = UpdateContext { now_ms: NOW_MS, is_insert: false, position };
    let doc = parse_document(doc).unwrap();
    let updated = with_filters(update, filters).unwrap().apply(doc.as_doc(), &context).unwrap();
    let updated = updated.unwrap_or(doc);
    let expected = parse_document(expected).unwrap();
    assert_eq!(
        to_string(updated.as_doc(), Style::Canonical),
        to_string(expected.as_doc(), Style::Canonical),
        "{update}"
    );
}

/// Manual: "$ (update)", "$[]", "$[<identifier>]".
#[test]
fn array_items() {
    let none: &[&str] = &[];
    check_items("{$set: {'a.$': 9}}", none, Some(1), "{a: [1, 2, 3]}", "{a: [1, 9, 3]}");
    check_items(
        "{$inc: {'a.$.b': 1}}",
        none,
        Some(0),
        "{a: [{b: 1}, {b: 2}]}",
        "{a: [{b: 2}, {b: 2}]}",
    );
    check_items("{$unset: {'a.$': 1}}", none, Some(0), "{a: [1, 2]}", "{a: [null, 2]}");
    check_items("{$push: {'a.$.c': 1}}", none, Some(1), "{a: [{}, {}]}", "{a: [{}, {c: [1]}]}");
    check_items("{$inc: {'a.$[]': 10}}", none, None, "{a: [1, 2]}", "{a: [11, 12]}");
    check_items("{$inc: {'a.$[]': 10}}", none, None, "{a: []}", "{a: []}");
    check_items(
        "{$inc: {'a.$[].b.$[]': 1}}",
        none,
        None,
        "{a: [{b: [1, 2]}, {b: [3]}]}",
        "{a: [{b: [2, 3]}, {b: [4]}]}",
    );
    check_items(
        "{$set: {'a.$[i]': 0}}",
        &["{i: {$gte: 2}}"],
        None,
        "{a: [1, 2, 3]}",
        "{a: [1, 0, 0]}",
    );
    check_items(
        "{$mul: {'a.$[i].b': 2}, $set: {'a.$[i].d': 1}}",
        &["{'i.b': {$gt: 1}, 'i.c': 1}"],
        None,
        "{a: [{b: 5, c: 1}, {b: 5, c: 2}, {b: 0, c: 1}]}",
        "{a: [{b: 10, c: 1, d: 1}, {b: 5, c: 2}, {b: 0, c: 1}]}",
    );
    check_items(
        "{$set: {'a.$[i].b.$[j]': 'x'}}",
        &["{'i.k': 1}", "{$or: [{j: 1}, {j: 2}]}"],
        None,
        "{a: [{k: 1, b: [1, 2, 3]}, {k: 2, b: [1]}]}",
        "{a: [{k: 1, b: ['x', 'x', 3]}, {k: 2, b: [1]}]}",
    );
    check_items(
        "{$set: {'a.$[i]': 'i', 'a.$[j]': 'j', z: 1}}",
        &["{i: 1}", "{j: 2}"],
        None,
        "{a: [1, 2, 3]}",
        "{a: ['i', 'j', 3], z: 1}",
    );
    check_items(
        "{$pull: {'a.$[].b': 1}}",
        none,
        None,
        "{a: [{b: [1, 2]}, {b: [1]}]}",
        "{a: [{b: [2]}, {b: []}]}",
    );
    check_items(
        "{$addToSet: {'a.$[i].t': 'n'}}",
        &["{'i.x': 1}"],
        None,
        "{a: [{x: 1}]}",
        "{a: [{x: 1, t: ['n']}]}",
    );
}

#[test]
fn array_item_errors() {
    let parsing: &[(&str, &[&str], i32, &str)] = &[
        (
            "{$set: {'$': 1}}",
            &[],
            2,
            "Cannot have positional (i.e. '$') element in the first position in path '$'",
        ),
        (
            "{$set: {'$[].a': 1}}",
            &[],
            2,
            "Cannot have array filter identifier (i.e. '$[<id>]') element in the first position in path '$[].a'",
        ),
        (
            "{$set: {'a.$.b.$': 1}}",
            &[],
            2,
            "Too many positional (i.e. '$') elements found in path 'a.$.b.$'",
        ),
        (
            "{$set: {'a.$[i]': 1}}",
            &[],
            2,
            "No array filter found for identifier 'i' in path 'a.$[i]'",
        ),
        (
            "{$set: {'a.$[i]': 1}}",
            &["{i: 1}", "{j: 1}"],
            9,
            "The array filter for identifier 'j' was not used in the update { $set: { a.$[i]: 1 } }",
        ),
        (
            "{$set: {'a.$[i]': 1}}",
            &["{i: 1}", "{'i.b': 1}"],
            9,
            "Found multiple array filters with the same top-level field name i",
        ),
        (
            "{$set: {'a.$[i]': 1}}",
            &["{i: 1, j: 1}"],
            9,
            "Error parsing array filter :: caused by :: Expected a single top-level field name, found 'i' and 'j'",
        ),
        (
            "{$set: {'a.$[i]': 1}}",
            &["{$or: [{i: 1}, {j: 1}]}"],
            9,
            "Error parsing array filter :: caused by :: Expected a single top-level field name, found 'i' and 'j'",
        ),
        (
            "{$set: {'a.$[i]': 1}}",
            &["{}"],
            9,
            "Cannot use an expression without a top-level field name in arrayFilters",
        ),
        (
            "{$set: {'a.$[I]': 1}}",
            &["{I: 1}"],
            2,
            "Error parsing array filter :: caused by :: The top-level field name must be an alphanumeric string beginning with a lowercase letter, found 'I'",
        ),
        (
            "{$set: {'a.$[i]': 1, 'a.0': 1}}",
            &["{i: 1}"],
            40,
            "Updating the path 'a.$[i]' would create a conflict at 'a'",
        ),
        (
            "{$set: {'a.$[]': 1, 'a.$[].b': 1}}",
            &[],
            40,
            "Updating the path 'a.$[].b' would create a conflict at 'a.$[]'",
        ),
        ("{$rename: {'a.$': 'b'}}", &[], 2, "The source field for $rename may not be dynamic: a.$"),
        (
            "{$rename: {'a': 'b.$[]'}}",
            &[],
            2,
            "The destination field for $rename may not be dynamic: b.$[]",
        ),
    ];
    for (update, filters, code, text) in parsing {
        let error = with_filters(update, filters).unwrap_err();
        assert_eq!((error.code().0, error.message()), (*code, *text), "{update}");
    }
    let applying: &[(&str, &[&str], &str, i32, &str)] = &[
        (
            "{$set: {'a.b.$[]': 1}}",
            &[],
            "{a: {}}",
            2,
            "The path 'a.b' must exist in the document in order to apply array updates.",
        ),
        (
            "{$set: {'a.$[]': 1}}",
            &[],
            "{a: 5}",
            2,
            "Cannot apply array updates to non-array element a: 5",
        ),
        (
            "{$set: {'a.$[].b': 1}}",
            &[],
            "{a: [5]}",
            28,
            "Cannot create field 'b' in element {0: 5}",
        ),
        (
            "{$set: {'a.$[i]': 1, 'a.$[]': 2}}",
            &["{i: 1}"],
            "{a: [1]}",
            40,
            "Update created a conflict at 'a.0'",
        ),
        (
            "{$set: {'a.$': 1, 'a.1': 2}}",
            &[],
            "{a: [1, 2]}",
            40,
            "Update created a conflict at 'a.1'",
        ),
    ];
    for (update, filters, doc, code, text) in applying {
        let context = UpdateContext { now_ms: NOW_MS, is_insert: false, position: Some(1) };
        let doc = parse_document(doc).unwrap();
        let error = with_filters(update, filters).unwrap().apply(doc.as_doc(), &context);
        let error = error.unwrap_err();
        assert_eq!((error.code().0, error.message()), (*code, *text), "{update}");
    }
}
