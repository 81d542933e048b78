//! Results of updates, one row for each rule.

mod array_items;

use mayfly_value::extjson::{Style, parse_document, to_string};

use super::*;

const NOW_MS: i64 = 1_700_000_000_000;

fn parse(update: &str) -> Result<Update> {
    Update::parse(parse_document(update).unwrap().as_doc(), &ParseContext::default())
}

fn apply(update: &str, doc: &str) -> Result<Option<DocBuf>> {
    let context = UpdateContext { now_ms: NOW_MS, is_insert: false, position: None };
    parse(update)?.apply(parse_document(doc).unwrap().as_doc(), &context)
}

fn check(update: &str, doc: &str, expected: &str) {
    let updated = apply(update, doc).unwrap();
    let updated = updated.unwrap_or_else(|| parse_document(doc).unwrap());
    let expected = parse_document(expected).unwrap();
    assert_eq!(
        to_string(updated.as_doc(), Style::Canonical),
        to_string(expected.as_doc(), Style::Canonical),
        "{update} on {doc}"
    );
    assert!(mayfly_value::validate(updated.as_bytes(), 200).is_ok());
}

/// Manual: "$set", "$unset", "$rename", "$currentDate", "Update Operators Behavior" (order of new
/// fields).
#[test]
fn fields() {
    check("{$set: {a: 5}}", "{_id: 1, a: 1, b: 2}", "{_id: 1, a: 5, b: 2}");
    check(
        "{$set: {z: 1, c: 2, 'b.10': 1, 'b.9': 2}}",
        "{_id: 1}",
        "{_id: 1, b: {'9': 2, '10': 1}, c: 2, z: 1}",
    );
    check("{$set: {'a.b.c': 1}}", "{a: {x: 1}}", "{a: {x: 1, b: {c: 1}}}");
    check("{$set: {'a.1': 9, 'a.4': 8}}", "{a: [1, 2]}", "{a: [1, 9, null, null, 8]}");
    check("{$set: {'a.0.b': 9}}", "{a: [{b: 1}, {b: 2}]}", "{a: [{b: 9}, {b: 2}]}");
    check("{$set: {'a.1.b': 9}}", "{a: [1]}", "{a: [1, {b: 9}]}");
    check("{$unset: {a: '', 'b.c': 1, x: 1}}", "{a: 1, b: {c: 1, d: 2}}", "{b: {d: 2}}");
    check("{$unset: {'a.1': 1}}", "{a: [1, 2, 3]}", "{a: [1, null, 3]}");
    check("{$unset: {'a.b': 1}}", "{a: 5}", "{a: 5}");
    check("{$setOnInsert: {a: 1}}", "{_id: 1}", "{_id: 1}");
    check("{$rename: {a: 'b.c'}}", "{_id: 1, a: 5}", "{_id: 1, b: {c: 5}}");
    check("{$rename: {x: 'b'}}", "{b: 5}", "{b: 5}");
    check("{$currentDate: {a: true}}", "{}", "{a: {$date: {$numberLong: '1700000000000'}}}");
    check(
        "{$currentDate: {a: {$type: 'timestamp'}}}",
        "{}",
        "{a: {$timestamp: {t: 1700000000, i: 1}}}",
    );
    check("{$set: {}}", "{a: 1}", "{a: 1}");
    assert!(apply("{$set: {a: 1}}", "{_id: 1, a: 1}").unwrap().is_none());
}

/// Manual: "$inc", "$mul", "$min", "$max", "$bit".
#[test]
fn arithmetic() {
    check("{$inc: {a: 2, b: 1.5}}", "{a: 1}", "{a: 3, b: 1.5}");
    check("{$inc: {a: 1}}", "{a: 2147483647}", "{a: {$numberLong: '2147483648'}}");
    check("{$inc: {a: 1}}", "{a: {$numberDecimal: '1.10'}}", "{a: {$numberDecimal: '2.10'}}");
    check("{$mul: {a: 3, b: {$numberLong: '2'}}}", "{a: 2}", "{a: 6, b: {$numberLong: '0'}}");
    check("{$min: {a: 1, b: 1, c: 1}}", "{a: 2, b: 0}", "{a: 1, b: 0, c: 1}");
    check("{$max: {a: 'x', b: 1}}", "{a: 2, b: 3}", "{a: 'x', b: 3}");
    check(
        "{$bit: {a: {and: 6}, b: {or: 4}, c: {xor: {$numberLong: '1'}}}}",
        "{a: 5, b: 1, c: 3}",
        "{a: 4, b: 5, c: {$numberLong: '2'}}",
    );
}

/// Manual: "$push", "$addToSet", "$pop", "$pull", "$pullAll".
#[test]
fn arrays() {
    check("{$push: {a: 3}}", "{a: [1]}", "{a: [1, 3]}");
    check("{$push: {a: {b: 1}}}", "{}", "{a: [{b: 1}]}");
    check("{$push: {a: {$each: [3, 4], $position: 0}}}", "{a: [1]}", "{a: [3, 4, 1]}");
    check("{$push: {a: {$each: [3], $position: -1}}}", "{a: [1, 2]}", "{a: [1, 3, 2]}");
    check("{$push: {a: {$each: [5, 0], $sort: -1, $slice: 3}}}", "{a: [1, 9]}", "{a: [9, 5, 1]}");
    check("{$push: {a: {$each: [], $slice: -1}}}", "{a: [1, 9]}", "{a: [9]}");
    check(
        "{$push: {a: {$each: [{b: 1}], $sort: {b: 1}}}}",
        "{a: [{b: 2}, {b: 0}]}",
        "{a: [{b: 0}, {b: 1}, {b: 2}]}",
    );
    check("{$addToSet: {a: {$each: [1.0, 2, 2]}}}", "{a: [1]}", "{a: [1, 2]}");
    check("{$addToSet: {a: [1]}}", "{a: [1]}", "{a: [1, [1]]}");
    check("{$pop: {a: 1, b: -1, c: 1}}", "{a: [1, 2], b: [1, 2]}", "{a: [1], b: [2]}");
    check(
        "{$pull: {a: {$gte: 2}, b: 1, c: {x: 1}}}",
        "{a: [1, 2, 3], b: [1, 2, 1], c: [{x: 1, y: 2}, {x: 2}, 5]}",
        "{a: [1], b: [2], c: [{x: 2}, 5]}",
    );
    check("{$pull: {a: {$in: ['x', 'y']}}}", "{a: ['x', 'z']}", "{a: ['z']}");
    check("{$pullAll: {a: [1, 2]}}", "{a: [1, 2.0, 3]}", "{a: [3]}");
}

/// Manual: "db.collection.replaceOne()".
#[test]
fn replacement() {
    check("{b: 2}", "{_id: 1, a: 1}", "{_id: 1, b: 2}");
    check("{b: 2, _id: 1}", "{_id: 1, a: 1}", "{_id: 1, b: 2}");
    check("{}", "{_id: 1, a: 1}", "{_id: 1}");
    assert!(apply("{_id: 1, a: 1}", "{_id: 1, a: 1}").unwrap().is_none());
    // Not equal byte for byte, although the result is.
    assert!(apply("{a: 1}", "{_id: 1, a: 1}").unwrap().is_some());
}

#[test]
fn errors() {
    let cases = [
        ("{$set: {'a.x': 1}}", "{_id: 1, a: 1}", 28, "Cannot create field 'x' in element {a: 1}"),
        ("{$set: {'a.x': 1}}", "{a: [1]}", 28, "Cannot create field 'x' in element {a: [ 1 ]}"),
        (
            "{$set: {a: 1}, $inc: {a: 1}}",
            "{}",
            40,
            "Updating the path 'a' would create a conflict at 'a'",
        ),
        (
            "{$set: {a: 1, 'a.b': 1}}",
            "{}",
            40,
            "Updating the path 'a.b' would create a conflict at 'a'",
        ),
        (
            "{$set: {_id: 2}}",
            "{_id: 1}",
            66,
            "Performing an update on the path '_id' would modify the immutable field '_id'",
        ),
        (
            "{$unset: {_id: 1}}",
            "{_id: 1}",
            66,
            "Performing an update on the path '_id' would modify the immutable field '_id'",
        ),
        (
            "{$set: {'_id.a': 2}}",
            "{_id: {a: 1}}",
            66,
            "Performing an update on the path '_id.a' would modify the immutable field '_id'",
        ),
        (
            "{_id: 2}",
            "{_id: 1}",
            66,
            "After applying the update, the (immutable) field '_id' was found to have been altered to _id: 2",
        ),
        (
            "{$inc: {a: 1}}",
            "{_id: 1, a: 'x'}",
            14,
            "Cannot apply $inc to a value of non-numeric type. {_id: 1} has the field 'a' of non-numeric type string",
        ),
        ("{$inc: {a: 'x'}}", "{}", 14, "Cannot increment with non-numeric argument: {a: \"x\"}"),
        (
            "{$inc: {a: 1}}",
            "{_id: 1, a: 9223372036854775807}",
            2,
            "Failed to apply $inc operations to current value ((NumberLong)9223372036854775807) for document {_id: 1}",
        ),
        (
            "{$set: {'a.': 1}}",
            "{}",
            56,
            "The update path 'a.' contains an empty field name, which is not allowed.",
        ),
        (
            "{$push: {a: 1}}",
            "{_id: 1, a: 'x'}",
            2,
            "The field 'a' must be an array but is of type string in document {_id: 1}",
        ),
        (
            "{$foo: {a: 1}}",
            "{}",
            9,
            "Unknown modifier: $foo. Expected a valid update modifier or pipeline-style update specified as an array",
        ),
        (
            "{$set: 5}",
            "{}",
            9,
            "Modifiers operate on fields but we found type int instead. For example: {$mod: {<field>: ...}} not {$set: 5}",
        ),
        (
            "{$set: {'a.$': 1}}",
            "{}",
            2,
            "The positional operator did not find the match needed from the query.",
        ),
        ("{$set: {'a.2000000': 1}}", "{a: []}", 34, "can't backfill more than 1500000 elements"),
        (
            "{a: 1, $set: {b: 1}}",
            "{}",
            52,
            "The dollar ($) prefixed field '$set' in '$set' is not allowed in the context of an update's replacement document. Consider using an aggregation pipeline with $replaceWith.",
        ),
    ];
    for (update, doc, code, text) in cases {
        let error = apply(update, doc).unwrap_err();
        assert_eq!((error.code().0, error.message()), (code, text), "{update}");
    }
}

fn upsert(filter: &str, update: &str) -> Result<Upserted> {
    let filter = parse_document(filter).unwrap();
    let matcher = Matcher::parse(filter.as_doc(), &ParseContext::default())?;
    parse(update)?.upsert_document(
        &matcher,
        &UpdateContext { now_ms: NOW_MS, is_insert: true, position: None },
    )
}

/// Manual: "Upsert Behavior".
#[test]
fn upserts() {
    let cases = [
        ("{a: 1, b: {$eq: 2}, c: {$gt: 5}}", "{$set: {d: 4}}", "{a: 1, b: 2, d: 4}"),
        ("{$and: [{a: 1}, {'b.c': 2}]}", "{$setOnInsert: {_id: 7}}", "{_id: 7, a: 1, b: {c: 2}}"),
        ("{b: 1, _id: 5}", "{$inc: {n: 1}}", "{_id: 5, b: 1, n: 1}"),
        ("{b: 1, _id: 5}", "{x: 1}", "{_id: 5, x: 1}"),
        ("{$or: [{a: 1}, {a: 2}]}", "{$set: {d: 4}}", "{d: 4}"),
        ("{a: 1}", "{$set: {a: 2}}", "{a: 2}"),
        ("{a: {$in: [1]}, b: {$in: [1, 2]}}", "{$set: {d: 4}}", "{a: 1, d: 4}"),
        ("{a: {$elemMatch: {b: 1}}, c: {$ne: 1}}", "{$set: {d: 4}}", "{d: 4}"),
        ("{a: [0, 1]}", "{$set: {'a.$[]': 2}}", "{a: [2, 2]}"),
        ("{'_id.a': 1, '_id.b': 2}", "{$set: {c: 3}}", "{_id: {a: 1, b: 2}, c: 3}"),
    ];
    for (filter, update, expected) in cases {
        let upserted = upsert(filter, update).unwrap();
        let expected = parse_document(expected).unwrap();
        assert_eq!(upserted.document, expected, "{filter} {update}");
        assert_eq!(upserted.has_id, expected.as_doc().get("_id").is_some(), "{filter} {update}");
    }
    assert_eq!(upsert("{a: 1, $and: [{a: 1}]}", "{$set: {b: 1}}").unwrap_err().code().0, 54);
    assert_eq!(upsert("{_id: 1}", "{_id: 2}").unwrap_err().code().0, 66);
    assert_eq!(upsert("{_id: 1}", "{$set: {_id: 2}}").unwrap_err().code().0, 66);
    assert_eq!(upsert("{'_id.a': 1}", "{b: 2}").unwrap_err().code().0, 111);
    assert_eq!(upsert("{a: 1}", "{$set: {'a.$': 2}}").unwrap_err().code().0, 2);
}

/// Manual: "$push", "$addToSet": clauses.
#[test]
fn clause_errors() {
    let cases = [
        (
            "{$push: {a: {$each: 1}}}",
            2,
            "The argument to $each in $push must be an array but it was of type: int",
        ),
        (
            "{$push: {a: {$each: [], $slice: 'x'}}}",
            2,
            "The value for $slice must be an integer value but was given type: string",
        ),
        (
            "{$push: {a: {$each: [], $position: 'x'}}}",
            2,
            "The value for $position must be an integer value, not of type: string",
        ),
        (
            "{$push: {a: {$each: [], $sort: 2}}}",
            2,
            "The $sort element value must be either 1 or -1",
        ),
        (
            "{$push: {a: {$each: [], $sort: {}}}}",
            2,
            "The sort pattern is empty when it should be a set of fields.",
        ),
        (
            "{$push: {a: {$each: [], $sort: {b: 2}}}}",
            2,
            "The sort element value must be either 1 or -1",
        ),
        ("{$push: {a: {$each: [], $foo: 2}}}", 2, "Unrecognized clause in $push: $foo"),
        (
            "{$addToSet: {a: {$each: 1}}}",
            14,
            "The argument to $each in $addToSet must be an array but it was of type int",
        ),
        (
            "{$addToSet: {a: {$each: [], b: 1}}}",
            2,
            "Found unexpected fields after $each in $addToSet: { $each: [], b: 1 }",
        ),
    ];
    for (update, code, text) in cases {
        let error = parse(update).unwrap_err();
        assert_eq!((error.code().0, error.message()), (code, text), "{update}");
    }
}

/// Many values give the same results as few: they are compared, and the first of equal ones is
/// kept.
#[test]
fn many_values() {
    let names: Vec<String> = (0..30).map(|at| format!("'n{at}'")).collect();
    let names = names.join(", ");
    check(
        &format!(
            "{{$addToSet: {{a: {{$each: [1.0, 3, 3.0, {{b: 1}}, {{b: 1.0}}, 'n3', null, {names}]}}}}}}"
        ),
        "{a: [1, 1, 'n7', {b: 2}]}",
        &format!(
            "{{a: [1, 1, 'n7', {{b: 2}}, 3, {{b: 1}}, 'n3', null, {}]}}",
            names.replace("'n3', ", "").replace("'n7', ", "")
        ),
    );
    check(
        &format!("{{$pullAll: {{a: [1.0, {{b: 1}}, null, {names}]}}}}"),
        "{a: [1, 2, 'n7', 'N7', {b: 1.0}, {b: 2}, null, [1]]}",
        "{a: [2, 'N7', {b: 2}, [1]]}",
    );
    let fields = |value: &str, of: &dyn Fn(i32) -> i32| {
        let all: Vec<String> = (0..30).map(|at| format!("f{:02}: {value}", of(at))).collect();
        all.join(", ")
    };
    let (up, down) = (fields("1", &|at| at), fields("1", &|at| 29 - at));
    let set = format!("{{$set: {{{}, _id: 7, g: 2}}}}", fields("'x'", &|at| at));
    let set_down = format!("{{_id: 7, {}, g: 2}}", fields("'x'", &|at| 29 - at));
    check(&set, &format!("{{{down}, _id: 7}}"), &set_down);
    check(&format!("{{$unset: {{{up}}}}}"), &format!("{{_id: 7, {down}, g: 2}}"), "{_id: 7, g: 2}");
}

/// One operator on one field takes a shorter way; another operator, which changes nothing, brings
/// it to the tree of nodes.
#[test]
fn one_field_is_changed_as_several_are() {
    let documents = [
        "{_id: 1}",
        "{_id: 1, a: 1}",
        "{_id: 1, a: 'text', b: 2}",
        "{_id: 1, b: 2, a: {c: 1}, d: [1]}",
        "{_id: 1, b: 2, a: [3, 1, 2]}",
        "{b: 1, a: 2, _id: 1}",
        "{a: 2}",
    ];
    let operators = [
        "$set: {a: 5}",
        "$set: {a: 'long text that needs more room than there was'}",
        "$set: {a: {x: [1, {y: 2}]}}",
        "$unset: {a: ''}",
        "$inc: {a: 1}",
        "$mul: {a: 1.5}",
        "$min: {a: 0}",
        "$max: {a: 0}",
        "$push: {a: 1}",
        "$pull: {a: 1}",
        "$addToSet: {a: 3}",
        "$pop: {a: 1}",
        "$currentDate: {a: true}",
        "$bit: {a: {or: 6}}",
    ];
    let shown = |result: Result<Option<DocBuf>>| match result {
        Ok(updated) => updated.map(|it| to_string(it.as_doc(), Style::Canonical)),
        Err(error) => Some(format!("{} {}", error.code().0, error.message())),
    };
    for document in documents {
        for operator in operators {
            let unset = if operator.starts_with("$unset") {
                "{$unset: {a: '', none: ''}}".to_owned()
            } else {
                format!("{{{operator}, $unset: {{none: ''}}}}")
            };
            let one = apply(&format!("{{{operator}}}"), document);
            assert_eq!(shown(one), shown(apply(&unset, document)), "{operator} on {document}");
        }
    }
}
