//! The thread that ends expired transactions and cursors.

use std::sync::Arc;
use std::time::Duration;

use crate::server::Service;

/// The interval between two checks.
const CHECK_INTERVAL: Duration = Duration::from_secs(1);

impl Service {
    /// Starts a thread that ends expired transactions and cursors, once a second, until the server
    /// stops. It needs its own thread: all threads that run commands may be waiting for such a
    /// transaction, and on an idle server no command runs.
    ///
    /// # Errors
    /// The thread could not be created.
    pub fn watch_transactions(self: &Arc<Service>) -> std::io::Result<()> {
        let service = Arc::downgrade(self);
        let look = move || {
            while let Some(service) = service.upgrade().filter(|it| !it.shutdown.has_begun()) {
                let now_micros = service.clock.monotonic_micros();
                service.sessions.transactions.abort_expired(now_micros);
                service.cursors.close_idle(now_micros);
                drop(service);
                std::thread::sleep(CHECK_INTERVAL);
            }
        };
        std::thread::Builder::new().name("transactions".into()).spawn(look).map(drop)
    }
}
