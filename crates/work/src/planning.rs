//! How the plan of an operation was chosen, and how long that took.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU32, AtomicU64, Ordering};

use crate::OpCtx;
use crate::current;

/// Whether planning is timed, in the whole process.
static TIMED: AtomicBool = AtomicBool::new(false);

/// From now on the time of planning is measured, for traces. Otherwise no clock is read for it.
pub fn time_plans() {
    TIMED.store(true, Ordering::Relaxed);
}

/// How an operation's plan was chosen, where there were several candidates.
#[derive(Debug, Default)]
pub struct Planning {
    /// By a trial of several plans.
    pub by_trial: AtomicBool,
    /// By the plan cache.
    pub from_cache: AtomicBool,
    /// Works that a cached plan was expected to need, and the works it had used when the operation
    /// discarded it for another trial; 0 when it was not replanned.
    pub replanned: (AtomicU64, AtomicU64),
    /// Leading digits of the query shape hash and of the plan cache key; 0 where there was only one
    /// plan.
    pub keys: (AtomicU32, AtomicU32),
    /// How long it took; see [`time_plans`].
    pub time: PlanTime,
}

impl Planning {
    /// The reason for replanning, in the reference's words; `None` without replanning.
    pub fn replan_reason(&self) -> Option<String> {
        let (expected, needed) =
            (self.replanned.0.load(Ordering::Relaxed), self.replanned.1.load(Ordering::Relaxed));
        (needed > 0).then(|| {
            format!(
                "cached plan was less efficient than expected: expected trial execution to take {expected} works but it \
                 took at least {needed} works"
            )
        })
    }
}

/// The time that an operation spent on choosing plans: one for most commands, and more for those
/// with several statements or stages that query.
#[derive(Debug, Default)]
pub struct PlanTime {
    /// When the first choice began, in monotonic microseconds.
    pub began: AtomicI64,
    /// The time of all choices together.
    pub micros: AtomicI64,
    /// The number of choices.
    pub count: AtomicU32,
}

/// Counts the time until it is dropped as planning of the thread's operation.
pub struct PlanTimer(Option<(Arc<OpCtx>, i64)>);

impl PlanTimer {
    /// Begins; does nothing if planning is not timed.
    pub fn begin() -> PlanTimer {
        if !TIMED.load(Ordering::Relaxed) {
            return PlanTimer(None);
        }
        let op = current::current().op;
        PlanTimer(op.map(|op| {
            let now = op.monotonic_micros();
            (op, now)
        }))
    }
}

impl Drop for PlanTimer {
    fn drop(&mut self) {
        let Some((op, began)) = &self.0 else { return };
        let time = &op.planning.time;
        if time.count.fetch_add(1, Ordering::Relaxed) == 0 {
            time.began.store(*began, Ordering::Relaxed);
        }
        time.micros.fetch_add(op.monotonic_micros() - began, Ordering::Relaxed);
    }
}
