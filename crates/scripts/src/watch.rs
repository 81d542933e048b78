//! Ends scripts that run too long: the interpreter asks every ten thousand steps or so.
//!
//! The deadline of a single call is real time even where a test moves the clock by hand: nothing but the script goes on while
//! it runs, so it would never come.

use std::cell::RefCell;
use std::sync::Arc;

use mayfly_base::{Clock, Error, ErrorCode, SystemClock};
use mayfly_work::OpCtx;

/// What a running call is held to.
struct Watch {
    op: Option<Arc<OpCtx>>,
    clock: SystemClock,
    most_micros: i64,
    /// Why it had to end.
    ended: Option<Error>,
    /// It has asked for more memory than it may have.
    has_run_out: bool,
}

thread_local! {
    static WATCH: RefCell<Option<Watch>> = const { RefCell::new(None) };
}

/// A call begins now.
pub(crate) fn begin(op: Option<Arc<OpCtx>>, timeout_ms: i64) {
    let most_micros = timeout_ms.saturating_mul(1000);
    let watch =
        Watch { op, clock: SystemClock::new(), most_micros, ended: None, has_run_out: false };
    WATCH.set(Some(watch));
}

/// The call is over; tells why it had to be ended, when it had to.
pub(crate) fn end() -> Option<Error> {
    WATCH.take().and_then(|watch| watch.ended)
}

/// Whether the call has to end now.
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

/// The call was refused memory.
pub(crate) fn ran_out_of_memory() {
    WATCH.with_borrow_mut(|watch| {
        if let Some(watch) = watch {
            watch.has_run_out = true;
        }
    });
}

/// Whether the call was ever refused memory.
pub(crate) fn has_run_out_of_memory() -> bool {
    WATCH.with_borrow(|watch| watch.as_ref().is_some_and(|watch| watch.has_run_out))
}
