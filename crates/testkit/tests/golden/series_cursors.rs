//! A cursor over a time series returns each measurement that did not change exactly once, whatever
//! is inserted and deleted between its batches. Inserts move the entries of buckets in indexes on
//! measured fields and on the time.
//!
//! `SERIES_CURSORS_SECS=600` runs for that time, `SERIES_CURSORS_SEED` selects the first case.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use mayfly_testkit::{Fixture, OpenEngine, START_MS, environment, expect, memory};
use mayfly_value::{RawDoc, RawValue};

use crate::chance::Chance;
use crate::scripts::rocksdb;

const CASES: u64 = 60;
const MEASUREMENTS: usize = 60;
/// Seconds of the measured span; a bucket holds an hour.
const SPAN: usize = 4 * 3600;

const INDEXES: &[&str] = &[
    "{key: {v: 1}, name: 'v'}",
    "{key: {v: -1}, name: 'v_'}",
    "{key: {m: 1, t: -1}, name: 'mt_'}",
    "{key: {m: 1, v: 1}, name: 'mv'}",
    "{key: {t: -1}, name: 't_'}",
];

const QUERIES: &[&str] = &[
    "{find: 's', filter: {v: {$gte: 0}}, hint: 'v'",
    "{find: 's', filter: {v: {$lte: 1000}}, hint: 'v_'",
    "{find: 's', filter: {m: {$gte: 0}}, hint: 'm_1_t_1'",
    "{find: 's', filter: {m: {$in: [0, 1, 2]}}, hint: 'mt_'",
    "{find: 's', filter: {$or: [{v: {$gte: 0}}, {m: 1}]}",
    "{find: 's', filter: {m: {$gte: 0}, v: {$gte: 0}}, hint: 'mv'",
    "{find: 's', filter: {t: {$gte: Date(0)}}, hint: 't_'",
    "{find: 's', filter: {v: {$gte: 0}}, hint: 'v', skip: 0, projection: {m: 1, v: 1}",
    "{aggregate: 's', pipeline: [{$match: {v: {$gte: 0}}}, {$unwind: '$a'}], hint: 'v'",
    "{aggregate: 's', pipeline: [{$match: {m: {$gte: 0}}}, {$addFields: {x: 1}}, {$unwind: '$a'}], hint: 'm_1_t_1'",
    "{aggregate: 'over', pipeline: [{$match: {v: {$gte: 0}}}], hint: 'v'",
];

struct Series {
    fixture: Fixture,
    chance: Chance,
    next: i32,
    /// Measurements that have existed since the beginning, by `_id`: their source and value.
    still: BTreeMap<i32, (usize, usize)>,
}

impl Series {
    fn new(seed: u64, open: OpenEngine) -> Series {
        let fixture = Fixture::new(open);
        fixture.ok("test", "{create: 's', timeseries: {timeField: 't', metaField: 'm'}}");
        fixture.ok("test", "{create: 'over', viewOn: 's', pipeline: [{$match: {m: {$gte: 0}}}]}");
        let indexes = INDEXES.join(", ");
        fixture.ok("test", &format!("{{createIndexes: 's', indexes: [{indexes}]}}"));
        let (chance, still) = (Chance::from_seed(seed), BTreeMap::new());
        let mut series = Series { fixture, chance, next: 0, still };
        let inserted = (0..MEASUREMENTS).map(|_| series.insert()).collect::<Vec<_>>();
        series.still = inserted.into_iter().collect();
        series
    }

    /// Inserts a random measurement.
    fn insert(&mut self) -> (i32, (usize, usize)) {
        let (id, source) = (self.next, self.chance.below(3));
        let (time, value) = (self.chance.below(SPAN), self.chance.below(1000));
        self.next += 1;
        let time = START_MS + time as i64 * 1000;
        let document = format!("{{_id: {id}, t: Date({time}), m: {source}, v: {value}, a: [1]}}");
        self.fixture.ok("test", &format!("{{insert: 's', documents: [{document}]}}"));
        (id, (source, value))
    }

    /// Deletes measurements of one value.
    fn delete(&mut self) {
        let value = self.chance.below(1000);
        let delete = format!("{{q: {{v: {{$gt: {}, $lt: {}}}}}, limit: 0}}", value, value + 20);
        self.fixture.ok("test", &format!("{{delete: 's', deletes: [{delete}]}}"));
        self.still.retain(|_, (_, other)| *other <= value || *other >= value + 20);
    }

    fn change(&mut self) {
        for _ in 0..self.chance.below(3) {
            match self.chance.below(12) {
                0 => self.delete(),
                _ => {
                    self.insert();
                }
            }
        }
    }

    /// Reads a query page by page while measurements are inserted and deleted.
    fn check(&mut self, what: &str) {
        let size = 1 + self.chance.below(7);
        let query = self.chance.pick(QUERIES);
        let options = match query.starts_with("{find") {
            true => format!("batchSize: {size}"),
            false => format!("cursor: {{batchSize: {size}}}"),
        };
        let mut reply = self.fixture.ok("test", &format!("{query}, {options}}}"));
        let mut seen = BTreeSet::new();
        loop {
            for id in ids(reply.as_doc()) {
                assert!(seen.insert(id), "{what}: {query} returned {id} twice");
            }
            let Some((cursor, name)) = cursor(reply.as_doc()) else { break };
            self.change();
            let more = format!(
                "{{getMore: NumberLong('{cursor}'), collection: '{name}', batchSize: {size}}}"
            );
            reply = self.fixture.ok("test", &more);
        }
        let missed: Vec<_> = self.still.keys().filter(|id| !seen.contains(id)).collect();
        assert!(missed.is_empty(), "{what}: {query} missed {missed:?}");
    }
}

fn ids(reply: RawDoc<'_>) -> Vec<i32> {
    let batch = expect::batch(reply).and_then(RawValue::as_array).unwrap();
    let id = |document: RawValue<'_>| match document.as_document()?.get("_id") {
        Some(RawValue::Int32(id)) => Some(id),
        _ => None,
    };
    batch.iter().filter_map(|element| id(element.value())).collect()
}

fn cursor(reply: RawDoc<'_>) -> Option<(i64, String)> {
    let cursor = reply.get("cursor")?.as_document()?;
    match (cursor.get("id"), cursor.get("ns")) {
        (Some(RawValue::Int64(id)), Some(RawValue::String(ns))) if id != 0 => {
            Some((id, ns.split_once('.')?.1.to_owned()))
        }
        _ => None,
    }
}

#[test]
fn a_cursor_over_a_series_shows_once_what_does_not_change() {
    let first = environment::number("SERIES_CURSORS_SEED").unwrap_or(1);
    let until = environment::number("SERIES_CURSORS_SECS")
        .map(|secs| Instant::now() + Duration::from_secs(secs));
    let mut seed = first;
    while until.map_or(seed < first + CASES, |until| Instant::now() < until) {
        let on_disk = seed.is_multiple_of(10);
        let open = if on_disk { rocksdb() } else { memory() };
        let mut series = Series::new(seed, open);
        for _ in 0..4 {
            series.check(&format!("SERIES_CURSORS_SEED={seed}"));
        }
        seed += 1;
    }
}
