//! Operations that have reached their memory limit when the disk is full or they are killed.

use std::path::PathBuf;
use std::sync::{Arc, OnceLock};

use mayfly_base::ErrorCode;
use mayfly_kv::{Engine, EngineWrapper, KvError, KvResult, MemoryEngine};
use mayfly_testkit::Fixture;
use mayfly_value::RawValue;
use mayfly_work::OpRegistry;

/// Calls a function when space for files is requested.
type Ask = Box<dyn Fn() -> KvResult<()> + Send + Sync>;

/// A memory engine that calls a function when space for files is requested.
struct Asked(MemoryEngine, Ask);

impl EngineWrapper for Asked {
    fn inner(&self) -> &dyn Engine {
        &self.0
    }

    fn scratch(&self, _: u64) -> KvResult<Option<PathBuf>> {
        (self.1)().map(|()| None)
    }
}

/// Pipelines that spill to files, each in another operator.
const PIPELINES: &[&str] = &[
    "{$sort: {a: 1}}",
    "{$addFields: {b: '$a'}}, {$sort: {b: 1}}",
    "{$group: {_id: '$a'}}",
    "{$bucketAuto: {groupBy: '$a', buckets: 3}}",
    "{$setWindowFields: {sortBy: {a: 1}, output: {n: {$documentNumber: {}}}}}",
    "{$lookup: {from: 'c', localField: 'a', foreignField: 'a', as: 'x'}}",
    "{$match: {_id: 0}}, {$graphLookup: {from: 'links', startWith: '$_id', connectFromField: 'next', connectToField: '_id', \
     as: 'x'}}, {$project: {n: {$size: '$x'}}}",
];

/// Runs the pipelines on a server with little memory and this engine; returns their error codes.
fn codes(ask: Ask, begun: impl FnOnce(&Fixture)) -> Vec<i32> {
    let engine: Arc<dyn Engine> = Arc::new(Asked(MemoryEngine::new(), ask));
    let fixture = Fixture::new(Box::new(move || engine.clone()));
    for id in 0..500 {
        let text = "x".repeat(50);
        let document = format!("{{_id: {id}, a: {}, t: '{text}'}}", id * 7 % 500);
        fixture.ok("test", &format!("{{insert: 'c', documents: [{document}]}}"));
        let link = format!("{{_id: {id}, next: {}}}", id + 1);
        fixture.ok("test", &format!("{{insert: 'links', documents: [{link}]}}"));
    }
    let limits = [
        ("internalQueryMaxBlockingSortMemoryUsageBytes", 15_000),
        ("internalDocumentSourceGroupMaxMemoryBytes", 15_000),
        ("internalDocumentSourceBucketAutoMaxMemoryBytes", 15_000),
        // Less than a partition needs, and more than its function reads.
        ("internalDocumentSourceSetWindowFieldsMaxMemoryBytes", 40_000),
        ("internalQuerySlotBasedExecutionHashLookupApproxMemoryUseInBytesBeforeSpill", 15_000),
        // Less than the visited documents need, and more than the result.
        ("internalDocumentSourceGraphLookupMaxMemoryBytes", 30_000),
    ];
    for (name, bytes) in limits {
        fixture.ok("admin", &format!("{{setParameter: 1, {name}: {bytes}}}"));
    }
    begun(&fixture);
    let ends = PIPELINES.iter().map(|pipeline| {
        // One at a time, so that open cursors do not count.
        let command = format!("{{aggregate: 'c', pipeline: [{pipeline}], cursor: {{}}}}");
        match fixture.run("test", &command).as_doc().get("code") {
            Some(RawValue::Int32(code)) => code,
            _ => 0,
        }
    });
    ends.collect()
}

#[test]
fn temporary_files_have_limits() {
    let set = |name: &'static str, bytes: u64| {
        codes(Box::new(|| Ok(())), move |fixture| {
            fixture.ok("admin", &format!("{{setParameter: 1, {name}: {bytes}}}"));
        })
    };
    let all = |code: i32| vec![code; PIPELINES.len()];
    assert_eq!(set("maxOperationScratchBytes", 1000), all(ErrorCode::ExceededMemoryLimit.0));
    assert_eq!(set("maxScratchBytes", 1000), all(ErrorCode::OutOfDiskSpace.0));
    // Enough for each of them, including what a file claims ahead. A merge needs the runs and the
    // merged run at the same time.
    assert_eq!(set("maxOperationScratchBytes", 2_000_000), all(0));
}

#[test]
fn a_full_disk_ends_what_would_go_into_files() {
    let full = || Err(KvError::Unavailable("the disk is full: 1 byte is left".to_owned()));
    let expected = vec![ErrorCode::OutOfDiskSpace.0; PIPELINES.len()];
    assert_eq!(codes(Box::new(full), |_| ()), expected);
    let room = || Ok(());
    assert_eq!(codes(Box::new(room), |_| ()), vec![0; PIPELINES.len()]);
}

#[test]
fn what_is_killed_ends_while_it_writes_files() {
    let ops: Arc<OnceLock<Arc<OpRegistry>>> = Arc::default();
    let killer = ops.clone();
    let kill = move || {
        for op in killer.get().map(|ops| ops.list()).unwrap_or_default() {
            op.kill(ErrorCode::Interrupted);
        }
        Ok(())
    };
    let begun = |fixture: &Fixture| drop(ops.set(fixture.service.ops.clone()));
    let expected = vec![ErrorCode::Interrupted.0; PIPELINES.len()];
    assert_eq!(codes(Box::new(kill), begun), expected);
}

/// An engine may have smaller limits than the server: keys of 1 KB, values of 1 MB, transactions of
/// 10 MB. Larger writes are refused with a code, and nothing of them is stored.
#[test]
fn an_engine_of_narrow_limits_refuses_what_does_not_fit() {
    let limits = Some(mayfly_kv::chaos::NARROW_LIMITS);
    let options = mayfly_kv::ChaosOptions { limits, ..Default::default() };
    let engine: Arc<dyn Engine> =
        Arc::new(mayfly_kv::ChaosEngine::new(Arc::new(MemoryEngine::new()), options));
    let mut fixture = Fixture::new(Box::new(move || engine.clone()));
    let code = |reply: &mayfly_value::DocBuf| {
        let reply = reply.as_doc();
        let first = reply.get("writeErrors").and_then(RawValue::as_array);
        let first = first.and_then(|errors| errors.iter().next()?.value().as_document());
        match first.unwrap_or(reply).get("code") {
            Some(RawValue::Int32(code)) => code,
            _ => 0,
        }
    };
    let (too_large, long_key) =
        (ErrorCode::TransactionTooLarge.0, ErrorCode::OBSOLETE_KeyTooLong.0);
    fixture.ok("test", "{createIndexes: 'c', indexes: [{key: {a: 1}, name: 'a'}]}");
    fixture
        .ok("test", "{insert: 'c', documents: [{_id: 0, a: 'short', pad: Repeat('x', 900000)}]}");
    for (refused, expected) in [
        ("{insert: 'c', documents: [{_id: 1, pad: Repeat('x', 1500000)}]}", too_large),
        ("{insert: 'c', documents: [{_id: 1, a: Repeat('x', 2000)}]}", long_key),
        ("{insert: 'c', documents: [{_id: Repeat('x', 2000)}]}", long_key),
        ("{update: 'c', updates: [{q: {_id: 0}, u: {$set: {a: Repeat('x', 2000)}}}]}", long_key),
        (
            "{update: 'c', updates: [{q: {_id: 0}, u: {$set: {more: Repeat('x', 200000)}}}]}",
            too_large,
        ),
        ("{createIndexes: 'c', indexes: [{key: {pad: 1}, name: 'pad'}]}", long_key),
    ] {
        assert_eq!(code(&fixture.run("test", refused)), expected, "{refused}");
    }
    // Many documents are written in several transactions of the engine, but a client's transaction
    // is always one.
    let session = "lsid: {id: BinData(4, 'AAAAAAAAAAAAAAAAAAAABw==')}, txnNumber: NumberLong(1), autocommit: false";
    for n in 1..=15 {
        let insert = format!("insert: 'c', documents: [{{_id: {n}, pad: Repeat('x', 900000)}}]");
        let begins = if n == 1 { ", startTransaction: true" } else { "" };
        let reply = fixture.run("test", &format!("{{{insert}, {session}{begins}}}"));
        let expected = match n {
            1..=11 => 0,
            12 => too_large,
            _ => ErrorCode::NoSuchTransaction.0,
        };
        assert_eq!(code(&reply), expected, "statement {n}");
    }
    let count = |fixture: &Fixture| {
        fixture.run("test", "{count: 'c'}").as_doc().get("n").map(|n| format!("{n:?}"))
    };
    assert_eq!(count(&fixture), Some("1".to_owned()));
    for n in 1..=15 {
        fixture.ok(
            "test",
            &format!(
                "{{insert: 'c', documents: [{{_id: {n}, at: Date(0), pad: Repeat('x', 900000)}}]}}"
            ),
        );
    }
    fixture.ok(
        "test",
        "{createIndexes: 'c', indexes: [{key: {at: 1}, name: 'at', expireAfterSeconds: 0}]}",
    );
    fixture.ttl_pass();
    assert_eq!(count(&fixture), Some("1".to_owned()), "what is due fits into several");
    let found = fixture.ok("test", "{validate: 'c', full: true}");
    assert_eq!(found.as_doc().get("valid"), Some(RawValue::Bool(true)));
}
