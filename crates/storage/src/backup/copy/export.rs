//! A store as the source of a copy.
//!
//! One copy at a time is known. It has a point, which is a snapshot, until all its entries are
//! read, and then only a position in the log, which keeps later entries from being cut. Both end
//! when the copy does not read for [`COPY_LEASE`].
//!
//! The switch-over needs a *hold*: writing commands wait, as under the lock of `fsync`, until the
//! source has ended, or the hold is over. A hold has a limit of time, so that writers go on when
//! the copy has died.

use std::ops::ControlFlow;
use std::sync::{Arc, Weak};
use std::time::Duration;

use mayfly_base::{Error, ErrorCode, Result};
use mayfly_kv::{Direction, Guard, Keyspace, ScanEnd, ScanLimit, TxnOptions};
use mayfly_work::OpCtx;
use parking_lot::Mutex;

use super::state::EntriesPosition;
use crate::Store;
use crate::backup::entries::{all_keys, append_entry};
use crate::backup::{BackupPoint, EntriesReader, PointContent, approximate_entry_bytes};
use crate::record::error::from_kv;
use crate::record::layout::catalog_key;
use crate::write::recorded_at;

/// How long a copy may read nothing before its point and its position end.
pub const COPY_LEASE: Duration = Duration::from_secs(600);
/// A run of records of retryable writes ends after this size: it must fit into a reply.
const SESSIONS_BYTES: usize = 4 << 20;
/// How often the thread of a hold checks whether the hold is over.
const HOLD_LOOK: Duration = Duration::from_millis(50);

/// The copy of a store that is under way.
#[derive(Default)]
pub(crate) struct CopyExport(Mutex<Option<Export>>);

struct Export {
    copy: [u8; 16],
    point: Option<Arc<BackupPoint>>,
    used_micros: i64,
    hold: Option<Hold>,
}

struct Hold {
    /// The time of the log, which does not change during the hold.
    time: u64,
    ends_micros: i64,
    /// The store was moved: the hold does not end.
    moved: bool,
}

/// The point of a copy.
#[derive(Clone, Copy, Debug)]
pub struct CopyPoint {
    /// The identity of the store.
    pub store: [u8; 16],
    /// The last time of the log that the point contains.
    pub time: u64,
    /// About how many bytes its entries have.
    pub bytes: u64,
    /// Whether this copy has had the point before.
    pub goes_on: bool,
}

/// A part of the records of retryable writes.
#[derive(Clone, Debug)]
pub struct SessionsPart {
    /// The keyspace and its entries, as in the run of a copy.
    pub run: Vec<u8>,
    /// The key after which the next part begins; `None` for the last part.
    pub next: Option<Vec<u8>>,
}

/// The state of a store during a hold.
#[derive(Clone, Debug)]
pub struct CopyHold {
    /// The last time of the log.
    pub time: u64,
    /// The suspension of expiry as the catalog has it.
    pub suspended: Option<Vec<u8>>,
}

impl Store {
    /// The point of a copy. A copy that is already known goes on with its point.
    ///
    /// # Errors
    /// Errors of [`Store::backup_point`].
    pub fn begin_copy(&self, op: &OpCtx, copy: [u8; 16]) -> Result<CopyPoint> {
        let bytes = approximate_entry_bytes(self.engine())?;
        if let Ok(point) = self.copy_point(copy) {
            let (store, time) = (point.identity.store, point.time);
            return Ok(CopyPoint { store, time, bytes, goes_on: true });
        }
        self.refuse_during_hold()?;
        // From now on nothing is cut: the point contains all entries up to here.
        self.oplog.note_copied(Some(self.oplog.settled()));
        let point = match self.point_of_entries(op) {
            Ok(point) => Arc::new(point),
            Err(error) => {
                self.oplog.note_copied(None);
                return Err(error);
            }
        };
        let (store, time) = (point.identity.store, point.time);
        let found = CopyPoint { store, time, bytes, goes_on: false };
        self.set_export(copy, Some(point));
        Ok(found)
    }

    /// Continues a copy that has the entries of the log up to this time.
    ///
    /// # Errors
    /// 286 ChangeStreamHistoryLost if later entries were cut; errors of the engine.
    pub fn continue_copy(&self, copy: [u8; 16], after: u64) -> Result<[u8; 16]> {
        self.oplog.check_not_cut(after)?;
        let identity = self.ensure_identity()?;
        if self.used_export(copy).is_err() {
            self.refuse_during_hold()?;
            self.set_export(copy, None);
        }
        self.oplog.note_copied(Some(after));
        Ok(identity.store)
    }

    /// The next run of the point's entries; `None` after the last one.
    ///
    /// # Errors
    /// 43 CursorNotFound when the point has ended; errors of the engine.
    pub fn copy_entries(
        &self,
        copy: [u8; 16],
        after: Option<&EntriesPosition>,
    ) -> Result<Option<Vec<u8>>> {
        let point = self.copy_point(copy)?;
        let PointContent::Entries(snapshot) = &point.content else { return Err(unknown_copy()) };
        let mut reader = EntriesReader::after(snapshot.clone(), after);
        Ok(reader.next_run()?.map(|(_, run)| run))
    }

    /// Appends entries of the log after a time that the target has. Returns the time up to which
    /// they were appended.
    ///
    /// # Errors
    /// 43 CursorNotFound for an unknown copy; errors of
    /// [`Oplog::read_for_archive`](crate::Oplog::read_for_archive).
    pub fn copy_log(
        &self,
        copy: [u8; 16],
        after: u64,
        max_bytes: usize,
        out: &mut Vec<u8>,
    ) -> Result<u64> {
        self.used_export(copy)?;
        let reached = self.oplog.read_for_archive(after, max_bytes, out)?;
        if reached > after {
            // A target must not have entries that a power cut takes from the source.
            self.sync_all()?;
        }
        self.oplog.note_copied(Some(after));
        // Entries from now on do not need the point.
        if let Some(export) = self.export.0.lock().as_mut() {
            export.point = None;
        }
        Ok(reached)
    }

    /// A part of the records of retryable writes since a wall time, which the log lacks: the first
    /// part, or the one after this key ([`SessionsPart::next`]).
    ///
    /// # Errors
    /// 43 CursorNotFound for an unknown copy; errors of the engine.
    pub fn copy_sessions(
        &self,
        copy: [u8; 16],
        since_ms: i64,
        after: Option<&[u8]>,
    ) -> Result<SessionsPart> {
        self.used_export(copy)?;
        let txn = self.engine().begin(TxnOptions::READ_ONLY).map_err(from_kv)?;
        let mut run = vec![Keyspace::Session as u8];
        let (forward, mut range) = (Direction::Forward, all_keys());
        if let Some(after) = after {
            range = range.after(after, forward);
        }
        loop {
            let mut is_full = false;
            let end =
                txn.scan(Keyspace::Session, &range, forward, ScanLimit::ALL, &mut |key, value| {
                    if recorded_at(key, value).is_some_and(|at| at >= since_ms) {
                        append_entry(&mut run, key, value);
                    }
                    is_full = run.len() >= SESSIONS_BYTES;
                    match is_full {
                        true => ControlFlow::Break(()),
                        false => ControlFlow::Continue(()),
                    }
                });
            match end.map_err(from_kv)? {
                ScanEnd::Exhausted => return Ok(SessionsPart { run, next: None }),
                ScanEnd::More { last_key } if is_full => {
                    return Ok(SessionsPart { run, next: Some(last_key) });
                }
                ScanEnd::More { last_key } => range = range.after(&last_key, forward),
            }
        }
    }

    /// Makes writing commands wait for at most this time, and waits for those that run.
    ///
    /// # Errors
    /// 43 CursorNotFound for an unknown copy; 117 ConflictingOperationInProgress while the store
    /// is held; errors of the operation's deadline.
    pub fn hold_for_copy(
        self: &Arc<Store>,
        op: &OpCtx,
        copy: [u8; 16],
        limit: Duration,
    ) -> Result<CopyHold> {
        self.used_export(copy)?;
        self.refuse_during_hold()?;
        self.fsync_lock.lock(op)?;
        let ends_micros = self.clock.monotonic_micros() + limit.as_micros() as i64;
        let time = self.oplog.settled();
        let held = {
            let mut export = self.export.0.lock();
            let known = export.as_mut().filter(|it| it.copy == copy && it.hold.is_none());
            known.map(|it| it.hold = Some(Hold { time, ends_micros, moved: false })).is_some()
        };
        let ends = || {
            let weak = Arc::downgrade(self);
            let thread = std::thread::Builder::new().name("hold for a copy".into());
            thread.spawn(move || end_hold_in_time(&weak)).map(drop)
        };
        let result = match held {
            true => ends().map_err(|error| Error::internal(format!("no thread: {error}"))),
            false => Err(unknown_copy()),
        };
        if let Err(error) = result {
            match held {
                true => self.unlock_hold(),
                false => drop(self.fsync_lock.unlock()),
            }
            return Err(error);
        }
        let mut suspended = None;
        let row = &mut |value: &[u8]| suspended = Some(value.to_vec());
        let read = self.engine().get_once(Keyspace::Catalog, catalog_key::SUSPENDED, row);
        match read {
            Ok(_) => Ok(CopyHold { time, suspended }),
            Err(error) => {
                self.unlock_hold();
                Err(from_kv(error))
            }
        }
    }

    /// Ends the hold of a copy, unless the store was moved: writing commands go on.
    pub fn release_after_copy(&self, copy: [u8; 16]) {
        let is_of = self.export.0.lock().as_ref().is_some_and(|it| it.copy == copy);
        if is_of {
            self.unlock_hold();
        }
    }

    /// Notes that the store was moved: no server opens it again, and no writing command goes on.
    ///
    /// # Errors
    /// 43 CursorNotFound when the hold has ended; 117 ConflictingOperationInProgress when an entry
    /// was written since; errors of the engine. The store is as before then.
    pub fn become_moved(&self, copy: [u8; 16], time: u64) -> Result<()> {
        let mut export = self.export.0.lock();
        let found = export.as_mut().filter(|it| it.copy == copy);
        let Some(hold) = found.and_then(|it| it.hold.as_mut()) else { return Err(unknown_copy()) };
        let is_over = self.clock.monotonic_micros() >= hold.ends_micros;
        if hold.moved {
            return Ok(());
        }
        if is_over || self.fsync_lock.count() <= 0 {
            return Err(unknown_copy());
        }
        if hold.time != time || self.oplog.settled() != time {
            let text = "the store was written to while it was held for its copy";
            return Err(Error::new(ErrorCode::ConflictingOperationInProgress, text));
        }
        self.change(|txn, _| {
            txn.put(Keyspace::Catalog, catalog_key::MOVED, &copy, Guard::Checked).map_err(from_kv)
        })?;
        self.engine().sync().map_err(from_kv)?;
        hold.moved = true;
        // Those that wait end with an error after which drivers try again at another server.
        self.fsync_lock.refuse();
        Ok(())
    }

    /// Forgets a copy.
    pub fn end_copy(&self, copy: [u8; 16]) {
        let mut export = self.export.0.lock();
        if export.as_ref().is_some_and(|it| it.copy == copy && it.hold.is_none()) {
            *export = None;
            self.oplog.note_copied(None);
        }
    }

    /// Forgets a copy that reads nothing any more.
    pub(crate) fn expire_copy(&self) {
        let mut export = self.export.0.lock();
        let now = self.clock.monotonic_micros();
        let is_old =
            |it: &Export| it.hold.is_none() && now - it.used_micros > COPY_LEASE.as_micros() as i64;
        if export.as_ref().is_some_and(is_old) {
            tracing::warn!("a copy of the store has read nothing for ten minutes and was given up");
            *export = None;
            self.oplog.note_copied(None);
        }
    }

    /// Drops the point before the engine is closed.
    pub(crate) fn drop_copy_point(&self) {
        if let Some(export) = self.export.0.lock().as_mut() {
            export.point = None;
        }
    }

    fn set_export(&self, copy: [u8; 16], point: Option<Arc<BackupPoint>>) {
        let used_micros = self.clock.monotonic_micros();
        *self.export.0.lock() = Some(Export { copy, point, used_micros, hold: None });
    }

    /// Checks that the copy is known, and extends its lease.
    fn used_export(&self, copy: [u8; 16]) -> Result<Option<Arc<BackupPoint>>> {
        let mut export = self.export.0.lock();
        let found = export.as_mut().filter(|it| it.copy == copy).ok_or_else(unknown_copy)?;
        found.used_micros = self.clock.monotonic_micros();
        Ok(found.point.clone())
    }

    fn copy_point(&self, copy: [u8; 16]) -> Result<Arc<BackupPoint>> {
        self.used_export(copy)?.ok_or_else(unknown_copy)
    }

    fn refuse_during_hold(&self) -> Result<()> {
        let is_held = self.export.0.lock().as_ref().is_some_and(|it| it.hold.is_some());
        match is_held {
            false => Ok(()),
            true => {
                let text = "the store is held for the end of another copy";
                Err(Error::new(ErrorCode::ConflictingOperationInProgress, text))
            }
        }
    }

    /// Ends a hold, unless the store was moved.
    fn unlock_hold(&self) {
        let mut export = self.export.0.lock();
        let Some(found) = export.as_mut() else { return };
        if found.hold.take_if(|hold| !hold.moved).is_some() {
            self.fsync_lock.unlock();
        }
    }

    /// Whether there is a hold that still can end.
    fn has_open_hold(&self) -> bool {
        let export = self.export.0.lock();
        export.as_ref().and_then(|it| it.hold.as_ref()).is_some_and(|hold| !hold.moved)
    }

    fn hold_is_over(&self) -> bool {
        let export = self.export.0.lock();
        let hold = export.as_ref().and_then(|it| it.hold.as_ref());
        hold.is_some_and(|hold| self.clock.monotonic_micros() >= hold.ends_micros)
    }
}

/// Ends a hold when its time is over.
fn end_hold_in_time(store: &Weak<Store>) {
    loop {
        std::thread::sleep(HOLD_LOOK);
        let Some(store) = store.upgrade().filter(|store| store.has_open_hold()) else { return };
        if store.hold_is_over() {
            tracing::warn!("the copy of the store did not end in time; writing commands go on");
            store.unlock_hold();
            return;
        }
    }
}

fn unknown_copy() -> Error {
    let text = "the server does not know this copy, or has given it up";
    Error::new(ErrorCode::CursorNotFound, text)
}
