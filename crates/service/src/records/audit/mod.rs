//! The audit log: who did what to users, roles and definitions, who logged in, and what was refused. Manual: "System Event Audit
//! Messages".
//!
//! 1. The server names a sink ([`Service::begin_audit`](crate::Service::begin_audit)); without one the cost of auditing is one load for each command ([`Audit::is_on`]).
//! 2. Commands, logins and the store's definitions make events ([`Service::audit`](crate::Service::audit)). An event is a document; the filter is a query
//!    over it.
//! 3. The sink writes it before the reply goes out.
//!
//! An event that cannot be written ends the server, as in the reference: the command that it is about gets no reply, no further
//! command begins, and the server stops as it does after a SIGTERM. What is not on record may have happened at most in that one
//! moment.

mod config;

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

use mayfly_value::{DocBuf, RawDoc};
use parking_lot::RwLock;

use crate::clients::Connection;
use crate::process::LogRotation;

pub use config::AuditConfig;
pub(crate) use config::load;

/// Where events go.
pub trait AuditSink: Send + Sync {
    /// Writes an event.
    ///
    /// # Errors
    /// The event is not on record, and the server must end.
    fn write(&self, event: RawDoc<'_>) -> std::io::Result<()>;

    /// Begins a new file; gives the new name of the old one, nothing where no file was renamed.
    ///
    /// # Errors
    /// One line that says why there is none. Events go on into the file that there was.
    fn rotate(&self, how: LogRotation) -> std::result::Result<Option<String>, String>;
}

/// The audit log of a server.
pub struct Audit {
    pub(crate) on: AtomicBool,
    pub(crate) sink: OnceLock<Box<dyn AuditSink>>,
    /// `auditAuthorizationSuccess`: commands that were allowed are events, too.
    pub authorization_success: AtomicBool,
    config: RwLock<Arc<AuditConfig>>,
    /// `auditLog.runtimeConfiguration`: commands may change the filter.
    pub(crate) runtime: AtomicBool,
    pub(crate) failed: AtomicBool,
    /// The stop of the server is on record.
    pub(crate) stop_noted: AtomicBool,
    /// What the identifiers of all connections have in common.
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

/// How a server audits.
pub struct AuditOptions {
    /// Where events go.
    pub sink: Box<dyn AuditSink>,
    /// Which events; nothing for all.
    pub filter: Option<DocBuf>,
    /// Whether commands may change the filter; then what is stored holds.
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

    /// Whether commands that were allowed are events.
    pub fn has_authorization_success(&self) -> bool {
        self.authorization_success.load(Ordering::Relaxed)
    }

    /// The configuration as it is now.
    pub fn config(&self) -> Arc<AuditConfig> {
        self.config.read().clone()
    }

    /// The configuration with the parameter `auditAuthorizationSuccess`, which can be set without it.
    pub fn effective_config(&self) -> AuditConfig {
        let mut config = (*self.config()).clone();
        config.authorization_success = self.has_authorization_success();
        config
    }

    /// The identifier of a connection; that of the server itself for 0.
    pub(crate) fn uuid(&self, connection_id: i64) -> [u8; 16] {
        let (mut uuid, id) = (self.identity, connection_id.to_be_bytes());
        // Bytes 6 and 8 say what kind of identifier it is.
        uuid[9..].iter_mut().zip(&id[1..]).for_each(|(byte, of_id)| *byte ^= of_id);
        uuid
    }
}

/// Who an event is about.
#[derive(Clone, Copy)]
pub enum Actor<'a> {
    /// The client of a connection.
    Client(&'a Connection),
    /// The server itself.
    System,
}
