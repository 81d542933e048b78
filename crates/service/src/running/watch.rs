//! The thread that ends transactions and cursors whose time is over.

use std::sync::Arc;
use std::time::Duration;

use crate::server::Service;

/// How often those are looked for whose time is over.
const LOOK_EVERY: Duration = Duration::from_secs(1);

impl Service {
    /// Begins to look, once a second, for transactions and cursors whose time is over, until the server ends. A thread of its own does
    /// it: threads that run commands may all be waiting for just such a transaction, and on a quiet server no command runs.
    ///
    /// # Errors
    /// There is no further thread.
    pub fn watch_transactions(self: &Arc<Service>) -> std::io::Result<()> {
        let service = Arc::downgrade(self);
        let look = move || {
            while let Some(service) = service.upgrade().filter(|it| !it.shutdown.is_requested()) {
                let now_micros = service.clock.monotonic_micros();
                service.sessions.transactions.abort_expired(now_micros);
                service.cursors.close_idle(now_micros);
                drop(service);
                std::thread::sleep(LOOK_EVERY);
            }
        };
        std::thread::Builder::new().name("transactions".into()).spawn(look).map(drop)
    }
}
