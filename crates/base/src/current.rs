//! What a thread works on: for code that may run long and is handed neither an [`OpCtx`] nor parameters, because it stands
//! deep inside an expression. Scripts are the only such code.
//!
//! The dispatcher enters an operation for as long as its handler runs; [`enter`] gives a guard that restores what was before.

use std::cell::RefCell;
use std::marker::PhantomData;
use std::sync::Arc;

use crate::OpCtx;

/// What scripts may take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ScriptLimits {
    /// Whether there are scripts at all.
    pub enabled: bool,
    /// One call may take this long.
    pub timeout_ms: i64,
    /// A script's values may take this much memory.
    pub heap_bytes: usize,
}

impl Default for ScriptLimits {
    fn default() -> ScriptLimits {
        ScriptLimits { enabled: true, timeout_ms: 60_000, heap_bytes: 100 << 20 }
    }
}

/// What this thread works on.
#[derive(Clone, Default)]
pub struct Current {
    /// The operation; nothing outside of any.
    pub op: Option<Arc<OpCtx>>,
    /// What its scripts may take.
    pub scripts: ScriptLimits,
}

thread_local! {
    static CURRENT: RefCell<Current> = RefCell::new(Current::default());
}

/// Restores what was before; bound to its thread.
pub struct Entered {
    before: Current,
    _thread: PhantomData<*const ()>,
}

/// From now until the guard goes this thread works on this.
#[must_use]
pub fn enter(current: Current) -> Entered {
    let before = CURRENT.with(|place| place.replace(current));
    Entered { before, _thread: PhantomData }
}

/// What this thread works on.
pub fn current() -> Current {
    CURRENT.with(|place| place.borrow().clone())
}

impl Drop for Entered {
    fn drop(&mut self) {
        let before = std::mem::take(&mut self.before);
        // A thread that ends has nothing to restore.
        let _ = CURRENT.try_with(|place| place.replace(before));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ManualClock;

    #[test]
    fn a_guard_restores_what_was_before() {
        let op = OpCtx::detached(Arc::new(ManualClock::at_ms(0)));
        let scripts = ScriptLimits { timeout_ms: 5, ..ScriptLimits::default() };
        let outer = enter(Current { op: Some(op), scripts });
        drop(enter(Current::default()));
        assert_eq!(current().scripts.timeout_ms, 5);
        assert!(current().op.is_some());
        drop(outer);
        assert!(current().op.is_none());
    }
}
