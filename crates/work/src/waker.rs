//! Futures on a thread without a runtime.

use std::sync::Arc;
use std::task::{Wake, Waker};
use std::thread::{self, Thread};

struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

/// A waker that unparks this thread, which polls a future and parks in between.
pub fn thread_waker() -> Waker {
    Waker::from(Arc::new(Unpark(thread::current())))
}
