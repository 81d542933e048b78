//! Interrupts scripts that run too long. The interpreter calls [`must_end`] about every ten
//! thousand steps.
//!
//! The deadline of a call is measured in real time even if a test uses a manual clock: only the
//! script runs during the call, so a manual clock would never reach it.

use std::cell::RefCell;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use mayfly_base::{Clock, Error, ErrorCode, SystemClock};
use mayfly_work::OpCtx;
use mayfly_work::current::wait;

/// The limits of a running call.
struct CallLimits {
    op: Option<Arc<OpCtx>>,
    clock: SystemClock,
    most_micros: i64,
    /// Why it was interrupted.
    ended: Option<Error>,
    /// Whether an allocation was refused.
    has_run_out: bool,
}

thread_local! {
    static WATCH: RefCell<Option<CallLimits>> = const { RefCell::new(None) };
}

/// Begins a call.
pub(crate) fn begin(op: Option<Arc<OpCtx>>, timeout_ms: i64) {
    let most_micros = timeout_ms.saturating_mul(1000);
    let watch =
        CallLimits { op, clock: SystemClock::new(), most_micros, ended: None, has_run_out: false };
    WATCH.set(Some(watch));
}

/// Ends the call; returns the reason if it was interrupted.
pub(crate) fn end() -> Option<Error> {
    WATCH.take().and_then(|watch| watch.ended)
}

/// Whether the call must end now.
pub(crate) fn must_end() -> bool {
    WATCH.with_borrow_mut(|watch| {
        let Some(watch) = watch else { return false };
        if watch.ended.is_none() {
            let late = watch.clock.monotonic_micros() >= watch.most_micros;
            watch.ended = match watch.op.as_ref().map(|op| op.check()) {
                Some(Err(error)) => Some(error),
                _ if late => {
                    Some(Error::new(ErrorCode::Interrupted, "JavaScript execution interrupted"))
                }
                _ => None,
            };
        }
        watch.ended.is_some()
    })
}

/// The interval between two checks of a call that waits.
const PAUSE_STEP_MS: f64 = 5.0;

/// Waits for a number of milliseconds, or until the call must end.
pub(crate) fn pause(milliseconds: f64) {
    wait(|| {
        let mut left = milliseconds;
        while left > 0.0 && !must_end() {
            let step = left.min(PAUSE_STEP_MS);
            thread::sleep(Duration::from_secs_f64(step / 1000.0));
            left -= step;
        }
    });
}

/// Records that an allocation was refused.
pub(crate) fn ran_out_of_memory() {
    WATCH.with_borrow_mut(|watch| {
        if let Some(watch) = watch {
            watch.has_run_out = true;
        }
    });
}

/// Whether an allocation of the call was refused.
pub(crate) fn has_run_out_of_memory() -> bool {
    WATCH.with_borrow(|watch| watch.as_ref().is_some_and(|watch| watch.has_run_out))
}
