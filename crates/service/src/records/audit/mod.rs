//! The audit log: changes of users, roles and definitions, logins, and refused commands. Manual:
//! "System Event Audit Messages".
//!
//! 1. The server sets a sink ([`Service::begin_audit`](crate::Service::begin_audit)). Without one,
//!    auditing costs one load per command ([`Audit::is_on`]).
//! 2. Commands, logins and the store's definitions create events
//!    ([`Service::audit`](crate::Service::audit)). An event is a document; the filter is a query
//!    over it.
//! 3. The sink writes the event before the reply is sent.
//!
//! If an event cannot be written, the server stops, as the reference does: the command of the event
//! gets no reply, no further command begins, and the server shuts down as after a SIGTERM. Only
//! what happens in that moment can be missing from the log.

mod config;

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

use mayfly_value::{DocBuf, RawDoc};
use parking_lot::RwLock;

use crate::clients::Connection;
use crate::process::LogRotation;

pub use config::AuditConfig;
pub(crate) use config::load;

/// The destination of events.
pub trait AuditSink: Send + Sync {
    /// Writes an event.
    ///
    /// # Errors
    /// The event was not written; the server must stop.
    fn write(&self, event: RawDoc<'_>) -> std::io::Result<()>;

    /// Rotates the file. Returns the new name of the old file, or `None` if no file was renamed.
    ///
    /// # Errors
    /// The reason why the file could not be rotated, as one line. Events are still written to the
    /// old file.
    fn rotate(&self, how: LogRotation) -> std::result::Result<Option<String>, String>;
}

/// The audit log of a server.
pub struct Audit {
    pub(crate) on: AtomicBool,
    pub(crate) sink: OnceLock<Box<dyn AuditSink>>,
    /// `auditAuthorizationSuccess`: whether allowed commands are recorded.
    pub authorization_success: AtomicBool,
    config: RwLock<Arc<AuditConfig>>,
    /// `auditLog.runtimeConfiguration`: whether commands may change the filter.
    pub(crate) runtime: AtomicBool,
    pub(crate) failed: AtomicBool,
    /// Whether the stop of the server was recorded.
    pub(crate) stop_noted: AtomicBool,
    /// The common part of the identifiers of all connections.
    identity: [u8; 16],
}

impl Default for Audit {
    fn default() -> Audit {
        Audit {
            on: AtomicBool::new(false),
            sink: OnceLock::new(),
            authorization_success: AtomicBool::new(false),
            config: RwLock::default(),
            runtime: AtomicBool::new(false),
            failed: AtomicBool::new(false),
            stop_noted: AtomicBool::new(false),
            identity: mayfly_value::bson::Uuid::new().bytes(),
        }
    }
}

/// Options of the audit log.
pub struct AuditOptions {
    /// The destination of events.
    pub sink: Box<dyn AuditSink>,
    /// Which events are recorded; `None` for all.
    pub filter: Option<DocBuf>,
    /// Whether commands may change the filter. If so, a stored configuration takes precedence.
    pub runtime: bool,
}

impl Audit {
    /// Whether there is an audit log.
    #[inline]
    pub fn is_on(&self) -> bool {
        self.on.load(Ordering::Relaxed)
    }

    /// Whether an event could not be written.
    pub fn has_failed(&self) -> bool {
        self.failed.load(Ordering::Relaxed)
    }

    /// Whether commands may change the filter.
    pub fn is_runtime(&self) -> bool {
        self.runtime.load(Ordering::Relaxed)
    }

    /// Whether allowed commands are recorded.
    pub fn has_authorization_success(&self) -> bool {
        self.authorization_success.load(Ordering::Relaxed)
    }

    /// The current configuration.
    pub fn config(&self) -> Arc<AuditConfig> {
        self.config.read().clone()
    }

    /// The configuration with the current value of the parameter `auditAuthorizationSuccess`, which
    /// can be set separately.
    pub fn effective_config(&self) -> AuditConfig {
        let mut config = (*self.config()).clone();
        config.authorization_success = self.has_authorization_success();
        config
    }

    /// The identifier of a connection; 0 selects the server itself.
    pub(crate) fn uuid(&self, connection_id: i64) -> [u8; 16] {
        let (mut uuid, id) = (self.identity, connection_id.to_be_bytes());
        // Bytes 6 and 8 hold the version and variant of the UUID.
        uuid[9..].iter_mut().zip(&id[1..]).for_each(|(byte, of_id)| *byte ^= of_id);
        uuid
    }
}

/// The originator of an event.
#[derive(Clone, Copy)]
pub enum Actor<'a> {
    /// The client of a connection.
    Client(&'a Connection),
    /// The server itself.
    System,
}
