//! What a policy has done since the server started, and what it may do next. It outlives a `collMod`.

use std::sync::atomic::{AtomicI64, Ordering};

use parking_lot::Mutex;

use crate::policy::TtlOptions;
use crate::policy::pace::{Pace, PaceLimits, Rate};

/// Long enough for a cause, short enough for a listing.
const LONGEST_ERROR: usize = 1000;

/// The running state of a policy.
#[derive(Default)]
pub struct PolicyRuntime {
    /// Documents that went by it.
    pub(crate) deleted: AtomicI64,
    /// Found in its range, but not due any more when it was their turn.
    pub(crate) refreshed: AtomicI64,
    /// Due, but held.
    pub(crate) held: AtomicI64,
    last_error: Mutex<Option<String>>,
    speed: Mutex<Speed>,
}

#[derive(Default)]
struct Speed {
    pace: Pace,
    rate: Rate,
    /// When it became a policy or was made shorter, on the monotonic clock.
    ramp_from_micros: Option<i64>,
}

impl PolicyRuntime {
    /// More may be due all at once from now on: begin slowly.
    pub(crate) fn begin_ramp(&self, now_micros: i64) {
        self.speed.lock().ramp_from_micros = Some(now_micros);
    }

    /// How many documents may go now; nothing when there is no limit.
    pub(crate) fn allowance(&self, options: &TtlOptions, now_micros: i64) -> Option<usize> {
        let mut speed = self.speed.lock();
        let limits = speed.limits(options, now_micros);
        speed.pace.allowance(limits, now_micros)
    }

    /// The limits of now.
    pub(crate) fn limits(&self, options: &TtlOptions, now_micros: i64) -> PaceLimits {
        self.speed.lock().limits(options, now_micros)
    }

    /// Documents went.
    pub(crate) fn spend(&self, docs: i64, bytes: i64, now_micros: i64) {
        let mut speed = self.speed.lock();
        speed.pace.spend(docs, bytes);
        speed.rate.add(docs, now_micros);
    }

    /// Documents in a second over about the last ten.
    pub(crate) fn rate(&self, now_micros: i64) -> f64 {
        self.speed.lock().rate.at(now_micros)
    }

    /// How the last visit ended; nothing when it ended well.
    pub(crate) fn set_error(&self, error: Option<&str>) {
        *self.last_error.lock() =
            error.map(|text| text.chars().take(LONGEST_ERROR).collect::<String>());
    }

    /// Why the last visit ended early.
    pub(crate) fn last_error(&self) -> Option<String> {
        self.last_error.lock().clone()
    }

    /// Documents that went by it since the start of the server.
    pub fn deleted(&self) -> i64 {
        self.deleted.load(Ordering::Relaxed)
    }
}

impl Speed {
    fn limits(&mut self, options: &TtlOptions, now_micros: i64) -> PaceLimits {
        PaceLimits::of(options, self.ramp_from_micros.map(|from| now_micros - from))
    }
}
