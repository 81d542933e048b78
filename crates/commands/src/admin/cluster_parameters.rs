//! `getClusterParameter` and `setClusterParameter`: parameters that all members of a cluster share.
//! This server has those parameters of the reference that affect it.

use mayfly_auth::Action;
use mayfly_base::{Error, ErrorCode, Result};
use mayfly_value::{DocBuilder, RawDoc, RawValue};

use super::audit_config;
use crate::context::{Command, CommandContext};
use crate::request::row::{Audited, RowFlags, Writes};
use crate::request::{Fields, Needs, Request};
use mayfly_value::arguments::convert::whole_number;

pub(super) const GET: Command =
    Command::new("getClusterParameter", "Returns cluster parameters", run_get)
        .needs(Needs::Cluster(&[Action::GetClusterParameter]))
        .audited(Audited::Value("requestedClusterServerParameters"))
        .since("6.0")
        .flags(RowFlags::ADMIN_ONLY.union(RowFlags::LENIENT));
pub(super) const SET: Command =
    Command::new("setClusterParameter", "Sets a cluster parameter", run_set)
        .needs(Needs::Cluster(&[Action::SetClusterParameter]))
        .audited(Audited::Value("updatedClusterServerParameter"))
        .since("6.0")
        .flags(RowFlags::ADMIN_ONLY.union(RowFlags::LENIENT))
        .writes(Writes::Settings);

/// The supported parameters.
const NAMES: &[&str] = &[AUDIT, MAX_TIME];
/// The selection of audit events.
const AUDIT: &str = "auditConfig";
/// The time limit in milliseconds of reads that set none.
const MAX_TIME: &str = "defaultMaxTimeMS";

fn known(name: &str) -> Result<&'static str> {
    NAMES.iter().find(|known| **known == name).copied().ok_or_else(|| {
        Error::new(ErrorCode::NoSuchKey, format!("Unknown server parameter: {name}"))
    })
}

fn run_get(ctx: &CommandContext<'_>, request: &Request<'_>, reply: &mut DocBuilder) -> Result<()> {
    let fields = Fields::new(request.body, "getClusterParameter");
    let expected = "[string, array]";
    let names = match request.target() {
        RawValue::String("*") => {
            let auditing = ctx.service.audit.is_on();
            NAMES.iter().copied().filter(|name| *name != AUDIT || auditing).collect()
        }
        RawValue::String(name) => vec![known(name)?],
        RawValue::Array(names) => {
            let one = |name: mayfly_value::RawElement<'_>| match name.value() {
                RawValue::String(name) => known(name),
                other => Err(fields.wrong("getClusterParameter", other, "string")),
            };
            names.iter().map(one).collect::<Result<_>>()?
        }
        other => return Err(fields.wrong("getClusterParameter", other, expected)),
    };
    if names.is_empty() {
        return Err(Error::bad_value("getClusterParameter needs at least one name"));
    }
    let defaults = &ctx.service.defaults;
    if names.contains(&AUDIT) {
        audit_config::require_audit(ctx)?;
    }
    reply.start_array("clusterParameters");
    for name in names {
        reply.push_document().append("_id", name);
        if name == AUDIT {
            let config = ctx.service.audit.effective_config();
            reply.append("clusterParameterTime", RawValue::Timestamp(config.time));
            config.append_to(reply);
            reply.end();
            continue;
        }
        let time = RawValue::Timestamp(defaults.max_time_set_at());
        reply.append("clusterParameterTime", time);
        reply.append("readOperations", defaults.max_time_ms()).end();
    }
    reply.end();
    Ok(())
}

fn run_set(ctx: &CommandContext<'_>, request: &Request<'_>, _: &mut DocBuilder) -> Result<()> {
    let fields = Fields::new(request.body, "setClusterParameter");
    let RawValue::Document(given) = request.target() else {
        return Err(fields.wrong("setClusterParameter", request.target(), "object"));
    };
    let (Some(parameter), 1) = (given.iter().next(), given.iter().count()) else {
        let text = "setClusterParameter sets exactly one parameter";
        return Err(Error::new(ErrorCode::InvalidOptions, text));
    };
    let name = known(parameter.name())?;
    let RawValue::Document(values) = parameter.value() else {
        return Err(fields.wrong(name, parameter.value(), "object"));
    };
    if name == AUDIT {
        let known = &["filter", "auditAuthorizationSuccess"];
        audit_config::set(ctx, &Fields::strict(values, AUDIT, known)?)?;
    } else if let Some(ms) = read_operations(values)? {
        ctx.service.defaults.keep_max_time(&ctx.service.store, ctx.op, ms)?;
    }
    Ok(())
}

/// The new `readOperations`; null removes the limit, a missing field keeps it.
fn read_operations(values: RawDoc<'_>) -> Result<Option<i64>> {
    let fields = Fields::strict(values, MAX_TIME, &["readOperations"])?;
    match values.get("readOperations") {
        None => Ok(None),
        Some(RawValue::Null) => Ok(Some(0)),
        Some(value) => match whole_number(value) {
            Some(ms) if ms >= 0 => Ok(Some(ms)),
            Some(ms) => Err(Error::bad_value(format!(
                "BSON field '{MAX_TIME}.readOperations' value must be >= 0, actual value '{ms}'"
            ))),
            None => Err(fields.wrong("readOperations", value, "[long, int, decimal, double]")),
        },
    }
}
