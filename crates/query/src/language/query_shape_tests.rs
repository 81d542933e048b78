//! Tests of command shapes and their hashes.

use mayfly_base::Namespace;
use mayfly_value::extjson::parse_document;
use mayfly_value::shell::Shell;
use mayfly_value::{DocBuilder, RawValue};

use super::query_shape::{QueryShape, QueryShapeHash};

fn shape(command: &str, body: &str) -> QueryShape {
    let ns = Namespace::new("test", "c").unwrap();
    QueryShape::of(command, &ns, parse_document(body).unwrap().as_doc()).unwrap()
}

fn check(command: &str, body: &str, expected: &str) {
    let shape = Shell(shape(command, body).as_doc()).to_string();
    let shown = shape.split_once(&format!("command: \"{command}\", ")).unwrap().1;
    assert_eq!(shown.strip_suffix(" }").unwrap(), expected, "{body}");
}

#[test]
fn finds() {
    check(
        "find",
        "{filter: {d: {$date: 0}, n: {$gt: 1, $lt: 2.5}}, sort: {t: -1}}",
        "filter: { $and: [ { d: { $eq: \"?date\" } }, { n: { $gt: \"?number\" } }, \
         { n: { $lt: \"?number\" } } ] }, sort: { t: -1 }",
    );
    check(
        "find",
        "{filter: {}, skip: 0, limit: 5, singleBatch: true, tailable: false}",
        "filter: {}, limit: \"?number\", singleBatch: true",
    );
    check(
        "find",
        "{filter: {a: {$in: [1, 2]}, b: {$in: [1, 'x']}, c: {$in: []}, d: []}}",
        "filter: { $and: [ { a: { $in: \"?array<?number>\" } }, { b: { $in: \"?array<>\" } }, \
         { c: { $in: \"[]\" } }, { d: { $eq: \"[]\" } } ] }",
    );
    check(
        "find",
        "{filter: {$or: [{a: 1}, {b: {$not: {$gt: 1}}, c: {$elemMatch: {x: 1}}}]}}",
        "filter: { $or: [ { a: { $eq: \"?number\" } }, { $and: [ { b: { $not: { $gt: \
         \"?number\" } } }, { c: { $elemMatch: { x: { $eq: \"?number\" } } } } ] } ] }",
    );
    check(
        "find",
        "{filter: {$expr: {$gt: ['$a', {$add: ['$b', 1]}]}}, projection: {a: 1, b: {$slice: 2}}}",
        "filter: { $expr: { $gt: [ \"$a\", { $add: [ \"$b\", \"?number\" ] } ] } }, projection: \
         { a: true, b: { $slice: \"?number\" } }",
    );
    check(
        "find",
        "{filter: {a: {$type: 'int'}, b: {$type: ['int', 2]}, c: {$exists: 1}, d: {$all: [1, 2]}}}",
        "filter: { $and: [ { a: { $type: [ \"int\" ] } }, { b: { $type: [ \"int\", 2 ] } }, \
         { c: { $exists: true } }, { d: { $all: [ \"?number\", \"?number\" ] } } ] }",
    );
    check(
        "find",
        "{filter: {a: {$regex: 'x', $options: 'i'}}, let: {v: 1}, min: {a: 1}, hint: {a: 1}}",
        "filter: { a: { $regex: \"?string\", $options: \"?string\" } }, min: { a: \"?number\" }, \
         let: { v: \"?number\" }",
    );
}

#[test]
fn distincts() {
    check(
        "distinct",
        "{key: 'k', query: {a: 'x'}, collation: {locale: 'en'}}",
        "key: \"k\", query: { a: { $eq: \"?string\" } }, collation: { locale: \"en\" }",
    );
}

#[test]
fn aggregates() {
    check(
        "aggregate",
        "{pipeline: [{$match: {a: 1}}, {$group: {_id: '$b', n: {$sum: 1}, t: {$sum: '$c'}}}, \
         {$sort: {n: -1}}, {$limit: 3}], cursor: {batchSize: 2}}",
        "pipeline: [ { $match: { a: { $eq: \"?number\" } } }, { $group: { _id: \"$b\", n: { $sum: \
         \"?number\" }, t: { $sum: \"$c\" } } }, { $sort: { n: -1 } }, { $limit: \"?number\" } ]",
    );
    check(
        "aggregate",
        "{pipeline: [{$lookup: {from: 'o', as: 'r', let: {x: '$x'}, pipeline: [{$match: \
         {$expr: {$eq: ['$$x', 3]}}}]}}, {$unwind: '$r'}, {$facet: {f: [{$skip: 2}]}}]}",
        "pipeline: [ { $lookup: { from: \"o\", as: \"r\", let: { x: \"$x\" }, pipeline: [ { $match: \
         { $expr: { $eq: [ \"$$x\", \"?number\" ] } } } ] } }, { $unwind: \"$r\" }, { $facet: { f: [ \
         { $skip: \"?number\" } ] } } ]",
    );
}

#[test]
fn hashes() {
    let hash = |body| shape("find", body).hash();
    let one = hash("{filter: {a: 1}}");
    assert_eq!(one, hash("{filter: {a: 2.5}, hint: 'a_1', batchSize: 7, limit: 0}"));
    assert_ne!(one, hash("{filter: {a: 'x'}}"));
    assert_ne!(one, hash("{filter: {a: 1}, limit: 1}"));
    let text = one.to_string();
    assert_eq!(text.len(), 64);
    assert_eq!(QueryShapeHash::parse(&text), Some(one));
    assert_eq!(QueryShapeHash::parse(&text[1..]), None);
    assert_eq!(QueryShapeHash::parse(&text.replace(&text[..1], "x")), None);
}

proptest::proptest! {
    /// Any command has a shape, and it can be stored as a document.
    #[test]
    fn shapes_of_anything(
        first in mayfly_value::arbitrary::any_document(),
        second in mayfly_value::arbitrary::any_document(),
        stage in proptest::sample::select(vec![
            "$match", "$group", "$project", "$lookup", "$facet", "$geoNear", "$setWindowFields", "$what",
        ]),
        name in proptest::sample::select(vec!["a", "$and", "$not", "$elemMatch", "$all", "$expr"]),
    ) {
        let ns = Namespace::new("test", "c").unwrap();
        let mut find = DocBuilder::new();
        find.start_document("filter").append_all(first.as_doc());
        find.append(name, RawValue::Document(second.as_doc())).end();
        find.append("projection", RawValue::Document(second.as_doc()));
        find.append("sort", RawValue::Document(first.as_doc()));
        let shape = QueryShape::of("find", &ns, find.finish().as_doc()).unwrap();
        mayfly_value::validate(shape.as_doc().as_bytes(), 200).unwrap();
        let mut aggregate = DocBuilder::new();
        aggregate.start_array("pipeline").push_document();
        aggregate.append(stage, RawValue::Document(first.as_doc())).end().end();
        let shape = QueryShape::of("aggregate", &ns, aggregate.finish().as_doc()).unwrap();
        mayfly_value::validate(shape.as_doc().as_bytes(), 200).unwrap();
    }
}
