//! Hashed and wildcard indexes against a scan: random documents, filters, sorts and writes have the
//! same results, with a hint and with the planner's choice, and `validate` finds no damage
//! afterwards.

use mayfly_testkit::{Fixture, memory};
use mayfly_value::{RawValue, ValueBuf, compare_values};
use proptest::prelude::*;
use proptest::sample::select;

use crate::properties::{ids, predicate, runner, value};

/// Definitions of indexes, each tested by itself.
const KINDS: &[&str] = &[
    "{key: {a: 'hashed'}, name: 'i'}",
    "{key: {'a.x': 'hashed'}, name: 'i', sparse: true}",
    "{key: {b: 1, a: 'hashed', c: -1}, name: 'i'}",
    "{key: {'a.x': 'hashed', b: 1}, name: 'i', partialFilterExpression: {b: {$gte: 1}}}",
    "{key: {a: 'hashed'}, name: 'i', collation: {locale: 'en', strength: 2}}",
    "{key: {'$**': 1}, name: 'i'}",
    "{key: {'$**': -1}, name: 'i', collation: {locale: 'en', strength: 2}}",
    "{key: {'$**': 1}, name: 'i', wildcardProjection: {a: 1, 'b.x': 1}}",
    "{key: {'$**': 1}, name: 'i', wildcardProjection: {'a.x': 0, c: 0, _id: 1}}",
    "{key: {'$**': 1}, name: 'i', partialFilterExpression: {a: {$exists: true}}}",
    "{key: {'a.$**': 1}, name: 'i'}",
    "{key: {'a.x.$**': -1}, name: 'i'}",
    "{key: {c: 1, '$**': 1}, name: 'i', wildcardProjection: {c: 0}}",
    "{key: {'$**': 1, c: 1}, name: 'i', wildcardProjection: {a: 1, b: 1}}",
    "{key: {b: -1, 'a.$**': -1, c: 1}, name: 'i'}",
];

const PATHS: &[&str] =
    &["a", "b", "c", "a.x", "b.x", "a.y", "a.0", "a.0.x", "a.x.0", "a.1", "a.x.y", "c.x", "_id"];

fn document() -> impl Strategy<Value = String> {
    let field = || prop::option::weighted(0.8, value());
    let scalar = select(vec!["1", "2", "null", "'a'", "'A'", "{x: 1}", "{}", "NumberLong(1)"]);
    // Fields next to a wildcard refuse arrays, so often they have none.
    let plain = prop_oneof![3 => scalar.prop_map(str::to_owned), 1 => value()];
    (field(), prop::option::weighted(0.7, plain.clone()), prop::option::weighted(0.7, plain))
        .prop_map(|(a, b, c)| {
            let named = [("a", a), ("b", b), ("c", c)];
            let fields = named.into_iter().filter_map(|(name, value)| Some((name, value?)));
            fields.map(|(name, value)| format!("{name}: {value}")).collect::<Vec<_>>().join(", ")
        })
}

fn filter() -> BoxedStrategy<String> {
    let path = || select(PATHS);
    let field = prop_oneof![
        3 => (path(), predicate()).prop_map(|(path, test)| format!("{{'{path}': {test}}}")),
        2 => (path(), value()).prop_map(|(path, value)| format!("{{'{path}': {value}}}")),
        1 => (path(), prop::bool::ANY)
            .prop_map(|(path, there)| format!("{{'{path}': {{$exists: {there}}}}}")),
    ];
    field
        .prop_recursive(2, 6, 3, |inner| {
            (select(vec!["$and", "$and", "$or", "$nor"]), prop::collection::vec(inner, 1..4))
                .prop_map(|(op, parts)| format!("{{{op}: [{}]}}", parts.join(", ")))
        })
        .boxed()
}

fn sort() -> impl Strategy<Value = &'static str> {
    select(vec![
        "{a: 1, _id: 1}",
        "{'a.x': -1, _id: 1}",
        "{b: 1, a: 1, _id: 1}",
        "{b: -1, 'a.x': -1, c: 1, _id: 1}",
        "{c: 1, b: 1, _id: -1}",
        "{_id: -1}",
    ])
}

fn sorted(mut ids: Vec<ValueBuf>) -> Vec<ValueBuf> {
    ids.sort_by(|a, b| compare_values(a.as_raw(), b.as_raw()));
    ids
}

/// Compares the answers of both collections for all kinds of reads, with a hint if the index
/// supports the query.
fn agree(fixture: &Fixture, filter: &str, sort: &str, index: &str) -> Result<(), TestCaseError> {
    for collation in ["", ", collation: {locale: 'en', strength: 2}"] {
        let find = |collection: &str, more: &str| {
            let text = format!(
                "{{find: '{collection}', filter: {filter}, batchSize: 1000{more}{collation}}}"
            );
            let reply = fixture.run("test", &text);
            (ids(&reply), reply.as_doc().get("code").map(RawValue::to_owned))
        };
        let hinted = |more: &str| {
            let (found, code) = find("indexed", &format!(", hint: 'i'{more}"));
            // A hint for an index that cannot be used is an error; a partial index may omit
            // documents.
            (code.is_none() && !index.contains("partial")).then_some(found)
        };
        let ((plain, code), (indexed, code_too)) = (find("plain", ""), find("indexed", ""));
        prop_assert_eq!(&code, &code_too, "{} {}", filter, index);
        let plain = sorted(plain);
        prop_assert_eq!(&plain, &sorted(indexed), "{} {} {}", filter, index, collation);
        let leaves_out = index.contains("sparse");
        if let Some(found) = hinted("").filter(|_| !leaves_out) {
            prop_assert_eq!(&plain, &sorted(found), "hint {} {} {}", filter, index, collation);
        }
        let count = |collection: &str, more: &str| {
            let text = format!("{{count: '{collection}', query: {filter}{more}{collation}}}");
            fixture.run("test", &text).as_doc().get("n").map(RawValue::to_owned)
        };
        prop_assert_eq!(count("plain", ""), count("indexed", ""), "count {} {}", filter, index);
        for more in ["", ", skip: 1, limit: 3"] {
            let more = format!(", sort: {sort}{more}");
            let plain = find("plain", &more);
            prop_assert_eq!(&plain, &find("indexed", &more), "{} {} {}", filter, more, index);
            if let Some(found) = hinted(&more).filter(|_| !leaves_out) {
                prop_assert_eq!(&plain.0, &found, "hint {} {} {}", filter, more, index);
            }
        }
    }
    Ok(())
}

/// Compares the distinct values of a field.
fn agree_on_values(fixture: &Fixture, filter: &str, index: &str) -> Result<(), TestCaseError> {
    for key in ["a", "b", "a.x", "a.0", "c"] {
        let distinct = |collection: &str| {
            let text = format!("{{distinct: '{collection}', key: '{key}', query: {filter}}}");
            let reply = fixture.run("test", &text);
            let values = reply.as_doc().get("values").and_then(RawValue::as_array);
            let values: Vec<ValueBuf> =
                values.into_iter().flatten().map(|value| value.value().to_owned()).collect();
            sorted(values)
        };
        let (plain, indexed) = (distinct("plain"), distinct("indexed"));
        let same = |(a, b): (&ValueBuf, &ValueBuf)| compare_values(a.as_raw(), b.as_raw()).is_eq();
        let same = plain.len() == indexed.len() && plain.iter().zip(&indexed).all(same);
        prop_assert!(same, "{} {} {}: {:?} {:?}", key, filter, index, plain, indexed);
    }
    Ok(())
}

/// Runs a write on both collections. Returns false if the index refused it; the collections differ
/// then.
fn write_alike(fixture: &Fixture, statement: &str) -> Result<bool, TestCaseError> {
    let run = |collection: &str| fixture.run("test", &statement.replace("COLL", collection));
    let indexed = run("indexed");
    let failed =
        indexed.as_doc().get("writeErrors").is_some() || indexed.as_doc().get("code").is_some();
    if failed {
        return Ok(false);
    }
    prop_assert_eq!(run("plain"), indexed, "{}", statement);
    Ok(true)
}

fn write() -> impl Strategy<Value = String> {
    let one = (0..12u8, select(vec!["a", "b", "c", "a.x", "a.0", "b.x"]), value());
    prop_oneof![
        3 => (filter(), select(vec!["a", "b", "c"]), value()).prop_map(|(filter, path, value)| format!(
            "{{update: 'COLL', updates: [{{q: {filter}, u: {{$set: {{'{path}': {value}}}}}, multi: true}}]}}"
        )),
        3 => one.prop_map(|(id, path, value)| format!(
            "{{update: 'COLL', updates: [{{q: {{_id: {id}}}, u: {{$set: {{'{path}': {value}}}}}}}]}}"
        )),
        2 => (0..12u8, value()).prop_map(|(id, value)| format!(
            "{{update: 'COLL', updates: [{{q: {{_id: {id}}}, u: [{{$set: {{a: {value}}}}}, {{$unset: 'c'}}]}}]}}"
        )),
        1 => filter().prop_map(|filter| format!("{{delete: 'COLL', deletes: [{{q: {filter}, limit: 0}}]}}")),
        1 => (filter(), sort()).prop_map(|(filter, sort)| format!(
            "{{findAndModify: 'COLL', query: {filter}, sort: {sort}, update: {{$unset: {{a: 1}}}}}}"
        )),
        1 => (0..12u8, document()).prop_map(|(id, fields)| format!(
            "{{update: 'COLL', updates: [{{q: {{_id: {id}}}, u: {{_id: {id}, {fields}}}, upsert: true}}]}}"
        )),
    ]
}

#[test]
fn hashed_and_wildcard_indexes_find_what_a_scan_finds() {
    let documents = prop::collection::vec(document(), 1..16);
    let queries = prop::collection::vec((filter(), sort()), 8);
    let writes = prop::collection::vec(write(), 4);
    let case = (select(KINDS), documents, queries, writes, any::<bool>());
    let result = runner(200).run(&case, |(index, documents, queries, writes, late)| {
        let fixture = Fixture::new(memory());
        fixture.ok("test", "{create: 'plain'}");
        let create = format!("{{createIndexes: 'indexed', indexes: [{index}]}}");
        fixture.ok("test", &create);
        for (id, fields) in documents.iter().enumerate() {
            write_alike(
                &fixture,
                &format!("{{insert: 'COLL', documents: [{{_id: {id}, {fields}}}]}}"),
            )?;
        }
        if late {
            fixture.ok("test", "{dropIndexes: 'indexed', index: 'i'}");
            fixture.ok("test", &create);
        }
        for (filter, sort) in &queries {
            agree(&fixture, filter, sort, index)?;
        }
        agree_on_values(&fixture, &queries[0].0, index)?;
        for statement in &writes {
            if !write_alike(&fixture, statement)? {
                break;
            }
            agree(&fixture, "{}", queries[0].1, index)?;
            agree(&fixture, &queries[1].0, queries[1].1, index)?;
        }
        let report = fixture.ok("test", "{validate: 'indexed', full: true}");
        prop_assert_eq!(report.as_doc().get("valid"), Some(RawValue::Bool(true)), "{}", index);
        Ok(())
    });
    if let Err(failure) = result {
        panic!("{failure}");
    }
}

/// A value that becomes an array of that value has the same keys, and makes the index multikey all
/// the same.
#[test]
fn an_array_of_the_same_value_marks_the_index() {
    for key in ["{a: 1}", "{'a.x': 1, b: 1}", "{'$**': 1}", "{'a.$**': 1}"] {
        let fixture = Fixture::new(memory());
        fixture
            .ok("test", &format!("{{createIndexes: 'c', indexes: [{{key: {key}, name: 'i'}}]}}"));
        fixture.ok("test", "{insert: 'c', documents: [{_id: 1, a: {x: 1}}]}");
        let update = "{q: {_id: 1}, u: {$set: {a: [{x: 1}]}}}";
        fixture.ok("test", &format!("{{update: 'c', updates: [{update}]}}"));
        let report = fixture.ok("test", "{validate: 'c'}");
        assert_eq!(report.as_doc().get("valid"), Some(RawValue::Bool(true)), "{key}");
    }
}
