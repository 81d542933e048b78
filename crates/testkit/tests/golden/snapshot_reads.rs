//! Read concern `snapshot` with concurrent writers: all reads of one command are of the time that
//! it names.

use std::sync::atomic::{AtomicBool, Ordering};

use mayfly_testkit::{Fixture, OpenEngine, dialect, expect, memory};
use mayfly_value::{Number, RawDoc, RawValue};

use crate::scripts::rocksdb;

fn batch(reply: RawDoc<'_>) -> Vec<RawDoc<'_>> {
    let batch = expect::batch(reply).and_then(RawValue::as_array).unwrap_or(RawDoc::EMPTY);
    batch.iter().filter_map(|element| element.value().as_document()).collect()
}

fn number(document: RawDoc<'_>, name: &str) -> i64 {
    document.get(name).and_then(Number::from_value).and_then(Number::to_i64_exact).unwrap_or(0)
}

/// Pairs are inserted and removed in one unit each. Two reads in one command see the same pairs,
/// and as many as the log has up to the command's time.
fn pairs_stay_together(open: OpenEngine) {
    let fixture = Fixture::new(open);
    fixture.join("rs0");
    fixture.ok("test", "{create: 'pairs'}");
    let over = AtomicBool::new(false);
    std::thread::scope(|threads| {
        let writers: Vec<_> = (0..2)
            .map(|writer| {
                let fixture = &fixture;
                threads.spawn(move || {
                    for pair in 0..300 {
                        let side =
                            |side: &str| format!("{{pair: '{writer}-{pair}', side: '{side}'}}");
                        let documents = format!("[{}, {}]", side("a"), side("b"));
                        fixture.ok("test", &format!("{{insert: 'pairs', documents: {documents}}}"));
                    }
                })
            })
            .collect();
        threads.spawn(|| {
            while !over.load(Ordering::Acquire) {
                let count = |side: &str| format!("{{$match: {{side: '{side}'}}}}, {{$count: 'n'}}");
                let lookup = format!(
                    "{{$lookup: {{from: 'pairs', pipeline: [{}], as: 'others'}}}}, {{$unwind: '$others'}}",
                    count("b")
                );
                let reply = fixture.run(
                    "test",
                    &format!(
                        "{{aggregate: 'pairs', pipeline: [{}, {lookup}], cursor: {{}}, readConcern: {{level: 'snapshot'}}}}",
                        count("a")
                    ),
                );
                let Some(found) = batch(reply.as_doc()).first().copied() else { continue };
                let others = found.get("others").and_then(RawValue::as_document);
                assert_eq!(number(found, "n"), number(others.unwrap(), "n"));
                let cursor = reply.as_doc().get("cursor").and_then(RawValue::as_document).unwrap();
                let Some(RawValue::Timestamp(time)) = cursor.get("atClusterTime") else {
                    panic!("a snapshot read names its time");
                };
                let (seconds, increment) = (time >> 32, time & 0xFFFF_FFFF);
                let log = fixture.ok(
                    "local",
                    &format!(
                        "{{count: 'oplog.rs', query: {{ts: {{$lte: Timestamp({seconds}, {increment})}}, \
                         'o.applyOps.ns': 'test.pairs'}}}}"
                    ),
                );
                assert_eq!(number(found, "n"), number(log.as_doc(), "n"), "{increment}");
            }
        });
        let ended: Vec<_> = writers.into_iter().map(|writer| writer.join()).collect();
        over.store(true, Ordering::Release);
        ended.into_iter().for_each(|end| end.unwrap());
    });
}

/// The result of a read at a time: the number of values, and their sum.
fn sum_at(fixture: &Fixture, command: &str) -> Option<(u64, i64, i64)> {
    let reply = fixture.run("test", command);
    if reply.as_doc().get("ok") != Some(RawValue::Double(1.0)) {
        let code = number(reply.as_doc(), "code");
        // Indexes have changed since that time, or the used one was dropped.
        assert!([246, 175].contains(&code), "{command}: {}", dialect::show(reply.as_doc()));
        return None;
    }
    let cursor = reply.as_doc().get("cursor").and_then(RawValue::as_document).unwrap();
    let Some(RawValue::Timestamp(time)) = cursor.get("atClusterTime") else {
        panic!("a snapshot read names its time");
    };
    let documents = batch(reply.as_doc());
    let sum = documents.iter().map(|document| number(*document, "n")).sum();
    Some((time, documents.len() as i64, sum))
}

/// A session repeats reads as of the time of its first read, with different plans, while other
/// clients write and change indexes. The results are the same, or an error.
fn a_session_sees_one_state(open: OpenEngine) {
    let fixture = Fixture::new(open);
    for id in 0..20 {
        fixture.ok(
            "test",
            &format!("{{insert: 'c', documents: [{{_id: {id}, n: 5, g: {}}}]}}", id % 3),
        );
    }
    fixture.ok("test", "{create: 'other'}");
    let over = AtomicBool::new(false);
    let (mut same, mut void) = (0, 0);
    std::thread::scope(|threads| {
        let writers: Vec<_> = (0..2)
            .map(|writer| {
                let fixture = &fixture;
                threads.spawn(move || {
                    for round in 0..200 {
                        let (a, b) = ((round * 7 + writer) % 20, (round * 3 + 1) % 40);
                        fixture.ok("test", &format!("{{update: 'c', updates: [{{q: {{_id: {a}}}, u: {{$inc: {{n: 1}}}}}}]}}"));
                        fixture.ok("test", &format!("{{delete: 'c', deletes: [{{q: {{_id: {b}}}, limit: 1}}]}}"));
                        fixture.run("test", &format!("{{insert: 'c', documents: [{{_id: {}, n: {round}, g: 1}}]}}", (b + 9) % 40));
                    }
                })
            })
            .collect();
        threads.spawn(|| {
            let mut round = 0;
            while !over.load(Ordering::Acquire) {
                round += 1;
                // Sometimes the collection itself changes.
                let of = if round % 4 == 0 { "c" } else { "other" };
                fixture.ok(
                    "test",
                    &format!("{{createIndexes: '{of}', indexes: [{{key: {{g: 1}}, name: 'g'}}]}}"),
                );
                fixture.ok("test", &format!("{{dropIndexes: '{of}', index: 'g'}}"));
            }
        });
        let readers = threads.spawn(|| {
            let (mut same, mut void) = (0, 0);
            while !over.load(Ordering::Acquire) {
                let first = sum_at(
                    &fixture,
                    "{find: 'c', batchSize: 1000, readConcern: {level: 'snapshot'}}",
                );
                let Some((time, count, sum)) = first else {
                    void += 1;
                    continue;
                };
                let concern = format!(
                    "readConcern: {{level: 'snapshot', atClusterTime: Timestamp({}, {})}}",
                    time >> 32,
                    time & 0xFFFF_FFFF
                );
                for command in [
                    format!("{{find: 'c', sort: {{n: 1}}, batchSize: 1000, {concern}}}"),
                    format!("{{find: 'c', filter: {{g: {{$gte: 0}}}}, batchSize: 1000, {concern}}}"),
                    format!("{{aggregate: 'c', pipeline: [{{$match: {{g: {{$in: [0, 1, 2]}}}}}}], cursor: {{batchSize: 1000}}, {concern}}}"),
                ] {
                    match sum_at(&fixture, &command) {
                        Some(again) => {
                            assert_eq!(again, (time, count, sum), "{command}");
                            same += 1;
                        }
                        None => void += 1,
                    }
                }
            }
            (same, void)
        });
        let ended: Vec<_> = writers.into_iter().map(|writer| writer.join()).collect();
        over.store(true, Ordering::Release);
        ended.into_iter().for_each(|end| end.unwrap());
        (same, void) = readers.join().unwrap();
    });
    assert!(same > 0, "{same} reads saw the same, {void} were void");
}

#[test]
fn a_session_of_snapshot_reads_sees_one_state() {
    a_session_sees_one_state(memory());
}

#[test]
fn a_session_of_snapshot_reads_sees_one_state_on_rocksdb() {
    a_session_sees_one_state(rocksdb());
}

#[test]
fn the_time_of_a_reply_is_readable_as_long_as_it_is_the_newest() {
    let fixture = Fixture::in_memory();
    for id in 0..5 {
        let insert = format!("{{insert: 'c', documents: [{{_id: {id}}}]}}");
        let (reply, _) = fixture.dispatched("test", &insert);
        let Some(RawValue::Timestamp(time)) = reply.as_doc().get("operationTime") else {
            panic!("every reply carries the time");
        };
        let find = format!(
            "{{find: 'c', readConcern: {{level: 'snapshot', atClusterTime: Timestamp({}, {})}}}}",
            time >> 32,
            time & 0xFFFF_FFFF
        );
        assert_eq!(batch(fixture.ok("test", &find).as_doc()).len(), id + 1);
        // A command without effect blocks no other.
        fixture.ok("test", "{ping: 1}");
        assert_eq!(batch(fixture.ok("test", &find).as_doc()).len(), id + 1);
    }
}

#[test]
fn what_is_too_old_costs_no_snapshot() {
    let fixture = Fixture::in_memory();
    fixture.ok("test", "{insert: 'c', documents: [{_id: 1}]}");
    for id in 2..5 {
        fixture.ok("test", &format!("{{insert: 'c', documents: [{{_id: {id}}}]}}"));
        let old = "{find: 'c', readConcern: {level: 'snapshot', atClusterTime: Timestamp(1800000000, 2)}}";
        assert_eq!(number(fixture.run("test", old).as_doc(), "code"), 239);
        assert!(fixture.store().history().is_empty());
    }
    fixture.ok("test", "{find: 'c', readConcern: {level: 'snapshot'}}");
    assert_eq!(fixture.store().history().len(), 1);
}

#[test]
fn a_snapshot_read_sees_units_whole_and_up_to_its_time() {
    pairs_stay_together(memory());
}

#[test]
fn a_snapshot_read_sees_units_whole_and_up_to_its_time_on_rocksdb() {
    pairs_stay_together(rocksdb());
}
