//! Creates, filters and writes the events of the audit log.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use mayfly_base::{ErrorCode, Result};
use mayfly_value::{DocBuilder, RawValue};
use mayfly_work::OpCtx;

use crate::clients::{Connection, LoggedIn};
use crate::process::LogRotation;
use crate::records::audit::load;
use crate::records::{Actor, AuditConfig, AuditOptions};
use crate::server::Service;

impl Service {
    /// Starts the audit log.
    ///
    /// # Errors
    /// A stored configuration cannot be read, or its filter is invalid.
    pub fn begin_audit(self: &Arc<Service>, options: AuditOptions) -> Result<()> {
        let mut config = AuditConfig::new(options.filter)?;
        config.authorization_success = self.audit.has_authorization_success();
        self.audit.runtime.store(options.runtime, Ordering::Relaxed);
        self.audit.install(config);
        if options.runtime
            && let Some(stored) = load(&self.store)?
        {
            self.audit.install(stored);
        }
        // Only a second server could set a second sink, and it has its own service.
        let _ = self.audit.sink.set(options.sink);
        let service = Arc::downgrade(self);
        self.store.on_definition(move |change| {
            if let Some(service) = service.upgrade() {
                service.audit_definition(change);
            }
        });
        self.audit.on.store(true, Ordering::Relaxed);
        self.audit(Actor::System, "startup", ErrorCode::OK, |param| {
            param.append("startupOptions", &self.command_line.parsed);
            param.start_array("initialClusterServerParameters");
            param.push_document().append("_id", "defaultMaxTimeMS");
            param.append("readOperations", self.cluster_parameters.max_time_ms()).end().end();
        });
        Ok(())
    }

    /// Writes an event if there is an audit log and its filter matches. `param` appends the
    /// details.
    pub fn audit(
        &self,
        actor: Actor<'_>,
        atype: &str,
        result: ErrorCode,
        param: impl FnOnce(&mut DocBuilder),
    ) {
        let Some(sink) = self.audit.sink.get() else { return };
        let connection = match actor {
            Actor::Client(connection) => Some(connection),
            Actor::System => None,
        };
        let user = connection.and_then(|connection| connection.access.user());
        let mut event = DocBuilder::new();
        event.append("atype", atype).append("ts", RawValue::Date(self.clock.now_ms()));
        let uuid = self.audit.uuid(connection.map_or(0, |connection| connection.id));
        event.append("uuid", RawValue::uuid(&uuid));
        append_address(&mut event, "local", connection.map(|connection| &*connection.local));
        append_address(&mut event, "remote", connection.map(|connection| &*connection.client));
        append_users(&mut event, "users", user.as_deref());
        let roles = user.as_ref().map(|user| user.roles.as_slice()).unwrap_or_default();
        mayfly_auth::RoleName::append_all(roles, "roles", &mut event);
        param(event.start_document("param"));
        event.end();
        event.append("result", result.0);
        let event = event.finish();
        if !self.audit.config().wants(event.as_doc()) {
            return;
        }
        if let Err(error) = sink.write(event.as_doc())
            && !self.audit.failed.swap(true, Ordering::Relaxed)
        {
            tracing::error!(%error, atype, "the audit event cannot be written; the server stops, see auditLog.path");
            self.shutdown.begin();
        }
    }

    /// Records the logout of a connection's user.
    pub fn audit_logout(&self, connection: &Connection, reason: &str) {
        let Some(user) = connection.access.user().filter(|_| self.audit.is_on()) else { return };
        self.audit(Actor::Client(connection), "logout", ErrorCode::OK, |param| {
            param.append("reason", reason);
            append_users(param, "initialUsers", Some(&user));
            append_users(param, "updatedUsers", None);
        });
    }

    /// Records the end of a connection.
    pub fn audit_closed(&self, connection: &Connection) {
        if !self.audit.is_on() {
            return;
        }
        if let Some(login) = connection.access.take_login() {
            let code = ErrorCode::AuthenticationAbandoned;
            self.audit_login(connection, (&login.name, login.mechanism), code);
        }
        self.audit_logout(connection, "Implicit logout due to client connection closure");
    }

    /// Records an attempt to log in.
    pub fn audit_login(
        &self,
        connection: &Connection,
        (name, mechanism): (&mayfly_auth::UserName, &str),
        result: ErrorCode,
    ) {
        self.audit(Actor::Client(connection), "authenticate", result, |param| {
            param.append("user", name.user.as_str()).append("db", name.db.as_str());
            param.append("mechanism", mechanism);
        });
    }

    /// Records that the server begins to stop, once.
    pub fn audit_stop(&self, actor: Actor<'_>) {
        if self.audit.is_on() && !self.audit.stop_noted.swap(true, Ordering::Relaxed) {
            self.audit(actor, "shutdown", ErrorCode::OK, |_| {});
        }
    }

    /// Rotates the file of the audit log.
    ///
    /// # Errors
    /// The reason why the file could not be rotated, as one line.
    pub fn rotate_audit(
        &self,
        actor: Actor<'_>,
        how: LogRotation,
    ) -> std::result::Result<(), String> {
        let Some(sink) = self.audit.sink.get() else { return Ok(()) };
        let rotated = sink.rotate(how);
        let code = rotated.as_ref().map_or(ErrorCode::FileRenameFailed, |_| ErrorCode::OK);
        self.audit(actor, "rotateLog", code, |param| {
            param.start_document("logRotationStatus");
            param.append("status", if rotated.is_ok() { "OK" } else { "Failed" });
            let old = rotated.as_ref().ok().and_then(Option::as_deref);
            param.append("rotatedLogPath", old.unwrap_or_default());
            param.start_array("errors");
            rotated.as_ref().err().into_iter().for_each(|why| {
                param.push(why.as_str());
            });
            param.end().end();
        });
        rotated.map(drop)
    }

    /// Stores and applies a configuration. The change itself is the last event under the old one.
    ///
    /// # Errors
    /// Errors of the engine; the old configuration stays in effect.
    pub fn store_audit_config(
        &self,
        op: &OpCtx,
        actor: Actor<'_>,
        mut config: AuditConfig,
    ) -> Result<()> {
        config.store(&self.store, op)?;
        let before = self.audit.effective_config();
        self.audit(actor, "auditConfigure", ErrorCode::OK, |param| {
            for (name, config) in [("previous", &before), ("config", &config)] {
                param.start_document(name);
                param.append("generation", RawValue::ObjectId(config.generation));
                config.append_to(param);
                param.end();
            }
        });
        self.audit.install(config);
        Ok(())
    }
}

/// Appends `{ ip, port }`, `{ unix }`, or `{ isSystemUser: true }` without a client.
fn append_address(event: &mut DocBuilder, name: &str, address: Option<&str>) {
    event.start_document(name);
    match address.map(|address| (address, address.parse::<SocketAddr>())) {
        Some((_, Ok(socket))) => {
            event.append("ip", socket.ip().to_canonical().to_string().as_str());
            event.append("port", i32::from(socket.port()));
        }
        Some((path, Err(_))) if path.starts_with('/') => {
            event.append("unix", path);
        }
        _ => {
            event.append("isSystemUser", true);
        }
    }
    event.end();
}

fn append_users(event: &mut DocBuilder, name: &str, user: Option<&LoggedIn>) {
    event.start_array(name);
    if let Some(user) = user {
        event.push_document().append("user", user.name.user.as_str());
        event.append("db", user.name.db.as_str()).end();
    }
    event.end();
}
