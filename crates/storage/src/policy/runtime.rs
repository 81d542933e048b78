//! Counters and pace of a policy since the start of the server. They survive a `collMod`.

use std::sync::atomic::{AtomicI64, Ordering};

use parking_lot::Mutex;

use crate::policy::TtlOptions;
use crate::policy::pace::{Pace, PaceLimits, Rate};

/// The most characters of an error that are kept.
const LONGEST_ERROR: usize = 1000;

/// The run-time state of a policy.
#[derive(Default)]
pub struct PolicyRuntime {
    /// Documents that the policy deleted.
    pub(crate) deleted: AtomicI64,
    /// Documents that were found by the policy, but were no longer due when they were about to be
    /// deleted.
    pub(crate) refreshed: AtomicI64,
    /// Documents that were due but held.
    pub(crate) held: AtomicI64,
    last_error: Mutex<Option<String>>,
    speed: Mutex<Speed>,
}

#[derive(Default)]
struct Speed {
    pace: Pace,
    rate: Rate,
    /// When the policy was created or shortened, on the monotonic clock.
    ramp_from_micros: Option<i64>,
}

impl PolicyRuntime {
    /// Restarts the ramp, because many documents may become due at once.
    pub(crate) fn begin_ramp(&self, now_micros: i64) {
        self.speed.lock().ramp_from_micros = Some(now_micros);
    }

    /// How many documents may be deleted now; `None` without a limit.
    pub(crate) fn allowance(&self, options: &TtlOptions, now_micros: i64) -> Option<usize> {
        let mut speed = self.speed.lock();
        let limits = speed.limits(options, now_micros);
        speed.pace.allowance(limits, now_micros)
    }

    pub(crate) fn limits(&self, options: &TtlOptions, now_micros: i64) -> PaceLimits {
        self.speed.lock().limits(options, now_micros)
    }

    /// Accounts for deleted documents.
    pub(crate) fn spend(&self, docs: i64, bytes: i64, now_micros: i64) {
        let mut speed = self.speed.lock();
        speed.pace.spend(docs, bytes);
        speed.rate.add(docs, now_micros);
    }

    /// Deletions in a second, averaged over about ten seconds.
    pub(crate) fn rate(&self, now_micros: i64) -> f64 {
        self.speed.lock().rate.at(now_micros)
    }

    /// Sets the error of the last visit; `None` after a successful one.
    pub(crate) fn set_error(&self, error: Option<&str>) {
        *self.last_error.lock() =
            error.map(|text| text.chars().take(LONGEST_ERROR).collect::<String>());
    }

    /// The error of the last visit.
    pub(crate) fn last_error(&self) -> Option<String> {
        self.last_error.lock().clone()
    }

    /// The number of documents that the policy deleted since the start of the server.
    pub fn deleted(&self) -> i64 {
        self.deleted.load(Ordering::Relaxed)
    }
}

impl Speed {
    fn limits(&mut self, options: &TtlOptions, now_micros: i64) -> PaceLimits {
        PaceLimits::of(options, self.ramp_from_micros.map(|from| now_micros - from))
    }
}
