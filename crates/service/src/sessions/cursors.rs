//! Open cursors between two batches.
//!
//! A batch takes its cursor out and puts it back, so that two batches never run on one cursor. Idle
//! cursors are closed after a timeout on the monotonic clock, which changes of the wall clock do
//! not affect. A batch that waits for data has put its cursor back, and ends when the cursor is
//! closed.

mod listed;

pub use listed::OpenCursor;

use std::collections::HashMap;
use std::convert::Infallible;
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, Weak};

use mayfly_auth::UserName;
use mayfly_base::{Error, ErrorCode, Namespace, Result};
use mayfly_query::Cursor;
use mayfly_storage::Store;
use mayfly_work::memory::RetainedBytes;
use mayfly_work::scratch::OperationScratch;
use mayfly_work::{current, memory};
use parking_lot::{Condvar, Mutex};
use tokio::sync::oneshot;

use self::listed::Shown;
use crate::clients::SessionId;

/// The interval between two checks for idle cursors, in microseconds.
const CHECK_INTERVAL_MICROS: i64 = 4_000_000;
/// The default timeout of idle cursors, in milliseconds.
const IDLE_MS: i64 = 10 * 60 * 1000;

/// All open cursors.
pub struct Cursors {
    open: Mutex<HashMap<i64, Entry>>,
    /// Signals that a borrowed cursor was returned.
    returned: Condvar,
    last_check_micros: AtomicI64,
    timed_out: AtomicI64,
    /// The number of cursors since the start.
    opened: AtomicI64,
    /// The parameter `cursorTimeoutMillis`: idle cursors are closed after so many milliseconds.
    pub timeout_ms: AtomicI64,
}

/// The owner of a cursor, or of a request for one.
#[derive(Clone, Debug, Default)]
pub struct CursorOwner {
    /// The user, if access control is on.
    pub user: Option<UserName>,
    /// The session that the cursor was opened in; only commands of this session may use it.
    pub session: Option<SessionId>,
    /// The number of the transaction, and a reference that is alive as long as it is open.
    pub transaction: Option<(i64, Weak<()>)>,
}

struct Entry {
    namespace: Namespace,
    owner: CursorOwner,
    /// `None` while a batch runs.
    cursor: Option<Cursor>,
    shown: Shown,
    last_used_micros: i64,
    /// The memory that it holds between two batches.
    kept: RetainedBytes,
    /// Its temporary files, which count for all of its batches together.
    scratch: Option<Arc<OperationScratch>>,
    no_timeout: bool,
    killed: bool,
    /// Whether its memory is being released, for which a batch waits.
    is_borrowed: bool,
    /// Wakes the batch that waits for data, by being dropped.
    closed: Option<oneshot::Sender<Infallible>>,
}

/// The timeout of an idle cursor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IdleTime {
    /// `cursorTimeoutMillis`.
    Limited,
    /// The lifetime of its session.
    Unlimited,
}

/// The numbers of cursors that clients can continue.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CursorCounts {
    /// Cursors that are open now.
    pub open: i64,
    /// Open cursors without a timeout of their own.
    pub no_timeout: i64,
    /// Open cursors of which a batch runs.
    pub pinned: i64,
    /// Cursors that were opened since the start.
    pub opened: i64,
    /// Cursors that have timed out since the start.
    pub timed_out: i64,
}

/// The answer of `killCursors`.
#[derive(Debug, Default)]
pub struct Killed {
    /// The closed cursors.
    pub killed: Vec<i64>,
    /// Ids without a cursor.
    pub not_found: Vec<i64>,
}

impl Default for Cursors {
    fn default() -> Cursors {
        Cursors {
            open: Mutex::default(),
            returned: Condvar::new(),
            last_check_micros: AtomicI64::new(0),
            timed_out: AtomicI64::new(0),
            opened: AtomicI64::new(0),
            timeout_ms: AtomicI64::new(IDLE_MS),
        }
    }
}

impl Cursors {
    /// Stores a cursor with the memory that it holds, and returns its id.
    pub fn register(
        &self,
        (cursor, kept): (Cursor, RetainedBytes),
        owner: CursorOwner,
        idle: IdleTime,
        now_micros: i64,
    ) -> i64 {
        self.close_idle(now_micros);
        let mut open = self.open.lock();
        loop {
            let id = rand::random::<i64>() & i64::MAX;
            if id != 0 && !open.contains_key(&id) {
                let namespace = cursor.namespace.clone();
                let shown = Shown::of(&cursor, now_micros);
                let entry = Entry {
                    namespace,
                    owner,
                    cursor: Some(cursor),
                    shown,
                    last_used_micros: now_micros,
                    kept,
                    scratch: OperationScratch::of_current(),
                    no_timeout: idle == IdleTime::Unlimited,
                    killed: false,
                    is_borrowed: false,
                    closed: None,
                };
                open.insert(id, entry);
                self.opened.fetch_add(1, Ordering::Relaxed);
                return id;
            }
        }
    }

    /// Takes a cursor out for a batch. The memory of the cursor is charged to the thread's
    /// operation.
    ///
    /// # Errors
    /// 43 CursorNotFound, 143 CursorInUse, 13 Unauthorized for another namespace, 50736 to 50741
    /// for another session or transaction.
    pub fn take(
        &self,
        id: i64,
        namespace: &Namespace,
        asker: &CursorOwner,
        now_micros: i64,
    ) -> Result<(Cursor, RetainedBytes)> {
        self.close_idle(now_micros);
        let mut open = self.open.lock();
        while open.get(&id).is_some_and(|entry| entry.is_borrowed) {
            self.returned.wait(&mut open);
        }
        let entry = open
            .get_mut(&id)
            .filter(|entry| !entry.owner.is_over())
            .ok_or_else(|| not_found(id))?;
        if entry.namespace != *namespace {
            return Err(Error::new(
                ErrorCode::Unauthorized,
                format!(
                    "Requested getMore on namespace '{namespace}', but cursor was created for '{}'",
                    entry.namespace
                ),
            ));
        }
        entry.owner.check(id, asker)?;
        entry.take(id)
    }

    /// The namespace of an open cursor.
    pub fn namespace(&self, id: i64) -> Option<Namespace> {
        let open = self.open.lock();
        let entry = open.get(&id).filter(|entry| !entry.owner.is_over());
        entry.map(|entry| entry.namespace.clone())
    }

    /// Whether the next batch of this cursor may find documents, or has to wait for the cursor;
    /// false without the cursor.
    pub fn has_more_to_read(&self, id: i64, store: &Store) -> bool {
        let open = self.open.lock();
        let cursor = open.get(&id).map(|entry| entry.cursor.as_ref());
        cursor.is_some_and(|cursor| cursor.is_none_or(|cursor| cursor.has_more_to_read(store)))
    }

    /// Runs `work` on an idle cursor. A batch of the cursor waits meanwhile, and its time of use
    /// does not change.
    ///
    /// # Errors
    /// 43 CursorNotFound, 143 CursorInUse, errors of `work`, after which the cursor stays open.
    pub fn borrow<T>(&self, id: i64, work: impl FnOnce(&mut Cursor) -> Result<T>) -> Result<T> {
        let mut open = self.open.lock();
        let entry = open.get_mut(&id).filter(|entry| !entry.owner.is_over());
        let entry = entry.ok_or_else(|| not_found(id))?;
        let (cursor, kept) = entry.take(id)?;
        entry.is_borrowed = true;
        drop(open);
        let began = memory::mark();
        let mut borrowed = Borrowed { cursors: self, id, cursor: Some((cursor, kept)) };
        let result = match &mut borrowed.cursor {
            Some((cursor, _)) => work(cursor),
            None => Err(not_found(id)),
        };
        if let Some((_, kept)) = &mut borrowed.cursor {
            kept.grown_since(began, 0);
        }
        result
    }

    /// Puts a cursor back after a batch, with the memory that it holds. Returns false when it is
    /// exhausted or was killed; it is closed then.
    pub fn put_back(
        &self,
        id: i64,
        (cursor, kept): (Cursor, RetainedBytes),
        now_micros: i64,
    ) -> bool {
        let mut open = self.open.lock();
        let keep = open.get(&id).is_some_and(|entry| !entry.killed) && !cursor.is_done();
        if !keep {
            open.remove(&id);
            return false;
        }
        if let Some(entry) = open.get_mut(&id) {
            entry.shown.returned = cursor.returned;
            entry.cursor = Some(cursor);
            entry.last_used_micros = now_micros;
            entry.kept = kept;
        }
        true
    }

    /// Waits until a cursor is closed, on behalf of a batch that waits for data. The cursor counts
    /// as used meanwhile, so it has no timeout.
    pub async fn closed(&self, id: i64) {
        let (closed, wait) = oneshot::channel();
        match self.open.lock().get_mut(&id) {
            Some(entry) => entry.closed = Some(closed),
            None => return,
        }
        // It cannot be sent, so the wait ends when the sender is dropped.
        let _ = wait.await;
    }

    /// Closes the idle cursor that holds the most memory, if that is at least `least` bytes.
    /// Returns its namespace and the memory.
    pub fn close_largest(&self, least: usize) -> Option<(Namespace, usize)> {
        let mut open = self.open.lock();
        let idle = open.iter().filter(|(_, entry)| entry.cursor.is_some());
        let (id, bytes) =
            idle.map(|(id, entry)| (*id, entry.kept.bytes())).max_by_key(|(_, bytes)| *bytes)?;
        if bytes < least {
            return None;
        }
        open.remove(&id).map(|entry| (entry.namespace, bytes))
    }

    /// The memory of all idle cursors; cursors with little memory are not counted.
    pub fn kept_bytes(&self) -> usize {
        self.open.lock().values().map(|entry| entry.kept.bytes()).sum()
    }

    /// Drops a cursor whose batch failed.
    pub fn forget(&self, id: i64) {
        self.open.lock().remove(&id);
    }

    /// Closes cursors of any namespace whose owner passes `may`, which gets the namespace too.
    /// Others are reported as not found.
    pub fn kill(&self, ids: &[i64], may: impl Fn(&CursorOwner, &Namespace) -> bool) -> Killed {
        let mut open = self.open.lock();
        let mut result = Killed::default();
        for id in ids {
            match open.get_mut(id) {
                Some(entry) if !entry.owner.is_over() && may(&entry.owner, &entry.namespace) => {
                    if entry.cursor.is_some() {
                        open.remove(id);
                    } else {
                        entry.killed = true;
                    }
                    result.killed.push(*id);
                }
                _ => result.not_found.push(*id),
            }
        }
        result
    }

    /// Closes the cursors of the chosen sessions.
    pub fn kill_of(&self, chosen: impl Fn(SessionId) -> bool) {
        self.open.lock().retain(|_, entry| {
            if !entry.owner.session.is_some_and(&chosen) {
                return true;
            }
            entry.killed = true;
            entry.cursor.is_none()
        });
    }

    /// The numbers of cursors.
    pub fn counts(&self, now_micros: i64) -> CursorCounts {
        self.close_idle(now_micros);
        let mut open = self.open.lock();
        open.retain(|_, entry| !entry.owner.is_over());
        let count = |of: fn(&Entry) -> bool| open.values().filter(|entry| of(entry)).count() as i64;
        CursorCounts {
            open: open.len() as i64,
            no_timeout: count(|entry| entry.no_timeout),
            pinned: count(Entry::is_in_use),
            opened: self.opened.load(Ordering::Relaxed),
            timed_out: self.timed_out.load(Ordering::Relaxed),
        }
    }

    /// Closes cursors whose timeout is over. Checks at most every few seconds, however often it is
    /// called.
    pub fn close_idle(&self, now_micros: i64) {
        let last = self.last_check_micros.load(Ordering::Relaxed);
        if (now_micros - last).abs() < CHECK_INTERVAL_MICROS {
            return;
        }
        self.last_check_micros.store(now_micros, Ordering::Relaxed);
        let timeout_micros = self.timeout_ms.load(Ordering::Relaxed).saturating_mul(1000);
        let mut open = self.open.lock();
        open.retain(|_, entry| !entry.owner.is_over());
        let before = open.len();
        open.retain(|_, entry| {
            let idle_micros = now_micros - entry.last_used_micros;
            entry.no_timeout || entry.is_in_use() || idle_micros < timeout_micros
        });
        self.timed_out.fetch_add((before - open.len()) as i64, Ordering::Relaxed);
    }
}

fn not_found(id: i64) -> Error {
    Error::new(ErrorCode::CursorNotFound, format!("cursor id {id} not found"))
}

impl Entry {
    /// Whether a batch runs, or waits for data.
    fn is_in_use(&self) -> bool {
        self.cursor.is_none() || self.closed.as_ref().is_some_and(|closed| !closed.is_closed())
    }

    /// Takes the cursor out. Its memory and temporary files are charged to the thread's operation.
    ///
    /// # Errors
    /// 143 CursorInUse.
    fn take(&mut self, id: i64) -> Result<(Cursor, RetainedBytes)> {
        let cursor = self.cursor.take().ok_or_else(|| {
            Error::new(ErrorCode::CursorInUse, format!("cursor id {id} is already in use"))
        })?;
        memory::carry(self.kept.bytes());
        if let (Some(scratch), Some(op)) = (&self.scratch, current::current().op) {
            op.continue_scratch(scratch.clone());
        }
        Ok((cursor, self.kept))
    }
}

/// A borrowed cursor, which returns to the table however the work on it ends.
struct Borrowed<'c> {
    cursors: &'c Cursors,
    id: i64,
    cursor: Option<(Cursor, RetainedBytes)>,
}

impl Drop for Borrowed<'_> {
    fn drop(&mut self) {
        let mut open = self.cursors.open.lock();
        if open.get(&self.id).is_some_and(|entry| entry.killed) {
            open.remove(&self.id);
        } else if let (Some(entry), Some((cursor, kept))) =
            (open.get_mut(&self.id), self.cursor.take())
        {
            entry.cursor = Some(cursor);
            entry.kept = kept;
            entry.is_borrowed = false;
        }
        self.cursors.returned.notify_all();
    }
}

impl CursorOwner {
    /// Whether the cursor belongs to a transaction that has ended.
    fn is_over(&self) -> bool {
        self.transaction.as_ref().is_some_and(|(_, alive)| alive.strong_count() == 0)
    }

    /// Checks whether the cursor may be used by `asker`.
    ///
    /// # Errors
    /// 13 Unauthorized for another user; 50736 to 50741 for another session or transaction.
    fn check(&self, id: i64, asker: &CursorOwner) -> Result<()> {
        let refused = |code: i32, how: String| {
            Err(Error::new(
                ErrorCode(code),
                format!("Cannot run getMore on cursor {id}, which was {how}"),
            ))
        };
        if self.user != asker.user {
            let text = format!("cursor id {id} was not created by the authenticated user");
            return Err(Error::new(ErrorCode::Unauthorized, text));
        }
        match (self.session, asker.session) {
            (None, Some(asks)) => {
                return refused(50736, format!("not created in a session, in session {asks}"));
            }
            (Some(own), None) => {
                return refused(50737, format!("created in session {own}, without an lsid"));
            }
            (Some(own), Some(asks)) if own != asks => {
                return refused(50738, format!("created in session {own}, in session {asks}"));
            }
            _ => {}
        }
        let number = |owner: &CursorOwner| owner.transaction.as_ref().map(|(number, _)| *number);
        match (number(self), number(asker)) {
            (None, Some(asks)) => {
                refused(50739, format!("not created in a transaction, in transaction {asks}"))
            }
            (Some(own), None) => {
                refused(50740, format!("created in transaction {own}, without a txnNumber"))
            }
            (Some(own), Some(asks)) if own != asks => {
                refused(50741, format!("created in transaction {own}, in transaction {asks}"))
            }
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests;
