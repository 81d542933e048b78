//! The ends of batches change no result: pipelines of stages that return several documents for one
//! run over every kind of source with small batches, and are compared with the same pipelines in
//! one batch.
//!
//! `make test` runs every pair of stages and some triples; `BATCHES_SECS=600` runs triples for that
//! time, and `BATCHES_SEED` selects them.

use std::time::{Duration, Instant};

use mayfly_testkit::{Fixture, dialect, environment, expect};
use mayfly_value::RawValue;

use crate::chance::Chance;

/// Stages that return several documents for one, buffer documents, or end the input early.
const STAGES: &[&str] = &[
    "{$unwind: '$a'}",
    "{$unwind: {path: '$b', includeArrayIndex: 'n', preserveNullAndEmptyArrays: true}}",
    "{$lookup: {from: 'other', localField: 'k', foreignField: 'k', as: 'l'}}, {$unwind: '$l'}",
    "{$lookup: {from: 'series', pipeline: [{$unwind: '$a'}, {$limit: 4}], as: 'l'}}, {$unwind: '$l'}",
    "{$graphLookup: {from: 'other', startWith: '$k', connectFromField: 'to', connectToField: 'k', as: 'g', maxDepth: 1}}, \
     {$unwind: '$g'}",
    "{$unionWith: {coll: 'series', pipeline: [{$unwind: '$a'}]}}",
    "{$unionWith: 'other'}",
    "{$densify: {field: 'v', range: {step: 1, bounds: [0, 6]}}}",
    "{$setWindowFields: {partitionBy: '$k', sortBy: {v: 1, _id: 1}, output: {s: {$sum: '$v', \
     window: {documents: ['unbounded', 'current']}}}}}",
    "{$sort: {k: 1, _id: 1}}",
    "{$group: {_id: '$k', a: {$push: '$v'}, b: {$first: '$b'}}}",
    "{$facet: {a: [{$unwind: '$a'}], b: [{$limit: 2}]}}, {$unwind: '$a'}",
    "{$bucketAuto: {groupBy: '$v', buckets: 4, output: {a: {$push: '$v'}, v: {$first: '$v'}}}}",
    "{$match: {v: {$gte: 1}}}",
    "{$skip: 2}",
    "{$limit: 9}",
];

/// A collection, one that is clustered by `_id`, a time series, and views over these with an
/// `$unwind`.
const SOURCES: &[&str] = &["plain", "clustered", "series", "view", "series_view"];

const SIZES: &[usize] = &[1, 2, 3, 7, 101];

const TRIPLES: usize = 100;

fn prepared() -> Fixture {
    let fixture = Fixture::in_memory();
    fixture.ok("test", "{create: 'clustered', clusteredIndex: {key: {_id: 1}, unique: true}}");
    fixture.ok("test", "{create: 'series', timeseries: {timeField: 't', metaField: 'm'}}");
    let document = |n: i64| {
        let time = mayfly_testkit::START_MS + n * 1000;
        let (source, key, array) =
            (n % 2, n % 3, if n % 5 == 4 { "[]" } else { "['x', 'y', 'z']" });
        format!(
            "{{_id: {n}, t: Date({time}), m: {source}, k: {key}, v: {n}, a: [{n}, 1, {{c: 2}}], b: {array}}}"
        )
    };
    let documents: Vec<String> = (0..10).map(document).collect();
    let documents = documents.join(", ");
    for name in ["plain", "clustered", "series"] {
        fixture.ok("test", &format!("{{insert: '{name}', documents: [{documents}]}}"));
    }
    let others = "{_id: 100, k: 0, v: 3, to: 1, a: [1, 2]}, {_id: 101, k: 0, v: 1, to: 2}, {_id: 102, k: 1, v: 2, to: 0, a: [7, 8, 9]}";
    fixture.ok("test", &format!("{{insert: 'other', documents: [{others}]}}"));
    fixture.ok("test", "{create: 'view', viewOn: 'plain', pipeline: [{$unwind: '$a'}]}");
    fixture.ok("test", "{create: 'series_view', viewOn: 'series', pipeline: [{$unwind: '$a'}]}");
    fixture
}

/// All results as texts, or the error of the first command that failed.
fn results(fixture: &Fixture, source: &str, pipeline: &str, size: usize) -> Vec<String> {
    let command =
        format!("{{aggregate: '{source}', pipeline: [{pipeline}], cursor: {{batchSize: {size}}}}}");
    let mut reply = fixture.run("test", &command);
    let mut results = Vec::new();
    loop {
        let Some(batch) = expect::batch(reply.as_doc()).and_then(RawValue::as_array) else {
            results.push(dialect::show(reply.as_doc()));
            return results;
        };
        let shown =
            batch.iter().filter_map(|item| Some(dialect::show(item.value().as_document()?)));
        results.extend(shown);
        let cursor = reply.as_doc().get("cursor").and_then(RawValue::as_document);
        let (id, name) = match cursor.map(|cursor| (cursor.get("id"), cursor.get("ns"))) {
            Some((Some(RawValue::Int64(id)), Some(RawValue::String(ns)))) => {
                (id, ns["test.".len()..].to_owned())
            }
            other => panic!("{other:?}"),
        };
        if id == 0 {
            return results;
        }
        let more =
            format!("{{getMore: NumberLong('{id}'), collection: '{name}', batchSize: {size}}}");
        reply = fixture.run("test", &more);
    }
}

fn check(fixture: &Fixture, source: &str, stages: &[&str], sizes: &[usize]) {
    let pipeline = stages.join(", ");
    let whole = results(fixture, source, &pipeline, 100_000);
    for &size in sizes {
        let paged = results(fixture, source, &pipeline, size);
        assert_eq!(paged, whole, "batches of {size} over {source}: {pipeline}");
    }
}

#[test]
fn where_a_batch_ends_changes_no_result() {
    let fixture = prepared();
    for source in SOURCES {
        for first in STAGES {
            check(&fixture, source, &[first], SIZES);
            for second in STAGES {
                check(&fixture, source, &[first, second], &[1, 3]);
            }
        }
    }
    let seed = environment::number("BATCHES_SEED").unwrap_or(1);
    let until =
        environment::number("BATCHES_SECS").map(|secs| Instant::now() + Duration::from_secs(secs));
    println!("BATCHES_SEED={seed}");
    let mut chance = Chance::from_seed(seed);
    let mut done = 0;
    while until.map_or(done < TRIPLES, |until| Instant::now() < until) {
        let stages = [chance.pick(STAGES), chance.pick(STAGES), chance.pick(STAGES)];
        let size = SIZES[chance.below(SIZES.len())];
        check(&fixture, chance.pick(SOURCES), &stages, &[size]);
        done += 1;
    }
}
