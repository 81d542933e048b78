//! Accounting of the bytes of temporary files, for each operation with its cursor and for the whole
//! server.
//!
//! A file claims bytes before it is written ([`Claim::grow`]), and releases them when it is
//! dropped. A claim fails beyond the limit of its operation, beyond that of the server, and where
//! the disk has no room apart from the reserve for deletions. Each claim also checks the operation,
//! so that one that only writes files ends soon after its deadline.
//!
//! An operation finds its account by its thread ([`current`]); the files of a cursor count for all
//! of its batches ([`OperationScratch::of_current`], [`OpCtx::scratch`](crate::OpCtx::scratch)).
//! Files of the server itself, such as those of index builds, count for the server only
//! ([`FileOwner::Server`]).

use std::fmt;
use std::sync::Arc;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};

use mayfly_base::{Error, ErrorCode, Result};

use crate::current;

/// A claim reserves at most this many bytes ahead.
const CLAIM_AHEAD_BYTES: u64 = 4 << 20;
/// Without parameters an operation may use 1/4 of the disk, and all operations together 1/2.
const OPERATION_FRACTION: u64 = 4;
const SERVER_FRACTION: u64 = 2;
/// Upper bound of an operation's default limit.
const MAX_OPERATION_BYTES: u64 = 16 << 30;

/// Checks whether the disk has room for this many bytes more.
pub type AskRoom = Box<dyn Fn(u64) -> Result<()> + Send + Sync>;

/// The account of all temporary files of a server.
#[derive(Default)]
pub struct ScratchPool {
    used: AtomicU64,
    /// `maxScratchBytes`; 0 for a fraction of the disk.
    pub limit: AtomicI64,
    /// `maxOperationScratchBytes`; 0 for a fraction of the disk.
    pub operation_limit: AtomicI64,
    /// Size of the disk in bytes; 0 when unknown.
    disk_bytes: AtomicU64,
    room: OnceLock<AskRoom>,
    refused: AtomicU64,
}

impl fmt::Debug for ScratchPool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ScratchPool").field("used", &self.used).finish_non_exhaustive()
    }
}

impl ScratchPool {
    /// Sets the size of the disk and the check for free room. Only the first call has an effect.
    pub fn set_disk(&self, disk_bytes: u64, room: AskRoom) {
        if self.room.set(room).is_ok() {
            self.disk_bytes.store(disk_bytes, Ordering::Relaxed);
        }
    }

    /// Bytes of all temporary files now.
    pub fn used(&self) -> u64 {
        self.used.load(Ordering::Relaxed)
    }

    /// How many claims were refused.
    pub fn refused(&self) -> u64 {
        self.refused.load(Ordering::Relaxed)
    }

    fn disk_fraction(&self, fraction: u64) -> u64 {
        match self.disk_bytes.load(Ordering::Relaxed) {
            0 => u64::MAX,
            bytes => bytes / fraction,
        }
    }

    /// The limit for all files together.
    pub fn limit_bytes(&self) -> u64 {
        match u64::try_from(self.limit.load(Ordering::Relaxed)) {
            Ok(limit @ 1..) => limit,
            Ok(0) | Err(_) => self.disk_fraction(SERVER_FRACTION),
        }
    }

    /// The limit for the files of one operation.
    pub fn operation_limit_bytes(&self) -> u64 {
        match u64::try_from(self.operation_limit.load(Ordering::Relaxed)) {
            Ok(limit @ 1..) => limit,
            Ok(0) | Err(_) => self.disk_fraction(OPERATION_FRACTION).min(MAX_OPERATION_BYTES),
        }
    }

    fn take(&self, bytes: u64) -> Result<()> {
        let (limit, used) = (self.limit_bytes(), self.used.fetch_add(bytes, Ordering::Relaxed));
        if used.saturating_add(bytes) > limit {
            self.give_back(bytes);
            let text = format!(
                "the temporary files of all operations need more than {limit} bytes; see the parameter maxScratchBytes"
            );
            return Err(self.refusal(Error::new(ErrorCode::OutOfDiskSpace, text)));
        }
        match self.room.get().map_or(Ok(()), |room| room(bytes)) {
            Ok(()) => Ok(()),
            Err(error) => {
                self.give_back(bytes);
                Err(self.refusal(error))
            }
        }
    }

    fn give_back(&self, bytes: u64) {
        self.used.fetch_sub(bytes, Ordering::Relaxed);
    }

    fn refusal(&self, error: Error) -> Error {
        self.refused.fetch_add(1, Ordering::Relaxed);
        error
    }
}

/// The account of the temporary files of an operation with its cursor.
#[derive(Debug, Default)]
pub struct OperationScratch {
    pool: Arc<ScratchPool>,
    used: AtomicU64,
}

impl OperationScratch {
    /// An empty account of an operation of this server.
    pub fn new(pool: Arc<ScratchPool>) -> OperationScratch {
        OperationScratch { pool, used: AtomicU64::new(0) }
    }

    /// The account of the operation that this thread runs.
    pub fn of_current() -> Option<Arc<OperationScratch>> {
        current::current().op.map(|op| op.scratch())
    }

    /// Bytes of its files now.
    pub fn used(&self) -> u64 {
        self.used.load(Ordering::Relaxed)
    }

    fn take(&self, bytes: u64, is_limited: bool) -> Result<()> {
        let used = self.used.fetch_add(bytes, Ordering::Relaxed);
        let limit = self.pool.operation_limit_bytes();
        let taken = match is_limited && used.saturating_add(bytes) > limit {
            false => self.pool.take(bytes),
            true => {
                let text = format!(
                    "the operation needs more than {limit} bytes of temporary files; see the parameter maxOperationScratchBytes"
                );
                Err(self.pool.refusal(Error::new(ErrorCode::ExceededMemoryLimit, text)))
            }
        };
        if taken.is_err() {
            self.used.fetch_sub(bytes, Ordering::Relaxed);
        }
        taken
    }
}

/// Which limits apply to a temporary file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum FileOwner {
    /// The limits of the operation and of the server.
    #[default]
    Operation,
    /// The limit of the server only: a file of an index build.
    Server,
}

/// The bytes that one file has claimed.
#[derive(Debug)]
pub struct Claim {
    account: Option<Arc<OperationScratch>>,
    is_limited: bool,
    claimed: u64,
}

impl Claim {
    /// The claim of a new file of this thread's operation. A file outside of any operation has no
    /// limits.
    pub fn new(owner: FileOwner) -> Claim {
        let account = OperationScratch::of_current();
        Claim { account, is_limited: owner == FileOwner::Operation, claimed: 0 }
    }

    /// Claims bytes up to a total file size of `bytes`.
    ///
    /// # Errors
    /// 146 ExceededMemoryLimit beyond the limit of the operation, 14031 OutOfDiskSpace beyond that
    /// of the server or of the disk; errors of [`OpCtx::check`](crate::OpCtx::check).
    pub fn grow(&mut self, bytes: u64) -> Result<()> {
        if bytes <= self.claimed {
            return Ok(());
        }
        if let Some(op) = current::current().op {
            op.check()?;
        }
        if let Some(account) = &self.account {
            // Claims half of the size ahead, so that small files do not claim much more than they
            // have.
            let ahead = bytes.saturating_add((bytes / 2).min(CLAIM_AHEAD_BYTES));
            account.take(ahead - self.claimed, self.is_limited)?;
            self.claimed = ahead;
        }
        Ok(())
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        if let Some(account) = &self.account {
            account.used.fetch_sub(self.claimed, Ordering::Relaxed);
            account.pool.give_back(self.claimed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{OpInfo, OpRegistry};
    use mayfly_base::ManualClock;

    #[test]
    fn files_have_limits_of_their_operation_and_of_the_server() {
        let clock = Arc::new(ManualClock::at_ms(0));
        let registry = OpRegistry::new(clock.clone());
        let pool = registry.scratch().clone();
        pool.operation_limit.store(1000, Ordering::Relaxed);
        pool.limit.store(1500, Ordering::Relaxed);
        let code = |grown: Result<()>| grown.map_err(|error| error.code());
        let (one, other) = (registry.begin(OpInfo::default()), registry.begin(OpInfo::default()));
        let enter =
            |op: &Arc<crate::OpCtx>| current::enter(current::Current { op: Some(op.clone()) });
        let entered = enter(one.op());
        let mut first = Claim::new(FileOwner::Operation);
        first.grow(600).unwrap();
        assert_eq!((first.claimed, one.op().scratch().used(), pool.used()), (900, 900, 900));
        first.grow(900).unwrap();
        let mut second = Claim::new(FileOwner::Operation);
        assert_eq!(code(second.grow(200)), Err(ErrorCode::ExceededMemoryLimit));
        Claim::new(FileOwner::Server).grow(200).unwrap();
        assert_eq!(pool.used(), 900);
        drop(entered);
        let entered = enter(other.op());
        assert_eq!(
            code(Claim::new(FileOwner::Operation).grow(500)),
            Err(ErrorCode::OutOfDiskSpace)
        );
        // A later batch of a cursor that an earlier command opened.
        other.op().continue_scratch(one.op().scratch());
        assert_eq!(
            code(Claim::new(FileOwner::Operation).grow(100)),
            Err(ErrorCode::ExceededMemoryLimit)
        );
        drop(first);
        assert_eq!((one.op().scratch().used(), pool.used(), pool.refused()), (0, 0, 3));
        // A claim checks the operation.
        other.op().set_max_time_ms(5);
        clock.advance_ms(5);
        assert_eq!(
            code(Claim::new(FileOwner::Operation).grow(1)),
            Err(ErrorCode::MaxTimeMSExpired)
        );
        drop(entered);
        Claim::new(FileOwner::Operation).grow(u64::MAX / 4).unwrap();
    }

    #[test]
    fn without_parameters_the_disk_is_the_measure() {
        let pool = ScratchPool::default();
        assert_eq!(
            (pool.limit_bytes(), pool.operation_limit_bytes()),
            (u64::MAX, MAX_OPERATION_BYTES)
        );
        let full = || Error::new(ErrorCode::OutOfDiskSpace, "full");
        pool.set_disk(
            1 << 30,
            Box::new(move |bytes| if bytes < 500 { Ok(()) } else { Err(full()) }),
        );
        assert_eq!((pool.limit_bytes(), pool.operation_limit_bytes()), (1 << 29, 1 << 28));
        let account = OperationScratch::new(Arc::new(pool));
        assert!(account.take(400, true).is_ok() && account.take(500, true).is_err());
        assert_eq!((account.used(), account.pool.used()), (400, 400));
    }
}
