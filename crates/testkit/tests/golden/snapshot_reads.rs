//! Read concern `snapshot` while others write: all that one command reads is of the time that it names.

use std::sync::atomic::{AtomicBool, Ordering};

use mayfly_testkit::{Fixture, OpenEngine, expect, memory};
use mayfly_value::{Number, RawDoc, RawValue};

use crate::scripts::rocksdb;

fn batch(reply: RawDoc<'_>) -> Vec<RawDoc<'_>> {
    let batch = expect::batch(reply).and_then(RawValue::as_array).unwrap_or(RawDoc::EMPTY);
    batch.iter().filter_map(|element| element.value().as_document()).collect()
}

fn number(document: RawDoc<'_>, name: &str) -> i64 {
    document.get(name).and_then(Number::from_value).and_then(Number::to_i64_exact).unwrap_or(0)
}

/// Pairs are inserted and removed in one unit each. Two reads in one command see the same pairs, and as many as the log has
/// up to the command's time.
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

#[test]
fn a_snapshot_read_sees_units_whole_and_up_to_its_time() {
    pairs_stay_together(memory());
}

#[test]
fn a_snapshot_read_sees_units_whole_and_up_to_its_time_on_rocksdb() {
    pairs_stay_together(rocksdb());
}
