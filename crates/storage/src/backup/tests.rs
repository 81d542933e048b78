//! Points over an engine with a fake checkpoint, and stores that were restored.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use mayfly_base::ErrorCode;
use mayfly_kv::{
    CheckpointFile, Engine, EngineWrapper, Guard, Keyspace, KvError, KvResult, TxnOptions,
};
use mayfly_value::bson::doc;

use super::*;
use crate::oplog::{LogEntry, LostTimes};
use crate::record::layout::catalog_key;
use crate::testing::{self, Fixture, NOW};

/// An engine whose checkpoint is one file.
struct WithFiles {
    inner: Arc<dyn Engine>,
    scratch: PathBuf,
    nearly_full: AtomicBool,
    fails: AtomicBool,
}

impl WithFiles {
    fn new(name: &str) -> Arc<WithFiles> {
        let scratch = std::env::temp_dir().join(format!(
            "mayfly-{name}-{}-{:x}",
            std::process::id(),
            rand::random::<u32>()
        ));
        fs::create_dir_all(&scratch).unwrap();
        let (nearly_full, fails) = (AtomicBool::new(false), AtomicBool::new(false));
        Arc::new(WithFiles { inner: testing::memory(), scratch, nearly_full, fails })
    }

    fn left_over(&self) -> usize {
        fs::read_dir(&self.scratch).unwrap().count()
    }
}

impl Drop for WithFiles {
    fn drop(&mut self) {
        fs::remove_dir_all(&self.scratch).unwrap();
    }
}

impl EngineWrapper for WithFiles {
    fn inner(&self) -> &dyn Engine {
        &*self.inner
    }

    fn scratch(&self, _: u64) -> KvResult<Option<PathBuf>> {
        Ok(Some(self.scratch.clone()))
    }

    fn is_nearly_full(&self) -> bool {
        self.nearly_full.load(Ordering::Relaxed)
    }

    fn checkpoint(&self, folder: &Path) -> KvResult<Vec<CheckpointFile>> {
        fs::create_dir(folder).unwrap();
        fs::write(folder.join("000001.sst"), "x").unwrap();
        match self.fails.load(Ordering::Relaxed) {
            true => Err(KvError::Unavailable("on purpose".into())),
            false => Ok(vec![CheckpointFile { name: "000001.sst".into(), number: Some(1) }]),
        }
    }
}

fn with_files(name: &str) -> (Arc<WithFiles>, Fixture) {
    let engine = WithFiles::new(name);
    (engine.clone(), testing::open(engine, testing::clock()))
}

fn code(result: mayfly_base::Result<BackupPoint>) -> ErrorCode {
    match result {
        Ok(_) => panic!("there should be no point"),
        Err(error) => error.code(),
    }
}

#[test]
fn a_point_has_the_last_time_of_the_log_and_its_folder_ends_with_it() {
    let (engine, f) = with_files("point");
    f.insert("d.c", &doc! { "_id": 1 }).unwrap();
    f.insert("d.c", &doc! { "_id": 2 }).unwrap();
    let point = f.store.backup_point(&f.op).unwrap();
    assert_eq!(point.time, f.store.oplog().settled());
    let checkpoint = point.checkpoint().unwrap();
    assert_eq!(checkpoint.files.len(), 1);
    assert!(checkpoint.folder.join("000001.sst").exists());
    let [collection] = &point.collections[..] else { panic!("{:?}", point.collections) };
    assert_eq!((collection.ns.as_str(), collection.documents), ("d.c", 2));
    // The identity stays the same, also after a restart.
    let identity = point.identity.clone();
    assert_eq!(f.store.backup_point(&f.op).unwrap().identity, identity);
    let again = testing::open(engine.clone(), testing::clock());
    assert_eq!(again.store.backup_point(&again.op).unwrap().identity, identity);
    assert_eq!(engine.left_over(), 1);
    drop(point);
    assert_eq!(engine.left_over(), 0);
}

#[test]
fn a_point_is_given_up_without_progress_and_on_a_full_disk() {
    let (engine, f) = with_files("lease");
    let point = f.store.backup_point(&f.op).unwrap();
    let lease = LEASE.as_millis() as i64;
    f.clock.advance_ms(lease);
    point.check().unwrap();
    point.renew();
    f.clock.advance_ms(lease);
    point.check().unwrap();
    f.clock.advance_ms(1);
    assert_eq!(point.check().unwrap_err().code(), ErrorCode::ExceededTimeLimit);
    point.renew();
    engine.nearly_full.store(true, Ordering::Relaxed);
    assert_eq!(point.check().unwrap_err().code(), ErrorCode::OutOfDiskSpace);
    assert_eq!(code(f.store.backup_point(&f.op)), ErrorCode::OutOfDiskSpace);
    engine.nearly_full.store(false, Ordering::Relaxed);
    engine.fails.store(true, Ordering::Relaxed);
    assert_eq!(code(f.store.backup_point(&f.op)), ErrorCode::HostUnreachable);
    drop(point);
    assert_eq!(engine.left_over(), 0, "failed points leave nothing");
}

#[test]
fn an_engine_without_files_has_a_snapshot_and_no_cursor() {
    let f = testing::fixture();
    f.insert("d.c", &doc! { "_id": 1 }).unwrap();
    let point = f.store.backup_point(&f.op).unwrap();
    assert!(point.checkpoint().is_none() && point.time == f.store.oplog().settled());
    assert_eq!(code(f.store.backup_point_of_cursor(&f.op)), ErrorCode::CommandNotSupported);
}

#[test]
fn a_point_waits_for_the_lock_of_fsync() {
    let (_engine, f) = with_files("locked");
    f.store.lock_for_copy(&f.op).unwrap();
    f.op.kill(ErrorCode::Interrupted);
    assert_eq!(code(f.store.backup_point(&f.op)), ErrorCode::Interrupted);
}

#[test]
fn the_latest_backups_are_recorded() {
    let f = testing::fixture();
    let backup = |n: i64| RecordedBackup {
        id: format!("b{n}"),
        to: "/backup".into(),
        time: 7 << 32,
        finished_ms: NOW + n,
        bytes: 10,
        sent_bytes: n,
    };
    assert!(f.store.recorded_backups().unwrap().is_empty());
    for n in 0..70 {
        f.store.record_backup(&backup(n)).unwrap();
    }
    let found = testing::open(f.engine, f.clock).store.recorded_backups().unwrap();
    assert_eq!(found, (6..70).map(backup).collect::<Vec<_>>());
}

fn pass(f: &Fixture) {
    f.store.run_ttl_pass(&AtomicBool::new(false)).unwrap();
}

fn source(time: u64) -> RestoreSource {
    RestoreSource { backup: "b".into(), time, last_time: time }
}

/// A store that has an identity, as after a backup, and a policy with a due document.
fn backed_up() -> Fixture {
    let f = testing::fixture();
    let spec = doc! { "key": { "at": 1 }, "name": "at", "expireAfterSeconds": 0 };
    f.index("d.c", &spec).unwrap();
    f.store.ensure_identity().unwrap();
    let past = mayfly_value::bson::DateTime::from_millis(NOW - 1000);
    f.insert("d.c", &doc! { "_id": 1, "at": past }).unwrap();
    f
}

#[test]
fn a_restored_store_is_another_one_whose_times_are_later() {
    let f = backed_up();
    let old = f.store.ensure_identity().unwrap();
    let time = f.store.oplog().settled();
    // The store that was backed up has continued for two hours.
    let last_time = time + (7200 << 32);
    let known = RestoreSource { last_time, ..source(time) };
    let new = f.store.become_restored(&known, ExpiryAfterRestore::Suspended).unwrap();
    assert_ne!(new.store, old.store);
    assert_eq!(new.timeline, 2);
    let [LostTimes { after, before }] = new.lost[..] else { panic!("{:?}", new.lost) };
    assert!(after == time && before > last_time);
    let f = testing::open(f.engine, f.clock);
    f.insert("d.c", &doc! { "_id": 2 }).unwrap();
    assert!(f.store.oplog().settled() > before);
    let resume = |after: u64| {
        let mut entries = 0;
        let read = f.store.oplog().read_changes(after, &mut |_| {
            entries += 1;
            Ok(std::ops::ControlFlow::Continue(()))
        });
        read.map(|_| entries).map_err(|error| error.code())
    };
    assert_eq!(resume(time), Ok(2), "the note, and the insert");
    assert_eq!(resume(before), Ok(2));
    for lost in [time + 1, last_time, before - 1] {
        assert_eq!(resume(lost), Err(ErrorCode::ChangeStreamHistoryLost));
    }
    assert!(f.store.recorded_backups().unwrap().is_empty());
}

#[test]
fn a_stream_cannot_continue_before_entries_that_were_replayed() {
    let f = backed_up();
    let (early, time) = (1, f.store.oplog().settled());
    let mut txn = f.engine.begin(TxnOptions::default()).unwrap();
    let position = (time + 5).to_be_bytes();
    txn.put(Keyspace::Catalog, catalog_key::REPLAYED, &position, Guard::Checked).unwrap();
    txn.commit().unwrap();
    f.store.become_restored(&source(time), ExpiryAfterRestore::Suspended).unwrap();
    let f = testing::open(f.engine, f.clock);
    f.insert("d.c", &doc! { "_id": 2 }).unwrap();
    for before in [early, time, time + 5] {
        let see = &mut |_: &LogEntry<'_>| Ok(std::ops::ControlFlow::Continue(()));
        let error = f.store.oplog().read_changes(before, see).unwrap_err();
        assert_eq!(error.code(), ErrorCode::ChangeStreamHistoryLost, "{before}");
    }
}

#[test]
fn a_restored_store_expires_nothing_until_it_is_resumed() {
    let f = backed_up();
    let time = f.store.oplog().settled();
    f.store.become_restored(&source(time), ExpiryAfterRestore::Suspended).unwrap();
    f.store.record_suspension_last().unwrap();
    for restart in 0..3 {
        let f = testing::open(f.engine.clone(), f.clock.clone());
        // Neither time nor the limit for jumps of the clock ends the suspension.
        f.clock.advance_ms(86_400_000);
        f.store.ttl_params().clock_jump_limit_secs.store(0, Ordering::Relaxed);
        pass(&f);
        assert_eq!(f.count("d.c"), 1, "start {restart}");
        let suspension = f.store.expiry_suspension().unwrap();
        assert_eq!((suspension.reason, suspension.off_by_ms), ("restored", 0));
        assert_eq!(suspension.since_ms, NOW);
        f.store.record_suspension_last().unwrap();
    }
    let f = testing::open(f.engine, f.clock);
    assert!(f.store.resume_expiry().unwrap());
    pass(&f);
    assert_eq!(f.count("d.c"), 0);
    let f = testing::open(f.engine, f.clock);
    assert!(f.store.expiry_suspension().is_none());
}

#[test]
fn expiry_goes_on_at_once_when_asked_to() {
    let f = backed_up();
    let time = f.store.oplog().settled();
    f.store.become_restored(&source(time), ExpiryAfterRestore::Resumed).unwrap();
    let f = testing::open(f.engine, f.clock);
    assert!(f.store.expiry_suspension().is_none());
    pass(&f);
    assert_eq!(f.count("d.c"), 0);
}

#[test]
fn files_without_an_identity_are_no_backup() {
    let f = testing::fixture();
    let refused = f.store.become_restored(&source(1), ExpiryAfterRestore::Resumed).unwrap_err();
    assert_eq!(refused.code(), ErrorCode::DataCorruptionDetected);
}
