//! A condition that tasks await without occupying a thread. A thread can wait for it, too.

use std::pin::pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::Context;
use std::thread;
use std::time::Duration;

use mayfly_work::thread_waker;
use tokio::sync::Notify;

/// Wakes tasks when a condition may have become true. Costs one load while no task waits.
#[derive(Default)]
pub(crate) struct Signal {
    waiting: AtomicUsize,
    notify: Notify,
}

/// Counts a waiting task until it is dropped.
struct Waiting<'s>(&'s Signal);

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.waiting.fetch_sub(1, Ordering::SeqCst);
    }
}

impl Signal {
    /// Wakes the waiting tasks. The caller has made the condition true before.
    pub(crate) fn notify(&self) {
        if self.waiting.load(Ordering::SeqCst) > 0 {
            self.notify.notify_waiters();
        }
    }

    /// Waits until `has` returns true: it is called at once, and again after each
    /// [`Signal::notify`].
    pub(crate) async fn until(&self, has: impl Fn() -> bool) {
        self.waiting.fetch_add(1, Ordering::SeqCst);
        let _waiting = Waiting(self);
        loop {
            let notified = self.notify.notified();
            tokio::pin!(notified);
            // No call of `notify` is missed after this point.
            notified.as_mut().enable();
            if has() {
                return;
            }
            notified.await;
        }
    }

    /// Blocks the thread until `has` returns true, at most for this time. It may return earlier.
    pub(crate) fn block_until(&self, has: impl Fn() -> bool, longest: Duration) {
        let until = pin!(self.until(has));
        if until.poll(&mut Context::from_waker(&thread_waker())).is_pending() {
            thread::park_timeout(longest);
        }
    }
}
