//! Locks that keep a prune from deleting objects that a running backup counts on.
//!
//! A backup and a prune each write a lock object and then look for locks of the other: at least one
//! of them finds the other's lock, because object stores show an object once it is written. Backups
//! do not exclude each other. A running operation writes its lock again every ten minutes; a lock
//! that is two hours old belongs to an operation that crashed, and the next prune removes it.

use std::sync::Arc;

use jiff::Timestamp;
use mayfly_base::Clock;
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};

use crate::error::{Error, Result};
use crate::names::BackupId;
use crate::objects::{LOCKS, Objects};
use crate::sealed::{FORMAT, seal, unseal};

/// Time after which a running operation writes its lock again.
const REFRESH_MS: i64 = 10 * 60 * 1000;
/// Age at which a lock is no longer valid.
pub(crate) const EXPIRY_MS: i64 = 2 * 3600 * 1000;
/// Longest text of a lock in bytes.
const MAX_LOCK_BYTES: u64 = 4096;

/// Operations that lock a repository.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Operation {
    Backup,
    Prune,
}

impl Operation {
    fn name(self) -> &'static str {
        match self {
            Operation::Backup => "backup",
            Operation::Prune => "prune",
        }
    }

    fn is_excluded_by(self, other: Operation) -> bool {
        (self, other) != (Operation::Backup, Operation::Backup)
    }
}

#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct LockText {
    format: u64,
    operation: Operation,
    /// When the lock was written last, in milliseconds since 1970 and as RFC 3339.
    written_ms: i64,
    written: String,
}

impl LockText {
    fn new(operation: Operation, now_ms: i64) -> LockText {
        let written = Timestamp::from_millisecond(now_ms).unwrap_or_default().to_string();
        LockText { format: FORMAT, operation, written_ms: now_ms, written }
    }
}

/// A lock of a running operation. It stays in the repository until it is released or expires.
pub(crate) struct Lock {
    objects: Objects,
    clock: Arc<dyn Clock>,
    operation: Operation,
    name: String,
    written_ms: Mutex<i64>,
}

/// A lock that was found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct FoundLock {
    pub(crate) name: String,
    pub(crate) operation: Operation,
    pub(crate) is_expired: bool,
    written: String,
}

impl FoundLock {
    pub(crate) fn busy(&self) -> Error {
        let holder = format!("a {}, active at {}", self.operation.name(), self.written);
        Error::Busy { lock: self.name.clone(), holder }
    }
}

impl Lock {
    /// Locks the repository for an operation. A prune removes expired locks.
    ///
    /// # Errors
    /// [`Error::Busy`] if a running operation excludes this one, [`Error::Store`].
    pub(crate) async fn take(
        objects: &Objects,
        clock: &Arc<dyn Clock>,
        operation: Operation,
        id: &BackupId,
    ) -> Result<Lock> {
        let now_ms = clock.now_ms();
        let lock = Lock {
            objects: objects.clone(),
            clock: clock.clone(),
            operation,
            name: format!("{LOCKS}/{}-{id}.json", operation.name()),
            written_ms: Mutex::new(now_ms),
        };
        let text = seal(&lock.name, &LockText::new(operation, now_ms))?;
        objects.write_new(&lock.name, text.into()).await?;
        match lock.exclude_others(now_ms).await {
            Ok(()) => Ok(lock),
            Err(error) => Err(lock.release_after(error).await),
        }
    }

    async fn exclude_others(&self, now_ms: i64) -> Result<()> {
        for found in find(&self.objects, now_ms).await? {
            if found.name == self.name {
                continue;
            }
            if !found.is_expired && self.operation.is_excluded_by(found.operation) {
                return Err(found.busy());
            }
            if found.is_expired && self.operation == Operation::Prune {
                self.objects.delete(&found.name).await?;
            }
        }
        Ok(())
    }

    /// Writes the lock again if that is due. It is called after each piece of work.
    pub(crate) async fn keep(&self) -> Result<()> {
        let now_ms = self.clock.now_ms();
        if now_ms - *self.written_ms.lock() < REFRESH_MS {
            return Ok(());
        }
        self.check().await?;
        let text = seal(&self.name, &LockText::new(self.operation, now_ms))?;
        self.objects.write(&self.name, text.into()).await?;
        *self.written_ms.lock() = now_ms;
        Ok(())
    }

    /// # Errors
    /// [`Error::LockLost`] if a prune removed the lock.
    pub(crate) async fn check(&self) -> Result<()> {
        match self.objects.read(&self.name, MAX_LOCK_BYTES).await {
            Ok(_) => Ok(()),
            Err(Error::Missing { object }) => Err(Error::LockLost { lock: object }),
            Err(error) => Err(error),
        }
    }

    /// Releases the lock of an operation that failed, and returns its error. A lock that cannot be
    /// removed expires.
    pub(crate) async fn release_after(self, error: Error) -> Error {
        if let Err(error) = self.release().await {
            tracing::debug!(%error, "the lock of a failed operation could not be removed");
        }
        error
    }

    pub(crate) async fn release(self) -> Result<()> {
        self.objects.delete(&self.name).await
    }
}

/// All locks of the repository.
///
/// # Errors
/// [`Error::UnreadableLock`]: its operation may be running.
pub(crate) async fn find(objects: &Objects, now_ms: i64) -> Result<Vec<FoundLock>> {
    let mut found = Vec::new();
    for listed in objects.list(LOCKS).await? {
        let bytes = match objects.read(&listed.name, MAX_LOCK_BYTES).await {
            // Its operation has just ended.
            Err(Error::Missing { .. }) => continue,
            read => read?,
        };
        let LockText { operation, written_ms, written, .. } = unseal(&listed.name, &bytes)
            .map_err(|error| Error::UnreadableLock {
                lock: listed.name.clone(),
                why: error.to_string(),
            })?;
        let is_expired = now_ms.saturating_sub(written_ms) >= EXPIRY_MS;
        found.push(FoundLock { name: listed.name, operation, is_expired, written });
    }
    Ok(found)
}
