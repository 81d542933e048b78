//! A copy that is maintained by a change stream equals the collection, with random writes, batch
//! sizes and resumptions. Every event is returned once, wherever the stream is resumed.

use std::collections::BTreeMap;

use mayfly_testkit::{Fixture, OpenEngine, clustered, dialect, memory};
use mayfly_value::bson::{Bson, Document};
use mayfly_value::{RawDoc, RawValue};
use proptest::prelude::*;
use proptest::sample::select;

use crate::properties::{document, filter, runner, value};
use crate::scripts::postgres;

#[derive(Clone, Debug)]
enum Step {
    Write(String),
    Admin(&'static str),
    Advance,
    Read(u8),
    /// Resumes after the event at this fraction of the events that were seen.
    Resume(u8),
    /// Resumes after the last batch.
    ResumeFromBatch,
}

const PATHS: &[&str] = &["a", "b", "c", "a.x", "a.0", "b.x", "b.0.x", "a.y", "a.x.0", "d"];

fn statement() -> BoxedStrategy<String> {
    let path = || select(PATHS);
    let one = |text: &'static str| {
        (path(), value())
            .prop_map(move |(path, value)| text.replace("PATH", path).replace("VALUE", &value))
    };
    prop_oneof![
        4 => one("{$set: {'PATH': VALUE}}"),
        2 => one("{$set: {'PATH': VALUE, 'e.1': VALUE}, $unset: {f: 1}}"),
        2 => one("{$unset: {'PATH': 1}}"),
        3 => one("{$push: {'PATH': VALUE}}"),
        2 => one("{$push: {'PATH': {$each: [1, VALUE], $slice: 3, $position: 0}}}"),
        2 => one("{$pop: {'PATH': -1}}"),
        2 => one("{$pop: {'PATH': 1}}"),
        1 => one("{$rename: {'PATH': 'b'}}"),
        1 => one("{$rename: {'PATH': 'a.y'}}"),
        1 => one("{$inc: {'PATH': 1}, $set: {f: VALUE}}"),
        2 => one("[{$set: {'PATH': {$literal: VALUE}}}, {$unset: 'c'}]"),
        1 => one("[{$replaceWith: {_id: '$_id', c: '$c', b: '$b', a: '$a', g: {$literal: VALUE}}}]"),
        1 => one("[{$replaceWith: {$setField: {field: {$literal: 'p.q'}, input: '$$ROOT', value: {$literal: VALUE}}}}]"),
        1 => one("[{$set: {a: {$reverseArray: '$a'}}}]"),
        1 => document().prop_map(|fields| format!("{{{fields}}}")),
    ]
    .boxed()
}

fn write() -> BoxedStrategy<String> {
    let id = || 0..8u8;
    let text = prop_oneof![
        3 => prop::collection::vec((id(), document()), 1..5).prop_map(|list| {
            let list = list.iter().map(|(id, fields)| format!("{{_id: {id}, {fields}}}"));
            format!("{{insert: 'COLL', documents: [{}]}}", list.collect::<Vec<_>>().join(", "))
        }),
        6 => (id(), statement(), any::<bool>()).prop_map(|(id, change, upsert)| format!(
            "{{update: 'COLL', updates: [{{q: {{_id: {id}}}, u: {change}, upsert: {upsert}}}]}}"
        )),
        2 => (statement(), statement(), id()).prop_map(|(all, other, id)| format!(
            "{{update: 'COLL', ordered: false, updates: [{{q: {{}}, u: {all}, multi: true}}, {{q: {{_id: {id}}}, u: {other}}}]}}"
        )),
        1 => (filter(), statement()).prop_map(|(filter, change)| format!(
            "{{findAndModify: 'COLL', query: {filter}, update: {change}, upsert: true}}"
        )),
        1 => filter().prop_map(|filter| format!("{{findAndModify: 'COLL', query: {filter}, remove: true}}")),
        1 => id().prop_map(|id| format!("{{delete: 'COLL', deletes: [{{q: {{_id: {id}}}, limit: 1}}]}}")),
        1 => filter().prop_map(|filter| format!("{{delete: 'COLL', deletes: [{{q: {filter}, limit: 0}}]}}")),
        1 => (id(), 0..40i64).prop_map(|(id, secs)| format!(
            "{{update: 'COLL', updates: [{{q: {{_id: {id}}}, u: {{$set: {{t: Date({})}}}}, upsert: true}}]}}",
            mayfly_testkit::START_MS + secs * 1000
        )),
        1 => Just("{createIndexes: 'COLL', indexes: [{key: {t: 1}, name: 't', expireAfterSeconds: 5}]}".to_owned()),
    ];
    (text, select(vec!["c", "c", "d"])).prop_map(|(text, name)| text.replace("COLL", name)).boxed()
}

fn step() -> impl Strategy<Value = Step> {
    let admin = select(vec![
        "{drop: 'c'}",
        "{renameCollection: 'test.c', to: 'test.gone', dropTarget: true}",
        "{drop: 'd'}",
        "{dropDatabase: 1}",
        "{renameCollection: 'test.d', to: 'test.e', dropTarget: true}",
    ]);
    prop_oneof![
        14 => write().prop_map(Step::Write),
        1 => admin.prop_map(Step::Admin),
        1 => Just(Step::Advance),
        5 => (1..6u8).prop_map(Step::Read),
        2 => any::<u8>().prop_map(Step::Resume),
        2 => Just(Step::ResumeFromBatch),
    ]
}

fn to_bson(document: RawDoc<'_>) -> Document {
    let mut bytes = document.as_bytes();
    Document::from_reader(&mut bytes).unwrap_or_default()
}

/// Its fields in the order of their names: events do not contain positions of fields.
fn normal(value: &Bson) -> String {
    match value {
        Bson::Document(fields) => {
            let mut shown: Vec<String> =
                fields.iter().map(|(name, value)| format!("{name}: {}", normal(value))).collect();
            shown.sort();
            format!("{{{}}}", shown.join(", "))
        }
        Bson::Array(items) => {
            format!("[{}]", items.iter().map(normal).collect::<Vec<_>>().join(", "))
        }
        other => format!("{other:?}"),
    }
}

fn parts(path: &str, description: &Document) -> Vec<String> {
    let known = description.get_document("disambiguatedPaths").ok();
    match known.and_then(|known| known.get_array(path).ok()) {
        Some(parts) => parts
            .iter()
            .map(|part| match part {
                Bson::String(name) => name.clone(),
                other => other.to_string(),
            })
            .collect(),
        None => path.split('.').map(str::to_owned).collect(),
    }
}

fn at<'d>(value: &'d mut Bson, part: &str) -> &'d mut Bson {
    match value {
        Bson::Document(fields) => fields.entry(part.to_owned()).or_insert(Bson::Null),
        Bson::Array(items) => {
            let at: usize = part.parse().expect("a position in an array");
            assert!(at <= items.len(), "a position behind the end");
            if at == items.len() {
                items.push(Bson::Null);
            }
            &mut items[at]
        }
        other => panic!("{part} of {other}"),
    }
}

fn apply_update(document: &mut Document, description: &Document) {
    let mut root = Bson::Document(std::mem::take(document));
    for path in description.get_array("removedFields").unwrap() {
        let parts = parts(path.as_str().unwrap(), description);
        let (last, above) = parts.split_last().unwrap();
        let above = above.iter().fold(&mut root, |value, part| at(value, part));
        assert!(above.as_document_mut().unwrap().remove(last).is_some(), "{path} was not there");
    }
    for cut in description.get_array("truncatedArrays").unwrap() {
        let cut = cut.as_document().unwrap();
        let parts = parts(cut.get_str("field").unwrap(), description);
        let array = parts.iter().fold(&mut root, |value, part| at(value, part));
        let Bson::Array(items) = array else { panic!("{cut}") };
        items.truncate(usize::try_from(cut.get_i32("newSize").unwrap()).unwrap());
    }
    for (path, value) in description.get_document("updatedFields").unwrap() {
        let parts = parts(path, description);
        *parts.iter().fold(&mut root, |value, part| at(value, part)) = value.clone();
    }
    let Bson::Document(changed) = root else { unreachable!("a document stays one") };
    *document = changed;
}

/// The events of a stream so far, and its state.
struct Follower {
    /// One collection, or all of the database.
    only: Option<&'static str>,
    start: String,
    events: Vec<Document>,
    cursor: i64,
    stands: String,
}

impl Follower {
    fn open(&mut self, fixture: &Fixture, from: &str) {
        let target = self.only.map_or("1".to_owned(), |name| format!("'{name}'"));
        let reply = fixture.ok("test", &format!(
            "{{aggregate: {target}, pipeline: [{{$changeStream: {{showExpandedEvents: true, {from}}}}}], cursor: {{batchSize: 2}}}}"
        ));
        self.take(reply.as_doc(), "firstBatch");
    }

    fn take(&mut self, reply: RawDoc<'_>, batch: &str) {
        let reply = to_bson(reply);
        let cursor = reply.get_document("cursor").unwrap();
        self.cursor = cursor.get_i64("id").unwrap();
        let token = cursor.get_document("postBatchResumeToken").unwrap();
        self.stands = token.get_str("_data").unwrap().to_owned();
        for event in cursor.get_array(batch).unwrap() {
            self.events.push(event.as_document().unwrap().clone());
        }
    }

    /// Reads a batch; continues after the end of the collection.
    fn read(&mut self, fixture: &Fixture, size: u8) {
        if self.cursor == 0 {
            let last = self.events.last().expect("only an event ends a stream");
            assert_eq!(kind(last), "invalidate");
            let from = format!("startAfter: {{_data: '{}'}}", token(last));
            return self.open(fixture, &from);
        }
        let name = self.only.unwrap_or("$cmd.aggregate");
        let reply = fixture.ok("test", &format!(
            "{{getMore: NumberLong('{}'), collection: '{name}', batchSize: {size}, maxTimeMS: 1}}", self.cursor
        ));
        self.take(reply.as_doc(), "nextBatch");
    }

    fn read_all(&mut self, fixture: &Fixture) {
        loop {
            let before = self.events.len();
            self.read(fixture, 100);
            if self.cursor != 0 && self.events.len() == before {
                return;
            }
        }
    }

    fn resume(&mut self, fixture: &Fixture, share: u8) {
        let keep = self.events.len() * usize::from(share) / 256;
        self.events.truncate(keep);
        let from = match self.events.last() {
            None => self.start.clone(),
            Some(last) if kind(last) == "invalidate" => {
                format!("startAfter: {{_data: '{}'}}", token(last))
            }
            Some(last) => format!("resumeAfter: {{_data: '{}'}}", token(last)),
        };
        self.open(fixture, &from);
    }

    fn resume_from_batch(&mut self, fixture: &Fixture) {
        if self.cursor != 0 {
            let from = format!("startAfter: {{_data: '{}'}}", self.stands);
            self.open(fixture, &from);
        }
    }

    /// The collections that result from the events.
    fn copy(&self) -> BTreeMap<String, BTreeMap<String, Document>> {
        let mut copy: BTreeMap<String, BTreeMap<String, Document>> = BTreeMap::new();
        for event in &self.events {
            let ns = event.get_document("ns").and_then(|ns| ns.get_str("coll")).unwrap_or_default();
            let key = event
                .get_document("documentKey")
                .map(|key| normal(&key["_id"]))
                .unwrap_or_default();
            let full = || event.get_document("fullDocument").unwrap().clone();
            let documents = copy.entry(ns.to_owned()).or_default();
            match event.get_str("operationType").unwrap() {
                "insert" => assert!(documents.insert(key, full()).is_none(), "{event}"),
                "replace" => assert!(documents.insert(key, full()).is_some(), "{event}"),
                "delete" => assert!(documents.remove(&key).is_some(), "{event}"),
                "update" => {
                    let description = event.get_document("updateDescription").unwrap();
                    apply_update(
                        documents.get_mut(&key).expect("an update of nothing"),
                        description,
                    );
                }
                "drop" => documents.clear(),
                "rename" => {
                    let moved = std::mem::take(documents);
                    let to = event.get_document("to").unwrap().get_str("coll").unwrap();
                    copy.insert(to.to_owned(), moved);
                }
                _ => {}
            }
        }
        copy
    }
}

fn kind(event: &Document) -> &str {
    event.get_str("operationType").unwrap()
}

fn token(event: &Document) -> String {
    event.get_document("_id").unwrap().get_str("_data").unwrap().to_owned()
}

fn stored(fixture: &Fixture, name: &str) -> Vec<String> {
    let reply = fixture.ok("test", &format!("{{find: '{name}', batchSize: 1000}}"));
    let reply = to_bson(reply.as_doc());
    let batch = reply.get_document("cursor").unwrap().get_array("firstBatch").unwrap();
    let mut shown: Vec<String> = batch.iter().map(normal).collect();
    shown.sort();
    shown
}

fn check(fixture: &Fixture, follower: &Follower) -> Result<(), TestCaseError> {
    let copy = follower.copy();
    let names = match follower.only {
        Some(name) => vec![name],
        None => vec!["c", "d", "e", "gone"],
    };
    for name in names {
        let copied = copy.get(name).into_iter().flat_map(BTreeMap::values);
        let mut copied: Vec<String> =
            copied.map(|document| normal(&Bson::Document(document.clone()))).collect();
        copied.sort();
        prop_assert_eq!(copied, stored(fixture, name), "{}", name);
    }
    let tokens: Vec<String> = follower.events.iter().map(token).collect();
    prop_assert!(tokens.windows(2).all(|pair| pair[0] < pair[1]), "{:?}", tokens);
    Ok(())
}

fn copies_follow(only: Option<&'static str>, cases: u32, engine: fn() -> OpenEngine) {
    let steps = prop::collection::vec(step(), 1..40);
    let result = runner(cases).run(&steps, |steps| {
        let mut fixture = Fixture::new(engine());
        fixture.ok("test", "{create: 'c'}");
        let reply = fixture.ok("other", "{insert: 'x', documents: [{}]}");
        drop(reply);
        let behind = (fixture.store().last_timestamp() & 0xffff_ffff) + 1;
        let secs = mayfly_testkit::START_MS / 1000;
        let start = format!("startAtOperationTime: Timestamp({secs}, {behind})");
        let mut follower = Follower {
            only,
            start: start.clone(),
            events: Vec::new(),
            cursor: 0,
            stands: String::new(),
        };
        follower.open(&fixture, &start);
        for step in &steps {
            match step {
                Step::Write(text) => drop(fixture.run("test", text)),
                Step::Admin(text) if text.contains("rename") => drop(fixture.run("admin", text)),
                Step::Admin(text) => drop(fixture.run("test", text)),
                Step::Advance => {
                    fixture.clock.advance_ms(10_000);
                    fixture.ttl_pass();
                }
                Step::Read(size) => follower.read(&fixture, *size),
                Step::Resume(share) => follower.resume(&fixture, *share),
                Step::ResumeFromBatch => follower.resume_from_batch(&fixture),
            }
        }
        follower.read_all(&fixture);
        check(&fixture, &follower)?;
        let mut again = Follower {
            only,
            start: start.clone(),
            events: Vec::new(),
            cursor: 0,
            stands: String::new(),
        };
        again.open(&fixture, &start);
        again.read_all(&fixture);
        let shown = |follower: &Follower| -> Vec<String> {
            follower.events.iter().map(|event| format!("{event:?}")).collect()
        };
        prop_assert_eq!(shown(&follower), shown(&again));
        Ok(())
    });
    if let Err(failure) = result {
        panic!("{failure}");
    }
}

#[test]
fn a_copy_by_events_is_the_collection() {
    copies_follow(Some("c"), 150, memory);
}

#[test]
fn copies_by_events_are_the_database() {
    copies_follow(None, 150, memory);
}

#[test]
fn copies_by_events_are_the_database_over_clustered_records() {
    copies_follow(None, 100, || clustered(memory()));
}

#[test]
fn copies_by_events_are_the_database_over_postgres() {
    copies_follow(None, 40, postgres);
}

/// The end of a stream is an event of its own: a client that has read its cause resumes with the
/// end.
#[test]
fn a_stream_that_resumes_after_a_drop_ends() {
    let fixture = Fixture::new(memory());
    fixture.ok("test", "{insert: 'c', documents: [{_id: 1}]}");
    let reply = fixture.ok("test", "{aggregate: 'c', pipeline: [{$changeStream: {}}], cursor: {}}");
    let mut follower = Follower {
        only: Some("c"),
        start: String::new(),
        events: Vec::new(),
        cursor: 0,
        stands: String::new(),
    };
    follower.take(reply.as_doc(), "firstBatch");
    fixture.ok("test", "{drop: 'c'}");
    fixture.ok("test", "{insert: 'c', documents: [{_id: 1}]}");
    follower.read(&fixture, 1);
    assert_eq!(kind(&follower.events[0]), "drop");
    // Both by the token of the event and by that of the batch.
    for from in [token(&follower.events[0]), follower.stands.clone()] {
        for how in ["resumeAfter", "startAfter"] {
            follower.events.clear();
            follower.open(&fixture, &format!("{how}: {{_data: '{from}'}}"));
            assert_eq!(follower.events.len(), 1, "{}", dialect::show(reply.as_doc()));
            assert_eq!(kind(&follower.events[0]), "invalidate");
            assert_eq!(follower.cursor, 0);
        }
    }
    assert!(matches!(reply.as_doc().get("ok"), Some(RawValue::Double(1.0))));
}

fn batch_ids(reply: RawDoc<'_>, batch: &str) -> Vec<i32> {
    let reply = to_bson(reply);
    let events = reply.get_document("cursor").unwrap().get_array(batch).unwrap().clone();
    let id =
        |event: &Bson| event.as_document()?.get_document("documentKey").ok()?.get_i32("_id").ok();
    events.iter().filter_map(id).collect()
}

fn open(fixture: &Fixture, pipeline: &str) -> i64 {
    let reply =
        fixture.ok("test", &format!("{{aggregate: 'c', pipeline: {pipeline}, cursor: {{}}}}"));
    to_bson(reply.as_doc()).get_document("cursor").unwrap().get_i64("id").unwrap()
}

/// A batch without matching events does not wait for new entries while the log has unread ones.
#[test]
fn a_rare_event_is_found_in_one_batch() {
    let fixture = Fixture::new(memory());
    fixture.ok("test", "{create: 'c'}");
    let cursor = open(&fixture, "[{$changeStream: {}}, {$match: {'fullDocument.rare': true}}]");
    for id in 0..1500 {
        fixture.ok(
            "test",
            &format!("{{insert: 'c', documents: [{{_id: {id}, rare: {}}}]}}", id == 1499),
        );
    }
    let more = format!("{{getMore: NumberLong('{cursor}'), collection: 'c', maxTimeMS: 90}}");
    assert_eq!(batch_ids(fixture.ok("test", &more).as_doc(), "nextBatch"), [1499]);
}

/// An event that cannot be returned follows all others when the client reads them one by one.
#[test]
fn events_before_a_failing_one_are_shown() {
    let fixture = Fixture::new(memory());
    fixture.ok("test", "{create: 'c'}");
    let cursor = open(&fixture, "[{$changeStream: {fullDocumentBeforeChange: 'required'}}]");
    fixture.ok("test", "{insert: 'c', documents: [{_id: 1}, {_id: 2}]}");
    fixture.ok("test", "{delete: 'c', deletes: [{q: {_id: 1}, limit: 1}]}");
    let more =
        format!("{{getMore: NumberLong('{cursor}'), collection: 'c', batchSize: 1, maxTimeMS: 1}}");
    for id in [1, 2] {
        assert_eq!(batch_ids(fixture.ok("test", &more).as_doc(), "nextBatch"), [id]);
    }
    let failed = fixture.run("test", &more);
    assert_eq!(failed.as_doc().get("code"), Some(RawValue::Int32(47)));
}

/// Invalid options and tokens get their errors, also tokens with any changed byte.
#[test]
fn damaged_tokens_and_options_are_refused_or_read() {
    let fixture = Fixture::new(memory());
    fixture.ok("test", "{insert: 'c', documents: [{_id: 1}]}");
    let cursor = open(&fixture, "[{$changeStream: {}}]");
    fixture.ok("test", "{insert: 'c', documents: [{_id: 2}]}");
    let reply = fixture
        .ok("test", &format!("{{getMore: NumberLong('{cursor}'), collection: 'c', maxTimeMS: 1}}"));
    let reply = to_bson(reply.as_doc());
    let event = &reply.get_document("cursor").unwrap().get_array("nextBatch").unwrap()[0];
    let good = token(event.as_document().unwrap());
    for how in ["resumeAfter", "startAfter"] {
        for at in 0..good.len() {
            for byte in ["0", "F", "f", "x", ""] {
                let bad = format!("{}{byte}{}", &good[..at], &good[at + 1..]);
                let text = format!(
                    "{{aggregate: 'c', pipeline: [{{$changeStream: {{{how}: {{_data: '{bad}'}}}}}}], cursor: {{}}}}"
                );
                let reply = to_bson(fixture.run("test", &text).as_doc());
                if let Ok(cursor) = reply.get_document("cursor") {
                    let id = cursor.get_i64("id").unwrap();
                    fixture.run(
                        "test",
                        &format!("{{getMore: NumberLong('{id}'), collection: 'c', maxTimeMS: 1}}"),
                    );
                    continue;
                }
                let code = reply.get_i32("code").unwrap();
                assert!([9, 260, 286].contains(&code), "{bad}: {reply}");
            }
        }
    }
    let values = [
        "null",
        "1",
        "'x'",
        "{}",
        "[]",
        "{_data: 1}",
        "{_data: null}",
        "Timestamp(0, 0)",
        "Timestamp(4294967295, 4294967295)",
        "true",
        "NaN",
        "MinKey",
    ];
    for name in [
        "fullDocument",
        "fullDocumentBeforeChange",
        "resumeAfter",
        "startAfter",
        "startAtOperationTime",
        "showExpandedEvents",
        "allChangesForCluster",
        "nonsense",
        "showRawUpdateDescription",
    ] {
        for value in values {
            for target in ["'c'", "1", "1.5", "true"] {
                let text = format!(
                    "{{aggregate: {target}, pipeline: [{{$changeStream: {{{name}: {value}}}}}], cursor: {{}}}}"
                );
                let reply = to_bson(fixture.run("test", &text).as_doc());
                let works = reply.get_document("cursor").is_ok();
                assert!(works || !matches!(reply.get_i32("code"), Ok(1 | 8)), "{text}: {reply}");
            }
        }
    }
}

/// `$changeStream` in positions where it is not allowed.
#[test]
fn a_stream_stands_alone_and_first() {
    let fixture = Fixture::new(memory());
    fixture.ok("test", "{insert: 'c', documents: [{_id: 1}]}");
    fixture.ok("test", "{create: 'v', viewOn: 'c', pipeline: []}");
    fixture.ok("test", "{create: 'ts', timeseries: {timeField: 't'}}");
    let cases = [
        ("{aggregate: 'c', pipeline: [{$match: {}}, {$changeStream: {}}], cursor: {}}", 40602),
        ("{aggregate: 'c', pipeline: [{$facet: {a: [{$changeStream: {}}]}}], cursor: {}}", 40600),
        (
            "{aggregate: 'c', pipeline: [{$lookup: {from: 'c', as: 'x', pipeline: [{$changeStream: {}}]}}], cursor: {}}",
            51047,
        ),
        (
            "{aggregate: 'c', pipeline: [{$unionWith: {coll: 'c', pipeline: [{$changeStream: {}}]}}], cursor: {}}",
            31441,
        ),
        ("{create: 'w', viewOn: 'c', pipeline: [{$changeStream: {}}]}", 167),
        ("{collMod: 'v', viewOn: 'c', pipeline: [{$changeStream: {}}]}", 167),
        ("{aggregate: 'v', pipeline: [{$changeStream: {}}], cursor: {}}", 166),
        ("{aggregate: 'ts', pipeline: [{$changeStream: {}}], cursor: {}}", 166),
        ("{aggregate: 'system.buckets.ts', pipeline: [{$changeStream: {}}], cursor: {}}", 73),
        ("{aggregate: 'c', pipeline: [{$changeStream: {}}, {$group: {_id: 1}}], cursor: {}}", 20),
        ("{aggregate: 'c', pipeline: [{$changeStream: {}}, {$out: 'x'}], cursor: {}}", 20),
        (
            "{aggregate: 'c', pipeline: [{$changeStream: {}}, {$changeStream: {}}], cursor: {}}",
            40602,
        ),
    ];
    let mut wrong = Vec::new();
    for (text, code) in cases {
        let reply = to_bson(fixture.run("test", text).as_doc());
        if reply.get_i32("code").ok() != Some(code) {
            wrong.push(format!("{text}: {reply}"));
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
    for verbosity in ["queryPlanner", "executionStats", "allPlansExecution"] {
        for target in ["'c'", "1", "'none'", "'v'", "'ts'"] {
            let text = format!(
                "{{explain: {{aggregate: {target}, pipeline: [{{$changeStream: {{}}}}, {{$match: {{a: 1}}}}], cursor: {{}}}}, verbosity: '{verbosity}'}}"
            );
            let reply = to_bson(fixture.run("test", &text).as_doc());
            assert!(matches!(reply.get_i32("code"), Ok(238 | 73 | 166 | 40602)), "{text}: {reply}");
        }
    }
}

/// Runs a command while a client waits for a batch; returns the reply of the batch.
fn under_wait(fixture: &Fixture, cursor: i64, name: &str, meanwhile: &str) -> Document {
    let more =
        format!("{{getMore: NumberLong('{cursor}'), collection: '{name}', maxTimeMS: 600000}}");
    std::thread::scope(|scope| {
        let waiting = scope.spawn(|| to_bson(fixture.run("test", &more).as_doc()));
        std::thread::sleep(std::time::Duration::from_millis(50));
        fixture.ok("test", meanwhile);
        waiting.join().unwrap()
    })
}

/// Waiting clients get an error when the cursor is closed, and when no more events follow.
#[test]
fn a_waiting_batch_ends_with_its_cursor() {
    let fixture = Fixture::new(memory());
    fixture.ok("test", "{insert: 'c', documents: [{_id: 1}]}");
    let cursor = open(&fixture, "[{$changeStream: {}}]");
    let kill = format!("{{killCursors: 'c', cursors: [NumberLong('{cursor}')]}}");
    let reply = under_wait(&fixture, cursor, "c", &kill);
    assert_eq!(reply.get_i32("code").unwrap(), 237, "{reply}");
    let gone =
        fixture.run("test", &format!("{{getMore: NumberLong('{cursor}'), collection: 'c'}}"));
    assert_eq!(gone.as_doc().get("code"), Some(RawValue::Int32(43)));
    let cursor = open(&fixture, "[{$changeStream: {}}]");
    let reply = under_wait(&fixture, cursor, "c", "{dropDatabase: 1}");
    let batch = reply.get_document("cursor").unwrap().get_array("nextBatch").unwrap();
    assert_eq!(kind(batch[0].as_document().unwrap()), "drop", "{reply}");
    // The first batch is empty because of its size; the next one continues.
    let text = "{aggregate: 1, pipeline: [{$changeStream: {}}], cursor: {batchSize: 0}}";
    let reply = to_bson(fixture.ok("test", text).as_doc());
    let cursor = reply.get_document("cursor").unwrap();
    assert!(cursor.get_array("firstBatch").unwrap().is_empty());
    assert!(cursor.get_document("postBatchResumeToken").is_ok());
    let id = cursor.get_i64("id").unwrap();
    let reply =
        under_wait(&fixture, id, "$cmd.aggregate", "{insert: 'new', documents: [{_id: 3}]}");
    let batch = reply.get_document("cursor").unwrap().get_array("nextBatch").unwrap();
    assert_eq!(kind(batch[0].as_document().unwrap()), "insert", "{reply}");
}
