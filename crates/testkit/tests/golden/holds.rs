//! Due documents with a hold: passes do not read them again, and the next pass after the end of a
//! hold deletes the document.

use std::sync::Arc;

use mayfly_testkit::{CountsSteps, Fixture, OpenEngine, Steps, clustered, memory};
use mayfly_value::RawValue;

use crate::scripts::rocksdb;

const SESSION: &str = "lsid: {id: BinData(4, 'AwMDAwMDAwMDAwMDAwMDAw==')}";

fn count(f: &Fixture) -> i32 {
    match f.ok("test", "{count: 'c'}").as_doc().get("n") {
        Some(RawValue::Int32(count)) => count,
        other => panic!("{other:?}"),
    }
}

/// Reads of records by a pass.
fn pass(f: &mut Fixture, steps: &Steps) -> u64 {
    steps.take();
    f.ttl_pass();
    steps.take()
}

fn held_documents_are_read_once(open: OpenEngine) {
    let steps = Arc::new(Steps::default());
    let counts = steps.clone();
    let open: OpenEngine = Box::new(move || Arc::new(CountsSteps::new(open(), counts.clone())));
    let mut f = Fixture::new(open);
    let index = "{key: {d: 1}, name: 'd', expireAfterSeconds: 0, ttl: {holdField: 'h'}}";
    f.ok("test", &format!("{{createIndexes: 'c', indexes: [{index}]}}"));
    let documents: Vec<String> =
        (0..300).map(|id| format!("{{_id: {id}, d: Date(0), h: true}}")).collect();
    f.ok("test", &format!("{{insert: 'c', documents: [{}]}}", documents.join(", ")));
    assert!(pass(&mut f, &steps) >= 300);
    assert_eq!((pass(&mut f, &steps), count(&f)), (0, 300));

    // Holds that end, and one that only changes.
    let ends = [
        "{update: 'c', updates: [{q: {_id: 1}, u: {$unset: {h: 1}}}]}",
        "{update: 'c', updates: [{q: {_id: 2}, u: {d: Date(0), h: false}}]}",
        "{findAndModify: 'c', query: {_id: 3}, update: [{$set: {h: 1}}]}",
        "{update: 'c', updates: [{q: {_id: {$in: [4, 5]}}, u: {$set: {h: 'no'}}, multi: true}]}",
    ];
    for (at, end) in ends.iter().enumerate() {
        f.ok("test", end);
        f.ok("test", "{update: 'c', updates: [{q: {_id: 299}, u: {$set: {h: [1, true]}}}]}");
        let read = pass(&mut f, &steps);
        assert_eq!(count(&f), [299, 298, 297, 295][at], "{end}");
        assert!(read <= 10, "{end}: {read}");
    }
    let of = format!("{SESSION}, txnNumber: NumberLong('1'), autocommit: false");
    let update = "update: 'c', updates: [{q: {_id: 6}, u: {$unset: {h: 1}}}]";
    f.ok("test", &format!("{{{update}, {of}, startTransaction: true}}"));
    f.ttl_pass();
    assert_eq!(count(&f), 295, "not committed");
    f.ok("admin", &format!("{{commitTransaction: 1, {of}}}"));
    f.ttl_pass();
    assert_eq!(count(&f), 294);

    // Another document under the same `_id`.
    f.ok("test", "{delete: 'c', deletes: [{q: {_id: 7}, limit: 1}]}");
    f.ok("test", "{insert: 'c', documents: [{_id: 7, d: Date(0)}]}");
    f.ttl_pass();
    assert_eq!(count(&f), 293);
    pass(&mut f, &steps);
    assert_eq!(pass(&mut f, &steps), 0);

    // Another policy.
    f.ok("test", "{collMod: 'c', index: {name: 'd', ttl: {holdField: 'other'}}}");
    f.ttl_pass();
    assert_eq!(count(&f), 0);
}

#[test]
fn passes_do_not_read_what_is_held() {
    held_documents_are_read_once(memory());
    held_documents_are_read_once(clustered(memory()));
}

#[test]
fn passes_do_not_read_what_is_held_on_rocksdb() {
    held_documents_are_read_once(rocksdb());
}
