//! Random strings, filters and collations: answers are the same without indexes, with indexes of
//! this and of other collations, and in a collection whose records are ordered by a collation.

use mayfly_testkit::{Fixture, expect, memory};
use mayfly_value::{DocBuf, RawDoc, RawValue, ValueBuf};
use proptest::prelude::*;
use proptest::sample::select;

use crate::properties::runner;

const COLLATIONS: &[&str] = &[
    "{locale: 'simple'}",
    "{locale: 'en', strength: 1}",
    "{locale: 'en', strength: 2}",
    "{locale: 'fr_CA'}",
    "{locale: 'en', numericOrdering: true}",
    "{locale: 'en', alternate: 'shifted', strength: 2}",
];

const COLLECTIONS: &[&str] = &["plain", "indexed", "clustered"];

fn value() -> BoxedStrategy<String> {
    let leaf = select(vec![
        "1", "10", "null", "'1'", "'10'", "'2'", "'a'", "'A'", "'á'", "'b'", "'B'", "'a b'",
        "'a-b'", "'ab'", "''", "Date(5)",
    ])
    .prop_map(str::to_owned);
    prop_oneof![
        6 => leaf.clone(),
        1 => leaf.clone().prop_map(|leaf| format!("{{x: {leaf}}}")),
        1 => prop::collection::vec(leaf, 0..3).prop_map(|items| format!("[{}]", items.join(", "))),
    ]
    .boxed()
}

fn id() -> impl Strategy<Value = String> {
    // Different under every collation.
    select(vec!["'k1'", "'L2'", "'é3'", "'f4'", "5", "6", "'z 7'", "'Z8'"]).prop_map(str::to_owned)
}

fn filter() -> impl Strategy<Value = String> {
    let predicate = prop_oneof![
        3 => value(),
        4 => (select(vec!["$eq", "$ne", "$gt", "$gte", "$lt", "$lte"]), value())
            .prop_map(|(op, value)| format!("{{{op}: {value}}}")),
        2 => (select(vec!["$in", "$nin", "$all"]), prop::collection::vec(value(), 1..4))
            .prop_map(|(op, list)| format!("{{{op}: [{}]}}", list.join(", "))),
        1 => (value(), value()).prop_map(|(low, high)| format!("{{$gte: {low}, $lt: {high}}}")),
    ];
    let field = (select(vec!["a", "b", "a.x"]), predicate)
        .prop_map(|(path, predicate)| format!("'{path}': {predicate}"));
    let by_id = (select(vec!["$eq", "$gte", "$lt"]), id())
        .prop_map(|(op, id)| format!("_id: {{{op}: {id}}}"));
    prop::collection::vec(prop_oneof![5 => field, 1 => by_id], 1..3)
        .prop_map(|parts| format!("{{$and: [{{{}}}]}}", parts.join("}, {")))
}

fn ids(reply: &DocBuf) -> Vec<ValueBuf> {
    let batch = expect::batch(reply.as_doc()).and_then(RawValue::as_array).unwrap_or(RawDoc::EMPTY);
    let id = |document: RawValue<'_>| document.as_document()?.get("_id").map(RawValue::to_owned);
    batch.iter().filter_map(|element| id(element.value())).collect()
}

fn load(fixture: &Fixture, documents: &[(String, String, String)], default: &str) {
    fixture.ok("test", "{create: 'plain'}");
    fixture.ok("test", &format!("{{create: 'clustered', collation: {default}}}"));
    for (at, collation) in COLLATIONS.iter().enumerate() {
        let a = format!("{{key: {{a: 1}}, name: 'a{at}', collation: {collation}}}");
        let b = format!("{{key: {{b: -1, a: 1}}, name: 'b{at}', collation: {collation}}}");
        // Every second collation has no index.
        if at % 2 == 1 {
            fixture.ok("test", &format!("{{createIndexes: 'indexed', indexes: [{a}, {b}]}}"));
        }
        fixture.ok("test", &format!("{{createIndexes: 'clustered', indexes: [{a}]}}"));
    }
    for (id, a, b) in documents {
        let insert = |collection: &str| {
            let text =
                format!("{{insert: '{collection}', documents: [{{_id: {id}, a: {a}, b: {b}}}]}}");
            fixture.run("test", &text).as_doc().get("n") == Some(RawValue::Int32(1))
        };
        // Refused: arrays in both fields, or an existing `_id`.
        if insert("indexed") {
            assert!(insert("plain") && insert("clustered"), "{id} {a} {b}");
        }
    }
}

fn agree(fixture: &Fixture, filter: &str, collation: &str) -> Result<(), TestCaseError> {
    for sort in ["{_id: 1}", "{_id: -1}", "{a: 1, _id: 1}", "{b: -1, a: 1, _id: -1}"] {
        let find = |collection: &&str| {
            let more = format!("filter: {filter}, sort: {sort}, collation: {collation}");
            ids(&fixture.ok("test", &format!("{{find: '{collection}', {more}}}")))
        };
        let found: Vec<_> = COLLECTIONS.iter().map(find).collect();
        prop_assert_eq!(&found[0], &found[1], "{} {} {}", filter, sort, collation);
        prop_assert_eq!(&found[0], &found[2], "{} {} {}", filter, sort, collation);
    }
    let count = |collection: &&str| {
        let more = format!("query: {filter}, collation: {collation}");
        fixture.ok("test", &format!("{{count: '{collection}', {more}}}"))
    };
    let counted: Vec<_> = COLLECTIONS.iter().map(count).collect();
    prop_assert_eq!(&counted[0], &counted[1], "count {} {}", filter, collation);
    prop_assert_eq!(&counted[0], &counted[2], "count {} {}", filter, collation);
    let distinct = |collection: &&str| {
        let more = format!("key: 'a', query: {filter}, collation: {collation}");
        let reply = fixture.ok("test", &format!("{{distinct: '{collection}', {more}}}"));
        let values = reply.as_doc().get("values").and_then(RawValue::as_array);
        values.unwrap_or(RawDoc::EMPTY).iter().count()
    };
    let values: Vec<_> = COLLECTIONS.iter().map(distinct).collect();
    prop_assert_eq!(values[0], values[1], "distinct {} {}", filter, collation);
    prop_assert_eq!(values[0], values[2], "distinct {} {}", filter, collation);
    Ok(())
}

#[test]
fn indexed_equals_unindexed_under_collations() {
    let documents = prop::collection::vec((id(), value(), value()), 1..12);
    let queries = prop::collection::vec((filter(), select(COLLATIONS.to_vec())), 1..8);
    let defaults = select(COLLATIONS.to_vec());
    let run = |(documents, queries, default): (Vec<_>, Vec<(String, &str)>, &str)| {
        let fixture = Fixture::new(memory());
        load(&fixture, &documents, default);
        queries.iter().try_for_each(|(filter, collation)| agree(&fixture, filter, collation))
    };
    runner(60).run(&(documents, queries, defaults), run).unwrap();
}
