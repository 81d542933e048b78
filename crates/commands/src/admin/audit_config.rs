//! `getAuditConfig` and `setAuditConfig`: the selection of audit events. `logApplicationMessage`: a
//! message in the audit log.

use mayfly_auth::Action;
use mayfly_base::{Error, ErrorCode, Result};
use mayfly_service::{Actor, AuditConfig};
use mayfly_value::arguments::Argument;
use mayfly_value::{DocBuilder, RawDoc, RawValue};

use crate::context::{Command, CommandContext};
use crate::request::row::{Audited, RowFlags, Writes};
use crate::request::{Fields, Needs, Request};

pub(super) const GET: Command =
    Command::new("getAuditConfig", "Returns the configuration of the audit log", run_get)
        .needs(Needs::Cluster(&[Action::AuditConfigure]))
        .since("5.0")
        .flags(RowFlags::ADMIN_ONLY);
pub(super) const SET: Command =
    Command::new("setAuditConfig", "Changes the configuration of the audit log", run_set)
        .arguments(ARGUMENTS)
        .needs(Needs::Cluster(&[Action::AuditConfigure]))
        .since("5.0")
        .flags(RowFlags::ADMIN_ONLY)
        .writes(Writes::Settings);
pub(super) const MESSAGE: Command =
    Command::new("logApplicationMessage", "Writes a message to the audit log", run_message)
        .needs(Needs::Cluster(&[Action::ApplicationMessage]))
        .audited(Audited::Message)
        .flags(RowFlags::ADMIN_ONLY);

/// The fields of a configuration.
pub(super) const ARGUMENTS: &[Argument] =
    &[Argument::document("filter"), Argument::flag("auditAuthorizationSuccess")];

/// Checks that there is an audit log.
///
/// # Errors
/// 344 AuditingNotEnabled.
pub(super) fn require_audit(ctx: &CommandContext<'_>) -> Result<()> {
    match ctx.service.audit.is_on() {
        true => Ok(()),
        false => Err(Error::new(ErrorCode::AuditingNotEnabled, "Auditing is not enabled")),
    }
}

/// Checks that commands may change the selection of audit events.
///
/// # Errors
/// 344 AuditingNotEnabled, 345 RuntimeAuditConfigurationNotEnabled.
fn require_runtime(ctx: &CommandContext<'_>) -> Result<()> {
    require_audit(ctx)?;
    match ctx.service.audit.is_runtime() {
        true => Ok(()),
        false => {
            let code = ErrorCode::RuntimeAuditConfigurationNotEnabled;
            let text = "Runtime audit configuration is not enabled (auditLog.runtimeConfiguration)";
            Err(Error::new(code, text))
        }
    }
}

fn run_get(ctx: &CommandContext<'_>, request: &Request<'_>, reply: &mut DocBuilder) -> Result<()> {
    request.arguments()?;
    require_audit(ctx)?;
    let config = ctx.service.audit.effective_config();
    reply.append("generation", RawValue::ObjectId(config.generation));
    config.append_to(reply);
    Ok(())
}

fn run_set(ctx: &CommandContext<'_>, request: &Request<'_>, _: &mut DocBuilder) -> Result<()> {
    let fields = request.arguments()?;
    set(ctx, &fields)?;
    Ok(())
}

/// Stores and applies a configuration from its fields.
///
/// # Errors
/// 344 AuditingNotEnabled, 345 RuntimeAuditConfigurationNotEnabled; errors of the fields, of the
/// filter and of the engine.
pub(super) fn set(ctx: &CommandContext<'_>, fields: &Fields<'_>) -> Result<()> {
    require_runtime(ctx)?;
    fields.required("filter")?;
    fields.required("auditAuthorizationSuccess")?;
    let filter = fields.document("filter")?.map(RawDoc::to_owned);
    let success = fields.bool("auditAuthorizationSuccess")? == Some(true);
    let mut config = AuditConfig::new(filter)?;
    config.authorization_success = success;
    ctx.service.store_audit_config(ctx.op, Actor::Client(ctx.connection), config)
}

/// The event is recorded by dispatch; without an audit log the command has no effect.
fn run_message(_: &CommandContext<'_>, request: &Request<'_>, _: &mut DocBuilder) -> Result<()> {
    let fields = request.arguments()?;
    match request.target() {
        RawValue::String(_) => Ok(()),
        other => Err(fields.wrong_or_missing(request.row.name, other, "string")),
    }
}
