//! Open cursors between two batches.
//!
//! A batch takes its cursor out and puts it back, so that two batches never run on one cursor. Cursors nobody asks for are
//! closed after their time, at the next look at the registry.

use std::collections::HashMap;
use std::sync::Weak;
use std::sync::atomic::{AtomicI64, Ordering};

use mayfly_base::{Error, ErrorCode, Namespace, Result, limits};
use mayfly_query::Cursor;
use parking_lot::Mutex;

use crate::SessionId;

/// How often idle cursors are looked for, in milliseconds.
const REAP_EVERY_MS: i64 = 10_000;

/// All open cursors.
pub struct Cursors {
    open: Mutex<HashMap<i64, Entry>>,
    last_reap_ms: AtomicI64,
    timed_out: AtomicI64,
    /// `cursorTimeoutMillis`.
    pub timeout_ms: AtomicI64,
}

/// Whose cursor it is, or who asks for one.
#[derive(Clone, Debug, Default)]
pub struct CursorOwner {
    /// The session.
    pub session: Option<SessionId>,
    /// The transaction's number, and what is there as long as it is open.
    pub transaction: Option<(i64, Weak<()>)>,
}

struct Entry {
    namespace: Namespace,
    owner: CursorOwner,
    /// Nothing while a batch is being made.
    cursor: Option<Cursor>,
    last_used_ms: i64,
    no_timeout: bool,
    killed: bool,
}

/// What `killCursors` reports.
#[derive(Debug, Default)]
pub struct Killed {
    /// Closed.
    pub killed: Vec<i64>,
    /// There was no such cursor.
    pub not_found: Vec<i64>,
}

impl Default for Cursors {
    fn default() -> Cursors {
        Cursors {
            open: Mutex::default(),
            last_reap_ms: AtomicI64::new(0),
            timed_out: AtomicI64::new(0),
            timeout_ms: AtomicI64::new(limits::CURSOR_IDLE_MS),
        }
    }
}

impl Cursors {
    /// Keeps a cursor; gives the id that clients use.
    pub fn register(
        &self,
        cursor: Cursor,
        owner: CursorOwner,
        no_timeout: bool,
        now_ms: i64,
    ) -> i64 {
        self.reap(now_ms);
        let mut open = self.open.lock();
        loop {
            let id = rand::random::<i64>() & i64::MAX;
            if id != 0 && !open.contains_key(&id) {
                let namespace = cursor.namespace.clone();
                let cursor = Some(cursor);
                let last_used_ms = now_ms;
                let killed = false;
                let entry = Entry { namespace, owner, cursor, last_used_ms, no_timeout, killed };
                open.insert(id, entry);
                return id;
            }
        }
    }

    /// Takes a cursor out for a batch.
    ///
    /// # Errors
    /// 43 CursorNotFound, 143 CursorInUse, 13 Unauthorized for another namespace, 50736 to 50741 for another session or
    /// transaction.
    pub fn take(
        &self,
        id: i64,
        namespace: &Namespace,
        asker: &CursorOwner,
        now_ms: i64,
    ) -> Result<Cursor> {
        self.reap(now_ms);
        let mut open = self.open.lock();
        let not_found =
            || Error::new(ErrorCode::CursorNotFound, format!("cursor id {id} not found"));
        let entry =
            open.get_mut(&id).filter(|entry| !entry.owner.is_over()).ok_or_else(not_found)?;
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
        entry.cursor.take().ok_or_else(|| {
            Error::new(ErrorCode::CursorInUse, format!("cursor id {id} is already in use"))
        })
    }

    /// Puts a cursor back after a batch; false when it is over or was killed meanwhile, and is closed now.
    pub fn put_back(&self, id: i64, cursor: Cursor, now_ms: i64) -> bool {
        let mut open = self.open.lock();
        let keep = open.get(&id).is_some_and(|entry| !entry.killed) && !cursor.is_done();
        if !keep {
            open.remove(&id);
            return false;
        }
        if let Some(entry) = open.get_mut(&id) {
            entry.cursor = Some(cursor);
            entry.last_used_ms = now_ms;
        }
        true
    }

    /// Forgets a cursor whose batch failed.
    pub fn forget(&self, id: i64) {
        self.open.lock().remove(&id);
    }

    /// Closes cursors of a namespace.
    pub fn kill(&self, ids: &[i64], namespace: &Namespace) -> Killed {
        let mut open = self.open.lock();
        let mut result = Killed::default();
        for id in ids {
            match open.get_mut(id) {
                Some(entry) if entry.namespace == *namespace && !entry.owner.is_over() => {
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

    /// Closes the cursors of sessions.
    pub fn kill_of(&self, chosen: impl Fn(SessionId) -> bool) {
        self.open.lock().retain(|_, entry| {
            if !entry.owner.session.is_some_and(&chosen) {
                return true;
            }
            entry.killed = true;
            entry.cursor.is_none()
        });
    }

    /// Open cursors, and how many timed out since start.
    pub fn counts(&self) -> (i64, i64) {
        let mut open = self.open.lock();
        open.retain(|_, entry| !entry.owner.is_over());
        (open.len() as i64, self.timed_out.load(Ordering::Relaxed))
    }

    fn reap(&self, now_ms: i64) {
        let last = self.last_reap_ms.load(Ordering::Relaxed);
        if (now_ms - last).abs() < REAP_EVERY_MS {
            return;
        }
        self.last_reap_ms.store(now_ms, Ordering::Relaxed);
        let timeout = self.timeout_ms.load(Ordering::Relaxed);
        let mut open = self.open.lock();
        open.retain(|_, entry| !entry.owner.is_over());
        let before = open.len();
        open.retain(|_, entry| {
            entry.no_timeout || entry.cursor.is_none() || now_ms - entry.last_used_ms < timeout
        });
        self.timed_out.fetch_add((before - open.len()) as i64, Ordering::Relaxed);
    }
}

impl CursorOwner {
    /// Whether it belongs to a transaction that has ended.
    fn is_over(&self) -> bool {
        self.transaction.as_ref().is_some_and(|(_, alive)| alive.strong_count() == 0)
    }

    /// Whether who asks may have the cursor.
    ///
    /// # Errors
    /// 50736 to 50741.
    fn check(&self, id: i64, asker: &CursorOwner) -> Result<()> {
        let refused = |code: i32, how: String| {
            Err(Error::new(
                ErrorCode(code),
                format!("Cannot run getMore on cursor {id}, which was {how}"),
            ))
        };
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
