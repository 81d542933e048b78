//! Copies between two engines in memory.

use std::sync::Arc;
use std::time::Duration;

use mayfly_base::{Clock, ErrorCode};
use mayfly_kv::{Engine, EngineWrapper, Guard, Keyspace, KvResult, MemoryEngine};
use mayfly_value::bson::{DateTime, Document, doc};
use mayfly_value::{DocBuf, RawDoc, RawValue};

use super::*;
use crate::backup::entries::in_txn;
use crate::end_of_run;
use crate::testing::{self, Fixture, NOW};
use crate::write::statement_row;
use crate::{Statement, Store, StoreOptions};

const COPY: [u8; 16] = [7; 16];
const HOLD: Duration = Duration::from_secs(60);

/// An engine whose content can be read after its store was closed.
struct StaysOpen(MemoryEngine);

impl StaysOpen {
    fn engine() -> Arc<dyn Engine> {
        Arc::new(StaysOpen(MemoryEngine::new()))
    }
}

impl EngineWrapper for StaysOpen {
    fn inner(&self) -> &dyn Engine {
        &self.0
    }

    fn close(&self) -> KvResult<()> {
        Ok(())
    }
}

fn document(id: i32) -> Document {
    let at = DateTime::from_millis(NOW + 1_000_000);
    doc! { "_id": id, "a": id % 7, "at": at, "text": "x".repeat(200) }
}

fn filled(count: i32) -> Fixture {
    let f = testing::fixture();
    f.index("d.c", &doc! { "key": { "a": 1 }, "name": "a_1" }).unwrap();
    f.index("d.c", &doc! { "key": { "at": 1 }, "name": "at_1", "expireAfterSeconds": 50 }).unwrap();
    (0..count).for_each(|id| f.insert("d.c", &document(id)).unwrap());
    f
}

/// Begins a copy, or continues the one in the target.
fn target(f: &Fixture, engine: &Arc<dyn Engine>) -> CopyTarget {
    match CopyTarget::find(&**engine).unwrap() {
        Some(state) => CopyTarget::resume(engine.clone(), state).unwrap(),
        None => {
            let point = f.store.begin_copy(&f.op, COPY).unwrap();
            let (phase, position) = (CopyPhase::Base, None);
            let CopyPoint { store, time, .. } = point;
            let state = CopyState { copy: COPY, store, time, phase, position };
            CopyTarget::begin(engine.clone(), state).unwrap()
        }
    }
}

/// Writes at most this number of runs of the base; returns whether it is complete.
fn base(f: &Fixture, target: &mut CopyTarget, most: usize) -> bool {
    let mut position = target.state().position.clone();
    for _ in 0..most {
        let Some(run) = f.store.copy_entries(COPY, position.as_ref()).unwrap() else {
            target.end_base().unwrap();
            return true;
        };
        target.write_run(&run).unwrap();
        position = end_of_run(&run).unwrap();
    }
    false
}

fn follow(f: &Fixture, replay: &mut crate::Replay) {
    let mut bytes = Vec::new();
    let mut reached = replay.position();
    while reached < f.store.oplog().settled() {
        reached = f.store.copy_log(COPY, reached, 5000, &mut bytes).unwrap();
    }
    let mut rest = &bytes[..];
    while let Some(length) = rest.first_chunk() {
        let (entry, later) = rest.split_at(u32::from_le_bytes(*length) as usize);
        replay.apply(RawDoc::new(entry).unwrap()).unwrap();
        rest = later;
    }
}

fn refused(engine: &Arc<dyn Engine>) -> ErrorCode {
    let clock = testing::clock();
    let ops = mayfly_work::OpRegistry::new(clock.clone());
    let options = StoreOptions { background: false, ..StoreOptions::default() };
    Store::open(engine.clone(), options, clock, ops).err().expect("it opens").code()
}

fn digests(f: &Fixture) -> Vec<CollectionDigest> {
    f.store.digests(&f.op).unwrap()
}

#[test]
fn a_store_moves_while_it_is_written_to_and_the_copy_is_interrupted() {
    let f = filled(30_000);
    let engine = StaysOpen::engine();
    let mut part = target(&f, &engine);
    f.insert("d.c", &document(100_000)).unwrap();
    f.insert("d.e", &document(1)).unwrap();
    assert!(!base(&f, &mut part, 3));
    drop(part);
    assert_eq!(refused(&engine), ErrorCode::NotYetInitialized);
    let mut part = target(&f, &engine);
    assert!(part.state().position.is_some());
    assert!(base(&f, &mut part, 1000));
    // The log is followed in two runs of the program.
    for id in 200_000..200_010 {
        let mut replay = part.replay(StoreOptions::default().filters).unwrap();
        f.insert("d.c", &document(id)).unwrap();
        follow(&f, &mut replay);
        drop(replay);
        part = target(&f, &engine);
        assert_eq!(part.state().phase, CopyPhase::Log);
    }
    let mut replay = part.replay(StoreOptions::default().filters).unwrap();
    let hold = f.store.hold_for_copy(&f.op, COPY, HOLD).unwrap();
    assert!(f.store.fsync_lock.try_enter().is_none());
    follow(&f, &mut replay);
    let SessionsPart { run, next } = f.store.copy_sessions(COPY, 0, None).unwrap();
    assert_eq!((part.write_sessions(&run).unwrap(), next), (0, None));
    let end = CopyEnd { time: hold.time, now_ms: f.clock.now_ms(), suspended: hold.suspended };
    part.complete(replay.store(), &end).unwrap();
    assert_eq!(refused(&engine), ErrorCode::NotYetInitialized);
    let expected = digests(&f);
    f.store.become_moved(COPY, hold.time).unwrap();
    assert_eq!(refused(&f.engine), ErrorCode::NotYetInitialized);
    assert_eq!(moved_by(&*f.engine).unwrap(), Some(COPY));
    let waits = f.store.fsync_lock.enter(&f.op).map(drop).unwrap_err();
    assert_eq!(waits.code(), ErrorCode::InterruptedAtShutdown);
    assert_eq!(digests(&Fixture { store: replay.store().clone(), ..testing::fixture() }), expected);
    part.release(replay.store()).unwrap();
    let copied = testing::open(engine, testing::clock());
    assert_eq!(copied.count("d.c"), 30_011);
    assert_eq!(digests(&copied), expected);
    assert!(copied.store.expiry_suspension().is_none());
    // No client resumes at a time of the source.
    for time in [1 << 32, end.time, end.time + 1] {
        let lost = copied.store.oplog().check_not_cut(time).unwrap_err();
        assert_eq!(lost.code(), ErrorCode::ChangeStreamHistoryLost, "{time}");
    }
    assert!(copied.store.last_timestamp() > end.time);
    assert!(copied.store.check(&copied.op, &mut |_| ()).unwrap().faults.is_empty());
}

#[test]
fn a_hold_ends_and_the_store_can_be_followed_again() {
    let f = filled(10);
    let engine = StaysOpen::engine();
    let mut part = target(&f, &engine);
    assert!(base(&f, &mut part, 100));
    let mut replay = part.replay(StoreOptions::default().filters).unwrap();
    let hold = f.store.hold_for_copy(&f.op, COPY, HOLD).unwrap();
    follow(&f, &mut replay);
    let end = CopyEnd { time: hold.time, now_ms: NOW, suspended: None };
    part.complete(replay.store(), &end).unwrap();
    f.store.release_after_copy(COPY);
    f.insert("d.c", &document(11)).unwrap();
    let late = f.store.become_moved(COPY, hold.time).unwrap_err();
    assert_eq!(late.code(), ErrorCode::CursorNotFound);
    assert_eq!(moved_by(&*f.engine).unwrap(), None);
    // The same target goes on.
    drop(replay);
    let mut part = target(&f, &engine);
    let mut replay = part.replay(StoreOptions::default().filters).unwrap();
    let hold = f.store.hold_for_copy(&f.op, COPY, HOLD).unwrap();
    follow(&f, &mut replay);
    let end = CopyEnd { time: hold.time, now_ms: NOW, suspended: None };
    part.complete(replay.store(), &end).unwrap();
    f.store.become_moved(COPY, hold.time).unwrap();
    part.release(replay.store()).unwrap();
    assert_eq!(testing::open(engine, testing::clock()).count("d.c"), 11);
}

#[test]
fn other_engines_and_unknown_copies_are_refused() {
    let f = filled(3);
    let refused = CopyTarget::find(&*f.engine).unwrap_err();
    assert_eq!(refused.code(), ErrorCode::IllegalOperation);
    let unknown = f.store.copy_entries(COPY, None).unwrap_err();
    assert_eq!(unknown.code(), ErrorCode::CursorNotFound);
    f.store.begin_copy(&f.op, COPY).unwrap();
    assert!(f.store.copy_entries([8; 16], None).is_err());
    // Another copy takes the place of the first one, but not during its hold.
    f.store.hold_for_copy(&f.op, COPY, HOLD).unwrap();
    let held = f.store.begin_copy(&f.op, [8; 16]).unwrap_err();
    assert_eq!(held.code(), ErrorCode::ConflictingOperationInProgress);
    f.store.release_after_copy(COPY);
    f.insert("d.c", &document(9)).unwrap();
    f.store.begin_copy(&f.op, [8; 16]).unwrap();
    assert!(f.store.copy_entries(COPY, None).is_err());
    // A copy that reads nothing is forgotten.
    f.clock.advance_ms(COPY_LEASE.as_millis() as i64 + 1);
    f.store.expire_copy();
    assert!(f.store.copy_entries([8; 16], None).is_err());
}

#[test]
fn states_round_trip() {
    let position = EntriesPosition::new(3, vec![0, 255]);
    assert_eq!(EntriesPosition::new(9, vec![]), None);
    for phase in [CopyPhase::Base, CopyPhase::Log, CopyPhase::Complete] {
        for position in [position.clone(), None] {
            let state = CopyState { copy: COPY, store: [1; 16], time: 5 << 32, phase, position };
            let row = state.to_document();
            assert_eq!(CopyState::from_row(row.as_bytes()), Some(state));
        }
    }
    assert_eq!(CopyState::from_row(&[]), None);
    let other = DocBuf::from_bson(&doc! { "copy": 1 });
    assert_eq!(CopyState::from_row(other.as_bytes()), None);
    assert!(matches!(other.as_doc().get("copy"), Some(RawValue::Int32(1))));
}

/// The records of a busy store do not fit into one reply.
#[test]
fn records_of_retryable_writes_are_copied_in_parts() {
    let f = filled(1);
    let point = f.store.begin_copy(&f.op, COPY).unwrap();
    let result = DocBuf::from_bson(&doc! { "text": "x".repeat(100_000) });
    in_txn(&*f.engine, |txn| {
        (0..250_u8).try_for_each(|n| {
            let statement = Statement { session: [n; 16], txn_number: 1, id: 0 };
            let now_ms = NOW + i64::from(n % 2);
            let (key, value) = statement_row(statement, 1, now_ms, result.as_doc());
            txn.put(Keyspace::Session, &key, &value, Guard::Checked)
        })
    })
    .unwrap();
    let engine = StaysOpen::engine();
    let (phase, position) = (CopyPhase::Base, None);
    let state = CopyState { copy: COPY, store: point.store, time: point.time, phase, position };
    let part = CopyTarget::begin(engine, state).unwrap();
    for (since_ms, expected) in [(NOW, 250), (NOW + 1, 125), (NOW + 2, 0)] {
        let (mut records, mut after): (u64, Option<Vec<u8>>) = (0, None);
        loop {
            let SessionsPart { run, next } =
                f.store.copy_sessions(COPY, since_ms, after.as_deref()).unwrap();
            assert!(run.len() < 5 << 20, "{}", run.len());
            records += part.write_sessions(&run).unwrap();
            after = next;
            if after.is_none() {
                break;
            }
        }
        assert_eq!(records, expected);
    }
}
