//! Waiting for something that others do, on a task instead of a thread.

use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::sync::Notify;

/// Told when something has happened; costs nobody anything while nobody waits.
#[derive(Default)]
pub(crate) struct Signal {
    waiting: AtomicUsize,
    notify: Notify,
}

/// One that waits, as long as it does.
struct Waiting<'s>(&'s Signal);

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.waiting.fetch_sub(1, Ordering::SeqCst);
    }
}

impl Signal {
    /// Something has happened, and whoever asks sees it already.
    pub(crate) fn tell(&self) {
        if self.waiting.load(Ordering::SeqCst) > 0 {
            self.notify.notify_waiters();
        }
    }

    /// Waits until it has happened: `has` is asked at once, and again whenever somebody tells.
    pub(crate) async fn until(&self, has: impl Fn() -> bool) {
        self.waiting.fetch_add(1, Ordering::SeqCst);
        let _waiting = Waiting(self);
        loop {
            let told = self.notify.notified();
            tokio::pin!(told);
            // From here on nothing that is told is missed.
            told.as_mut().enable();
            if has() {
                return;
            }
            told.await;
        }
    }
}
