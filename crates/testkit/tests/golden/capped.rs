//! Capped collections at their limits: the cost of an insert, the state after a crash, and the
//! removal of the oldest documents.

use std::collections::VecDeque;
use std::sync::Arc;

use mayfly_testkit::{CountsSteps, Fixture, OpenEngine, Steps, memory};
use mayfly_value::{DocBuf, RawValue};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};

use crate::scripts::rocksdb;

/// A server with an engine that counts steps.
fn counted(open: OpenEngine) -> (Fixture, Arc<Steps>) {
    let steps = Arc::new(Steps::default());
    let counts = steps.clone();
    let open: OpenEngine = Box::new(move || Arc::new(CountsSteps::new(open(), counts.clone())));
    (Fixture::new(open), steps)
}

fn insert(f: &Fixture, ids: std::ops::Range<i32>) {
    let documents: Vec<String> = ids.map(|id| format!("{{_id: {id}, t: 'text'}}")).collect();
    f.ok("test", &format!("{{insert: 'c', documents: [{}]}}", documents.join(", ")));
}

fn number(reply: &DocBuf, name: &str) -> i64 {
    match reply.as_doc().get(name) {
        Some(RawValue::Int32(number)) => number.into(),
        Some(RawValue::Int64(number)) => number,
        other => panic!("{name} is {other:?}"),
    }
}

/// The steps of an insert, after another one that may have looked up the oldest document.
fn steps_of_an_insert(f: &Fixture, steps: &Steps, id: i32) -> u64 {
    insert(f, id..id + 1);
    steps.take();
    insert(f, id + 1..id + 2);
    steps.take()
}

fn inserts_at_the_limit_are_cheap(open: OpenEngine, limit: &str) {
    let (mut f, steps) = counted(open);
    f.ok("test", &format!("{{create: 'c', capped: true, {limit}}}"));
    let mut next = 0;
    let mut insert_next = |f: &Fixture, many: i32| {
        insert(f, next..next + many);
        next += many;
    };
    (0..20).for_each(|_| insert_next(&f, 100));
    steps.take();
    for _ in 0..50 {
        insert_next(&f, 1);
        assert!(steps.take() <= 2, "one at a time");
    }
    insert_next(&f, 300);
    assert!(steps.take() <= 2 * 300, "many together");

    // The state of the collection is known after a crash, too.
    for crash in [true, false] {
        if crash {
            f.crash()
        } else {
            f.restart()
        }
        steps.take();
        insert_next(&f, 1);
        assert!(steps.take() <= 2, "after a crash: {crash}");
    }

    // Removing the oldest documents makes the scan skip them once.
    f.ok("test", "{delete: 'c', deletes: [{q: {_id: {$lt: 2380}}, limit: 0}]}");
    insert_next(&f, 100);
    assert!(steps_of_an_insert(&f, &steps, 10_000) <= 2);

    // A unit that fails does not change the known state.
    let twice =
        f.run("test", "{insert: 'c', documents: [{_id: 20000}, {_id: 20001}, {_id: 20000}]}");
    assert!(twice.as_doc().get("writeErrors").is_some());
    assert!(steps_of_an_insert(&f, &steps, 30_000) <= 2);
}

#[test]
fn an_insert_does_not_search_what_is_gone() {
    inserts_at_the_limit_are_cheap(memory(), "size: 1048576, max: 100");
    inserts_at_the_limit_are_cheap(memory(), "size: 4096");
}

#[test]
fn an_insert_does_not_search_what_is_gone_on_rocksdb() {
    inserts_at_the_limit_are_cheap(rocksdb(), "size: 4096");
}

/// The limits of a collection, and its expected content.
struct Model {
    documents: VecDeque<(i32, usize)>,
    max: usize,
    bytes: usize,
}

impl Model {
    fn keep_limits(&mut self) {
        let bytes = |model: &Model| model.documents.iter().map(|(_, bytes)| bytes).sum::<usize>();
        while self.documents.len() > self.max || bytes(self) > self.bytes {
            self.documents.pop_front();
        }
    }

    fn check(&self, f: &Fixture) {
        let found = f.ok("test", "{find: 'c', projection: {_id: 1}, batchSize: 1000}");
        let cursor = found.as_doc().get("cursor").and_then(RawValue::as_document).unwrap();
        let batch = cursor.get("firstBatch").and_then(RawValue::as_array).unwrap();
        let ids: Vec<i64> = batch
            .iter()
            .map(|element| number(&element.value().as_document().unwrap().to_owned(), "_id"))
            .collect();
        let expected: Vec<i64> = self.documents.iter().map(|(id, _)| i64::from(*id)).collect();
        assert_eq!(ids, expected);
        let sizes = f.ok("test", "{collStats: 'c'}");
        let bytes: usize = self.documents.iter().map(|(_, bytes)| bytes).sum();
        assert_eq!(number(&sizes, "count"), expected.len() as i64);
        assert_eq!(number(&sizes, "size"), bytes as i64);
    }
}

/// The bytes of `{_id: .., t: ..}` with a text of this length.
fn bytes_of(text: usize) -> usize {
    4 + 9 + 3 + 4 + text + 1 + 1
}

fn agrees_with_a_model(open: OpenEngine, seed: u64, steps: usize) {
    let mut f = Fixture::new(open);
    let mut random = StdRng::seed_from_u64(seed);
    f.ok("test", "{create: 'c', capped: true, size: 1024, max: 20}");
    let mut model = Model { documents: VecDeque::new(), max: 20, bytes: 1024 };
    let mut next = 0;
    for _ in 0..steps {
        let text = random.random_range(0..150);
        let shown = "x".repeat(text);
        match random.random_range(0..20) {
            0 => f.crash(),
            1 => f.restart(),
            2 | 3 => {
                let below = random.random_range(0..next + 1);
                let delete = format!("{{_id: {{$lt: {below}, $gt: {}}}}}", below - 5);
                f.ok("test", &format!("{{delete: 'c', deletes: [{{q: {delete}, limit: 0}}]}}"));
                model.documents.retain(|(id, _)| !(below - 5 < *id && *id < below));
            }
            4 | 5 if !model.documents.is_empty() => {
                let at = random.random_range(0..model.documents.len());
                let id = model.documents[at].0;
                let update = format!("{{q: {{_id: {id}}}, u: {{$set: {{t: '{shown}'}}}}}}");
                f.ok("test", &format!("{{update: 'c', updates: [{update}]}}"));
                model.documents[at].1 = bytes_of(text);
                model.keep_limits();
            }
            6 if !model.documents.is_empty() => {
                // The whole unit fails, then the first one is inserted alone.
                let taken = model.documents[0].0;
                let one = |id: i32| format!("{{_id: {id}, t: '{shown}'}}");
                let both = format!("{}, {}", one(next), one(taken));
                f.run("test", &format!("{{insert: 'c', documents: [{both}]}}"));
                model.documents.push_back((next, bytes_of(text)));
                model.keep_limits();
                next += 1;
                // The previous insert may have removed the document with this `_id`.
                if model.documents.iter().all(|(id, _)| *id != taken) {
                    model.documents.push_back((taken, bytes_of(text)));
                    model.keep_limits();
                }
            }
            _ => {
                f.ok(
                    "test",
                    &format!("{{insert: 'c', documents: [{{_id: {next}, t: '{shown}'}}]}}"),
                );
                model.documents.push_back((next, bytes_of(text)));
                model.keep_limits();
                next += 1;
            }
        }
        model.check(&f);
    }
}

#[test]
fn the_oldest_documents_go() {
    (0..5).for_each(|seed| agrees_with_a_model(memory(), seed, 300));
}

#[test]
fn the_oldest_documents_go_on_rocksdb() {
    agrees_with_a_model(rocksdb(), 9, 100);
}
