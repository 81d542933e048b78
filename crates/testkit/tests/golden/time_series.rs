//! Random measurements and filters: the results of a time series are those of an ordinary
//! collection with the same documents.

use std::ops::ControlFlow;
use std::sync::Arc;

use mayfly_kv::{
    Direction, Engine, Guard, KeyRange, Keyspace, MemoryEngine, ScanLimit, TxnOptions,
};
use mayfly_testkit::{Fixture, Reopenable, expect, memory, memory_under_chaos};
use mayfly_value::shell::Shell;
use mayfly_value::{DocBuf, DocBuilder, RawDoc, RawValue, ValueBuf, compare_values};
use proptest::prelude::*;
use proptest::sample::select;

use super::properties::{document, filter, ids, runner};

/// Times that share buckets, begin buckets, and are far apart; in milliseconds.
fn time() -> impl Strategy<Value = i64> {
    let near = select(vec![0, 1, 59_999, 60_000, 3_599_999, 3_600_000, -1, 7_200_000]);
    let base = select(vec![0i64, 1_800_000_000_000, -9_000_000_000_000, 5_000_000_000_000]);
    (base, near).prop_map(|(base, near)| base + near)
}

/// A filter with conditions on times.
fn timed_filter() -> impl Strategy<Value = String> {
    let operator = select(vec!["$eq", "$gt", "$gte", "$lt", "$lte", "$ne"]);
    let timed = (operator, time()).prop_map(|(op, time)| format!("{{t: {{{op}: Date({time})}}}}"));
    (timed, filter(), select(vec!["one", "and", "or", "other"])).prop_map(|(timed, other, way)| {
        match way {
            "one" => timed,
            "and" => format!("{{$and: [{timed}, {other}]}}"),
            "or" => format!("{{$or: [{timed}, {other}]}}"),
            _ => other,
        }
    })
}

fn sorted(mut ids: Vec<ValueBuf>) -> Vec<ValueBuf> {
    ids.sort_by(|a, b| compare_values(a.as_raw(), b.as_raw()));
    ids
}

fn agree(fixture: &Fixture, filter: &str) -> Result<(), TestCaseError> {
    let run = |collection: &str, verb: &str, rest: &str| {
        fixture.run("test", &format!("{{{verb}: '{collection}', {rest}}}"))
    };
    for projection in ["{}", "{_id: 1}", "{_id: 1, b: 1}"] {
        let rest = format!("filter: {filter}, projection: {projection}, batchSize: 1000");
        let find = |collection| sorted(ids(&run(collection, "find", &rest)));
        prop_assert_eq!(find("series"), find("plain"), "{} {}", filter, projection);
    }
    for direction in [1, -1] {
        for rest in ["limit: 1", "limit: 5", "limit: 3, skip: 2"] {
            let rest = format!("filter: {filter}, sort: {{t: {direction}, _id: 1}}, {rest}");
            let foremost = |collection| ids(&run(collection, "find", &rest));
            prop_assert_eq!(foremost("series"), foremost("plain"), "{}", rest);
        }
    }
    let rest = format!("query: {filter}");
    let count =
        |collection| run(collection, "count", &rest).as_doc().get("n").map(RawValue::to_owned);
    prop_assert_eq!(count("series"), count("plain"), "{}", filter);
    let group = "{$group: {_id: null, n: {$sum: 1}, most: {$max: '$c'}}}";
    let rest = format!("pipeline: [{{$match: {filter}}}, {group}], cursor: {{}}");
    let grouped = |collection: &str| {
        let reply = run(collection, "aggregate", &rest);
        let cursor = reply.as_doc().get("cursor").and_then(RawValue::as_document);
        cursor.and_then(|cursor| cursor.get("firstBatch")).map(RawValue::to_owned)
    };
    prop_assert_eq!(grouped("series"), grouped("plain"), "{}", filter);
    Ok(())
}

/// All documents that a read of this collection returns, in the order of `_id`.
fn content(fixture: &Fixture, collection: &str) -> Vec<DocBuf> {
    let find = format!("{{find: '{collection}', sort: {{_id: 1, t: 1}}, batchSize: 1000}}");
    let reply = fixture.ok("test", &find);
    let batch = expect::batch(reply.as_doc()).and_then(RawValue::as_array).unwrap();
    batch.iter().filter_map(|element| element.value().as_document()).map(RawDoc::to_owned).collect()
}

/// Restores the buckets of the time series into another one: it has the same measurements and the
/// same buckets.
fn restored_alike(fixture: &Fixture) -> Result<(), TestCaseError> {
    fixture.ok("test", "{drop: 'restored'}");
    let series = "{timeField: 't', metaField: 'a'}";
    fixture.ok("test", &format!("{{create: 'restored', timeseries: {series}}}"));
    let buckets = content(fixture, "system.buckets.series");
    if buckets.is_empty() {
        return Ok(());
    }
    let mut insert = DocBuilder::new();
    insert.append("insert", "system.buckets.restored").start_array("documents");
    buckets.iter().for_each(|bucket| {
        insert.push(bucket);
    });
    insert.end();
    let reply = fixture.run_document("test", insert.finish().as_doc());
    prop_assert!(reply.as_doc().get("writeErrors").is_none(), "{}", Shell(reply.as_doc()));
    prop_assert_eq!(content(fixture, "restored"), content(fixture, "series"));
    prop_assert_eq!(content(fixture, "system.buckets.restored"), buckets);
    for name in ["series", "restored"] {
        let reply = fixture.ok("test", &format!("{{validate: '{name}'}}"));
        let valid = reply.as_doc().get("valid");
        prop_assert_eq!(valid, Some(RawValue::Bool(true)), "{}", Shell(reply.as_doc()));
    }
    Ok(())
}

fn check(fixture: &Fixture, cases: u32) {
    let rows = prop::collection::vec((time(), document()), 1..40);
    let filters = prop::collection::vec(timed_filter(), 4);
    let batch = 1usize..9;
    let index = select(vec!["", "{b: 1}", "{b: -1}", "{c: 1, t: 1}", "{a: 1, b: 1, c: -1}"]);
    let all = (rows, filters, batch, index);
    let result = runner(cases).run(&all, |(rows, filters, batch, index)| {
        fixture.ok("test", "{drop: 'series'}");
        fixture.ok("test", "{drop: 'plain'}");
        let series = "{timeField: 't', metaField: 'a'}";
        fixture.ok("test", &format!("{{create: 'series', timeseries: {series}}}"));
        if !index.is_empty() {
            let index = format!("{{key: {index}, name: 'one'}}");
            fixture.ok("test", &format!("{{createIndexes: 'series', indexes: [{index}]}}"));
        }
        let documents: Vec<String> = rows
            .iter()
            .enumerate()
            .map(|(id, (time, fields))| format!("{{_id: {id}, t: Date({time}), {fields}}}"))
            .collect();
        for some in documents.chunks(batch) {
            for collection in ["series", "plain"] {
                let text = format!("{{insert: '{collection}', documents: [{}]}}", some.join(", "));
                let reply = fixture.ok("test", &text);
                prop_assert!(reply.as_doc().get("writeErrors").is_none(), "{}", text);
            }
        }
        for filter in &filters {
            agree(fixture, filter)?;
        }
        let delete = format!("deletes: [{{q: {}, limit: 0}}]", filters[0]);
        let deleted = |collection: &str| {
            let reply = fixture.run("test", &format!("{{delete: '{collection}', {delete}}}"));
            reply.as_doc().get("n").map(RawValue::to_owned)
        };
        prop_assert_eq!(deleted("series"), deleted("plain"), "{}", delete);
        agree(fixture, "{}")?;
        restored_alike(fixture)
    });
    result.unwrap();
}

/// Source: validate (database command), "nNonCompliantDocuments", "errors".
#[test]
fn validate_finds_buckets_that_are_not_sound() {
    let engine: Arc<dyn Engine> = Arc::new(Reopenable(Arc::new(MemoryEngine::new())));
    let opened = engine.clone();
    let fixture = Fixture::new(Box::new(move || opened.clone()));
    fixture.ok("test", "{create: 's', timeseries: {timeField: 't', metaField: 'm'}}");
    fixture.ok(
        "test",
        "{insert: 's', documents: [{t: Date(5000), m: 1, x: 7}, {t: Date(6000), m: 2, x: 7}]}",
    );
    let validate = |expected: &str| {
        let reply = fixture.ok("test", "{validate: 's'}");
        let shown = Shell(reply.as_doc()).to_string();
        assert!(shown.contains(expected), "{expected}: {shown}");
    };
    validate("nNonCompliantDocuments: 0, nrecords: 2");
    validate("valid: true");
    // A client writes 6 where the control of one bucket has 7 as its greatest x.
    let mut txn = engine.begin(TxnOptions::default()).unwrap();
    let all = KeyRange { start: Vec::new(), end: vec![0xFF; 16] };
    let mut found = None;
    txn.scan(Keyspace::Record, &all, Direction::Forward, ScanLimit::rows(1), &mut |key, value| {
        found = Some((key.to_vec(), value.to_vec()));
        ControlFlow::Continue(())
    })
    .unwrap();
    let (key, mut value) = found.unwrap();
    let pattern = [0x10, b'x', 0, 7, 0, 0, 0];
    let at = value.windows(7).rposition(|bytes| bytes == pattern).unwrap();
    value[at + 3] = 6;
    txn.put(Keyspace::Record, &key, &value, Guard::Checked).unwrap();
    txn.commit().unwrap();
    validate("nNonCompliantDocuments: 1, nrecords: 2");
    validate("valid: false");
    validate(
        "errors: [ \"Detected one or more documents in this collection incompatible with time-series specifications. ",
    );
    validate("log id 6698300.\" ]");
}

#[test]
fn a_time_series_answers_as_a_plain_collection() {
    check(&Fixture::new(memory()), 150);
}

#[test]
fn a_time_series_answers_as_a_plain_collection_under_chaos() {
    check(&Fixture::new(memory_under_chaos(5)), 40);
}
