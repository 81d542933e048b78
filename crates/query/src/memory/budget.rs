//! The memory of an operation: one [`Budget`] for all stages and nested pipelines of a command and
//! its cursor.
//!
//! Each operator has a [`Share`] and reports from time to time how much memory it holds. An
//! operator must release memory when it exceeds its own limit, or when all operators together
//! exceed the limit of the operation, so that twenty stages do not use twenty times the limit of
//! one. An operator that may use files spills; others fail with the code of the reference.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use mayfly_base::{Error, ErrorCode, Result, limits};
use mayfly_work::spill::{Operator, SpillCounters, Spilled};
use mayfly_work::{OpCtx, memory};

/// Operators report changes of at least this many bytes.
const GRAIN_BYTES: usize = 256 << 10;
/// Memory that an operator may keep even if the operation's memory is used up.
const LEAST_BYTES: usize = 1 << 20;

/// Memory limits of operators and operations.
#[derive(Clone, Copy, Debug)]
pub struct MemoryLimits {
    operators: [usize; Operator::ALL.len()],
    /// Limit of all operators of an operation together.
    pub operation: usize,
    /// Limit of the array that a `$lookup` builds for one document.
    pub lookup_array: usize,
}

/// The default limits.
const DEFAULT_LIMITS: MemoryLimits = MemoryLimits {
    operators: [limits::MAX_BLOCKING_MEMORY_BYTES; Operator::ALL.len()],
    operation: limits::MAX_OPERATION_MEMORY_BYTES,
    lookup_array: limits::MAX_BLOCKING_MEMORY_BYTES,
};

impl Default for MemoryLimits {
    fn default() -> MemoryLimits {
        DEFAULT_LIMITS
    }
}

impl MemoryLimits {
    /// The limit of an operator.
    pub fn of(&self, operator: Operator) -> usize {
        self.operators[operator as usize]
    }

    /// Sets the limit of an operator.
    #[must_use]
    pub fn with(mut self, operator: Operator, bytes: usize) -> MemoryLimits {
        self.operators[operator as usize] = bytes;
        self
    }

    /// Sets the same limit for every operator.
    #[must_use]
    pub fn with_all(self, bytes: usize) -> MemoryLimits {
        MemoryLimits { operators: [bytes; Operator::ALL.len()], lookup_array: bytes, ..self }
    }
}

/// The memory of an operation, and the folder for spills. The default has the default limits and no
/// folder.
#[derive(Clone, Debug, Default)]
pub struct Budget(Option<Arc<Shared>>);

#[derive(Debug)]
struct Shared {
    limits: MemoryLimits,
    folder: Option<PathBuf>,
    used: AtomicUsize,
    spills: SpillCounters,
    room: Option<Room>,
}

/// Checks whether there is space for a number of bytes in files.
#[derive(Clone)]
pub struct Room(Arc<dyn Fn(u64) -> Result<()> + Send + Sync>);

impl Room {
    /// Creates a check that calls `ask`.
    pub fn new(ask: impl Fn(u64) -> Result<()> + Send + Sync + 'static) -> Room {
        Room(Arc::new(ask))
    }
}

impl fmt::Debug for Room {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Room")
    }
}

impl Budget {
    /// A budget with these limits. Without a folder operators cannot spill.
    pub fn new(limits: MemoryLimits, folder: Option<PathBuf>) -> Budget {
        Budget::within(limits, folder, None)
    }

    /// A budget with a check of the space for files.
    pub fn within(limits: MemoryLimits, folder: Option<PathBuf>, room: Option<Room>) -> Budget {
        let (used, spills) = (AtomicUsize::new(0), SpillCounters::default());
        Budget(Some(Arc::new(Shared { limits, folder, used, spills, room })))
    }

    /// Whether a command has set the budget.
    pub(crate) fn is_set(&self) -> bool {
        self.0.is_some()
    }

    /// The limits by operator, in bytes; the defaults if no command has set the budget.
    pub fn limits(&self) -> &MemoryLimits {
        self.0.as_ref().map_or(&DEFAULT_LIMITS, |shared| &shared.limits)
    }

    /// The folder for spills.
    pub fn folder(&self) -> Option<&Path> {
        self.0.as_ref()?.folder.as_deref()
    }

    /// What operators of this kind have spilled so far.
    pub fn spilled(&self, operator: Operator) -> Spilled {
        self.0.as_ref().map_or(Spilled::default(), |shared| shared.spills.of(operator))
    }

    /// The memory that all operators have reported.
    pub fn used(&self) -> usize {
        self.0.as_ref().map_or(0, |shared| shared.used.load(Ordering::Relaxed))
    }

    /// A share for one operator.
    pub(crate) fn share(&self, operator: Operator) -> Share {
        let limit = self.limits().of(operator);
        Share {
            budget: self.clone(),
            operator,
            limit,
            reported: 0,
            next: limit.min(GRAIN_BYTES),
            peak: 0,
            spilled: Spilled::default(),
        }
    }

    /// Counts spilled data, for the budget and for the running operation.
    pub(crate) fn count(&self, op: &OpCtx, operator: Operator, spilled: Spilled) {
        op.spills.add(operator, spilled);
        if let Some(shared) = &self.0 {
            shared.spills.add(operator, spilled);
        }
    }

    fn report(&self, before: usize, now: usize) -> usize {
        let Some(shared) = &self.0 else { return now };
        let more = now.wrapping_sub(before);
        shared.used.fetch_add(more, Ordering::Relaxed).wrapping_add(more)
    }
}

/// Memory and spills of an operator, for explain.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MemoryStats {
    /// The limit of the operator, in bytes.
    pub limit: usize,
    /// The greatest memory that the operator reported, in bytes.
    pub peak: usize,
    /// The spilled data.
    pub spilled: Spilled,
}

/// The memory of one operator.
#[derive(Debug)]
pub(crate) struct Share {
    budget: Budget,
    operator: Operator,
    limit: usize,
    /// Bytes that were reported to the budget.
    reported: usize,
    /// Up to this number of bytes nothing is reported.
    next: usize,
    peak: usize,
    spilled: Spilled,
}

impl Share {
    /// The limit of the operator, in bytes.
    pub(crate) fn limit(&self) -> usize {
        self.limit
    }

    /// Whether the operator may spill.
    pub(crate) fn may_spill(&self) -> bool {
        self.budget.folder().is_some()
    }

    /// The folder for spills; `None` if files are not allowed. Call it after [`Share::is_over`],
    /// which reports the memory that will be spilled.
    ///
    /// # Errors
    /// 14031 OutOfDiskSpace if there is no space for that memory.
    pub(crate) fn folder(&self) -> Result<Option<&Path>> {
        let Some(shared) = &self.budget.0 else { return Ok(None) };
        if let (Some(_), Some(Room(ask))) = (&shared.folder, &shared.room) {
            ask(self.reported as u64)?;
        }
        Ok(shared.folder.as_deref())
    }

    /// Whether the operator, which holds `bytes`, has to release memory.
    #[inline]
    pub(crate) fn is_over(&mut self, bytes: usize) -> bool {
        bytes > self.next && self.check_limits(bytes)
    }

    fn check_limits(&mut self, bytes: usize) -> bool {
        let used = self.set(bytes);
        let operation = self.budget.limits().operation;
        let least = LEAST_BYTES.min(operation / 16);
        // Memory of the operation outside of its operators counts as well. Above three quarters of
        // the limit little is left before the operation fails.
        let full = used > operation
            || memory::is_short()
            || memory::held() > operation / 4 * 3 && bytes > operation / 8;
        bytes > self.limit || full && bytes > least
    }

    /// Reports that the operator holds `bytes` now. Returns the memory of all operators.
    pub(crate) fn set(&mut self, bytes: usize) -> usize {
        let used = self.budget.report(self.reported, bytes);
        self.reported = bytes;
        self.peak = self.peak.max(bytes);
        self.next = self.limit.min(bytes.saturating_add(self.grain()));
        used
    }

    fn grain(&self) -> usize {
        GRAIN_BYTES.min(self.budget.limits().operation / 64)
    }

    /// Counts spilled data, for the share, the budget and the running operation.
    pub(crate) fn count(&mut self, op: &OpCtx, spilled: Spilled) {
        self.spilled.add(spilled);
        self.budget.count(op, self.operator, spilled);
    }

    /// The statistics of the operator.
    pub(crate) fn stats(&self) -> MemoryStats {
        MemoryStats { limit: self.limit, peak: self.peak, spilled: self.spilled }
    }

    /// The error of an operator that cannot spill: `own` if it exceeds its own limit, otherwise an
    /// error about the limit of the operation.
    pub(crate) fn failure(&self, own: impl FnOnce(usize) -> Error) -> Error {
        match self.reported > self.limit {
            true => own(self.limit),
            false => Error::new(
                ErrorCode::ExceededMemoryLimit,
                match memory::is_short() {
                    true => "the server has no memory left for the stages of the operation; see the parameter memoryLimitMB"
                        .to_owned(),
                    false => format!(
                        "the stages of the operation need more than {} bytes of memory together; see the parameter \
                         maxOperationMemoryBytes",
                        self.budget.limits().operation
                    ),
                },
            ),
        }
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        self.set(0);
    }
}

/// The error of an operator that may not use files.
pub(crate) fn no_disk_use(stage: &str) -> Error {
    let text = format!(
        "Exceeded memory limit for {stage}, but didn't allow external spilling; pass allowDiskUse:true to opt in"
    );
    Error::new(ErrorCode::QueryExceededMemoryLimitNoDiskUseAllowed, text)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn limits(own: usize, operation: usize) -> MemoryLimits {
        MemoryLimits { operation, ..MemoryLimits::default().with_all(own) }
    }

    #[test]
    fn an_operator_has_a_limit_of_its_own() {
        let budget = Budget::new(limits(1000, 1 << 30), None);
        let mut share = budget.share(Operator::Group);
        assert!(!share.is_over(1000) && share.is_over(1001));
        assert_eq!(budget.used(), 1001);
        let own = |limit: usize| Error::bad_value(limit.to_string());
        assert_eq!(share.failure(own).message(), "1000");
        drop(share);
        assert_eq!(budget.used(), 0);
    }

    #[test]
    fn operators_share_the_memory_of_their_operation() {
        let budget = Budget::new(limits(80 << 20, 100 << 20), None);
        let (mut first, mut second) = (budget.share(Operator::Sort), budget.share(Operator::Group));
        assert!(!first.is_over(70 << 20));
        assert!(!second.is_over(29 << 20) && second.is_over(31 << 20));
        let own = |_| Error::bad_value("own");
        assert_eq!(second.failure(own).code(), ErrorCode::ExceededMemoryLimit);
        // Each operator keeps a minimum, so that it can spill.
        second.set(0);
        assert!(!second.is_over(1 << 20));
        drop(first);
        assert!(!second.is_over(31 << 20));
    }

    #[test]
    fn a_full_disk_is_reported_before_a_write() {
        let full = Room::new(|_| Err(Error::new(ErrorCode::OutOfDiskSpace, "full")));
        let folder = Some(std::env::temp_dir());
        let budget = Budget::within(limits(1000, 1 << 30), folder.clone(), Some(full));
        let code = budget.share(Operator::Group).folder().unwrap_err().code();
        assert_eq!(code, ErrorCode::OutOfDiskSpace);
        let most = Room::new(|bytes| match bytes {
            ..2000 => Ok(()),
            _ => Err(Error::new(ErrorCode::OutOfDiskSpace, "full")),
        });
        let budget = Budget::within(limits(1000, 1 << 30), folder, Some(most));
        let mut share = budget.share(Operator::Group);
        assert!(share.is_over(1500) && share.folder().unwrap().is_some());
        assert!(share.is_over(2500) && share.folder().is_err());
    }

    #[test]
    fn small_amounts_are_not_reported() {
        let budget = Budget::new(limits(80 << 20, 100 << 20), None);
        let mut share = budget.share(Operator::Sort);
        assert!(!share.is_over(1000));
        assert_eq!(budget.used(), 0);
        assert!(!share.is_over(GRAIN_BYTES + 1));
        assert_eq!(budget.used(), GRAIN_BYTES + 1);
    }
}
