//! The monitor's parameters, as atomics that `setParameter` changes at run time. Names, defaults
//! and bounds are in the parameter table of `service`; the expiry contract, section 5.1, defines
//! their meaning.

use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU8, AtomicU64, Ordering};

use parking_lot::{Condvar, Mutex};

/// Which rules apply where the manual and the 8.x servers differ.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TtlIndexRules {
    /// The rules of the manual (the default).
    Manual,
    /// The rules of 8.x servers.
    Mongod8,
}

/// The parameters of the TTL monitor.
pub struct TtlParameters {
    /// The parameter `ttlMonitorEnabled`: whether the monitor deletes. Hiding is unaffected.
    pub enabled: AtomicBool,
    /// `ttlMonitorSleepSecs`, at least 1. Set it through [`TtlParameters::set_sleep_secs`].
    sleep_secs: AtomicI64,
    /// The parameter `ttlMonitorBatchDeletes`: whether a write unit deletes more than one document.
    pub batch_deletes: AtomicBool,
    /// `ttlMonitorSubPassTargetSecs`, 0 = one sub-pass over all indexes.
    pub sub_pass_target_secs: AtomicI64,
    /// `ttlIndexDeleteTargetTimeMS`, 0 = unlimited.
    pub index_target_ms: AtomicI64,
    /// `ttlIndexDeleteTargetDocs`, 0 = unlimited.
    pub index_target_docs: AtomicI64,
    /// `batchedDeletesTargetBatchDocs`, 0 = unlimited. With the default, units grow while clients
    /// are not slowed down.
    pub batch_docs: AtomicI64,
    /// `batchedDeletesTargetBatchTimeMS`, 0 = unlimited.
    pub batch_ms: AtomicI64,
    /// `batchedDeletesTargetStagedDocBytes`, 0 = unlimited.
    pub batch_bytes: AtomicI64,
    /// `ttlClockJumpLimitSecs`, 0 = the clock is not checked.
    pub clock_jump_limit_secs: AtomicI64,
    /// `lastModifiedTTL`: an index on `_ts` is a last-modified policy.
    pub last_modified: AtomicBool,
    /// `slowms`: visits that take at least this many milliseconds are logged.
    pub slow_ms: AtomicI64,
    rules: AtomicU8,
    /// Wakes the monitor when the sleep changes or the store closes.
    pub(crate) changed: (Mutex<u64>, Condvar),
    /// The number of the last change when the monitor went to sleep.
    pub(crate) slept_after: AtomicU64,
}

/// The default of `batchedDeletesTargetBatchDocs`.
pub(crate) const BATCH_DOCS: i64 = 10;

impl Default for TtlParameters {
    fn default() -> TtlParameters {
        TtlParameters {
            enabled: AtomicBool::new(true),
            sleep_secs: AtomicI64::new(60),
            batch_deletes: AtomicBool::new(true),
            sub_pass_target_secs: AtomicI64::new(60),
            index_target_ms: AtomicI64::new(1000),
            index_target_docs: AtomicI64::new(50_000),
            batch_docs: AtomicI64::new(BATCH_DOCS),
            batch_ms: AtomicI64::new(5),
            batch_bytes: AtomicI64::new(2_097_152),
            clock_jump_limit_secs: AtomicI64::new(300),
            last_modified: AtomicBool::new(true),
            slow_ms: AtomicI64::new(100),
            rules: AtomicU8::new(0),
            changed: (Mutex::new(0), Condvar::new()),
            slept_after: AtomicU64::new(0),
        }
    }
}

impl TtlParameters {
    /// `ttlMonitorSleepSecs`, in seconds.
    pub fn sleep_secs(&self) -> i64 {
        self.sleep_secs.load(Ordering::Relaxed)
    }

    /// Sets `ttlMonitorSleepSecs`. It also applies to the present sleep.
    pub fn set_sleep_secs(&self, secs: i64) {
        self.sleep_secs.store(secs.max(1), Ordering::Relaxed);
        self.wake();
    }

    /// The value of `ttlIndexRules`.
    pub fn rules(&self) -> TtlIndexRules {
        match self.rules.load(Ordering::Relaxed) {
            0 => TtlIndexRules::Manual,
            _ => TtlIndexRules::Mongod8,
        }
    }

    /// Sets the parameter `ttlIndexRules`: which rules hold where versions of the reference differ.
    pub fn set_rules(&self, rules: TtlIndexRules) {
        self.rules.store(u8::from(rules == TtlIndexRules::Mongod8), Ordering::Relaxed);
    }

    /// Wakes the monitor; returns the number of this change.
    pub fn wake(&self) -> u64 {
        let mut changed = self.changed.0.lock();
        *changed += 1;
        self.changed.1.notify_all();
        *changed
    }

    /// Whether the monitor has handled a change completely and has slept since. Tests move the
    /// clock, wake the monitor, and wait for this before they check its effects.
    pub fn slept_after(&self, change: u64) -> bool {
        self.slept_after.load(Ordering::Acquire) >= change
    }
}
