//! Redaction of client data in the log. A value wrapped in [`ClientData`] is printed as `###` while
//! `redactClientLogData` is on. The setting is global to the process, as the log is.

use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};

static REDACTED: AtomicBool = AtomicBool::new(false);

/// The replacement text for redacted client data.
pub const HIDDEN: &str = "###";

/// Turns redaction on or off for all log lines written from now on.
pub fn redact_client_data(redacted: bool) {
    REDACTED.store(redacted, Ordering::Relaxed);
}

/// Whether client data is redacted.
pub fn is_client_data_redacted() -> bool {
    REDACTED.load(Ordering::Relaxed)
}

/// A part of a log line that may contain values of documents.
pub struct ClientData<T>(pub T);

impl<T: fmt::Display> fmt::Display for ClientData<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if is_client_data_redacted() { f.write_str(HIDDEN) } else { self.0.fmt(f) }
    }
}
