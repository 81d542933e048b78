//! Operations whose memory is used up while something happens to them: the disk is full, somebody kills them.

use std::path::PathBuf;
use std::sync::{Arc, OnceLock};

use mayfly_base::{ErrorCode, OpRegistry};
use mayfly_kv::{Engine, EngineAround, KvError, KvResult, MemoryEngine};
use mayfly_testkit::Fixture;
use mayfly_value::RawValue;

/// Says what happens when somebody asks for room for files.
type Ask = Box<dyn Fn() -> KvResult<()> + Send + Sync>;

/// An engine in memory that is asked for room.
struct Asked(MemoryEngine, Ask);

impl EngineAround for Asked {
    fn inner(&self) -> &dyn Engine {
        &self.0
    }

    fn scratch(&self, _: u64) -> KvResult<Option<PathBuf>> {
        (self.1)().map(|()| None)
    }
}

/// Pipelines that go into files, each in another way.
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

/// A server with little memory and this engine below it; gives the code that each pipeline ends with.
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
        // Less than a partition takes, more than what its function reads.
        ("internalDocumentSourceSetWindowFieldsMaxMemoryBytes", 40_000),
        ("internalQuerySlotBasedExecutionHashLookupApproxMemoryUseInBytesBeforeSpill", 15_000),
        // Less than is remembered, more than the result.
        ("internalDocumentSourceGraphLookupMaxMemoryBytes", 30_000),
    ];
    for (name, bytes) in limits {
        fixture.ok("admin", &format!("{{setParameter: 1, {name}: {bytes}}}"));
    }
    begun(&fixture);
    let ends = PIPELINES.iter().map(|pipeline| {
        // One at a time, so that what is left open does not count.
        let command = format!("{{aggregate: 'c', pipeline: [{pipeline}], cursor: {{}}}}");
        match fixture.run("test", &command).as_doc().get("code") {
            Some(RawValue::Int32(code)) => code,
            _ => 0,
        }
    });
    ends.collect()
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
