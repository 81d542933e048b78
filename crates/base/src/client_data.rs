//! Client data in the log: what [`ClientData`] wraps reads `###` while `redactClientLogData` is on. The switch is the process's, as
//! the log is.

use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};

static REDACTED: AtomicBool = AtomicBool::new(false);

/// What stands in the place of client data.
pub const HIDDEN: &str = "###";

/// Leaves client data out of the log, or not, from here on.
pub fn redact_client_data(redacted: bool) {
    REDACTED.store(redacted, Ordering::Relaxed);
}

/// Whether client data is left out of the log.
pub fn is_client_data_redacted() -> bool {
    REDACTED.load(Ordering::Relaxed)
}

/// Something in a line of the log that may hold values of documents.
pub struct ClientData<T>(pub T);

impl<T: fmt::Display> fmt::Display for ClientData<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if is_client_data_redacted() { f.write_str(HIDDEN) } else { self.0.fmt(f) }
    }
}
