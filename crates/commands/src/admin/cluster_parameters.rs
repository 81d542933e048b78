//! `getClusterParameter` and `setClusterParameter`: parameters that all members of a cluster share.
//! The table of parameters is [`CLUSTER_PARAMETERS`].

use mayfly_auth::Action;
use mayfly_base::{Error, ErrorCode, Result};
use mayfly_service::{CLUSTER_PARAMETERS, ClusterParameter};
use mayfly_value::{DocBuilder, RawElement, RawValue};

use super::audit_config;
use crate::context::{Command, CommandContext};
use crate::request::row::{Audited, RowFlags, Writes};
use crate::request::{Fields, Needs, Request};

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

/// The selection of audit events, which exists only on a server that keeps an audit log.
const AUDIT: &str = "auditConfig";

/// A parameter that a request names.
#[derive(Clone, Copy)]
enum Named {
    Audit,
    Other(&'static ClusterParameter),
}

impl Named {
    fn find(name: &str) -> Result<Named> {
        if name == AUDIT {
            return Ok(Named::Audit);
        }
        let found = CLUSTER_PARAMETERS.iter().find(|parameter| parameter.name == name);
        found.map(Named::Other).ok_or_else(|| {
            Error::new(ErrorCode::NoSuchKey, format!("Unknown server parameter: {name}"))
        })
    }

    fn all(ctx: &CommandContext<'_>) -> Vec<Named> {
        let audit = ctx.service.audit.is_on().then_some(Named::Audit);
        audit.into_iter().chain(CLUSTER_PARAMETERS.iter().map(Named::Other)).collect()
    }
}

fn run_get(ctx: &CommandContext<'_>, request: &Request<'_>, reply: &mut DocBuilder) -> Result<()> {
    let fields = Fields::new(request.body, "getClusterParameter");
    let expected = "[string, array]";
    let named = match request.target() {
        RawValue::String("*") => Named::all(ctx),
        RawValue::String(name) => vec![Named::find(name)?],
        RawValue::Array(names) => {
            let one = |name: RawElement<'_>| match name.value() {
                RawValue::String(name) => Named::find(name),
                other => Err(fields.wrong("getClusterParameter", other, "string")),
            };
            names.iter().map(one).collect::<Result<_>>()?
        }
        other => return Err(fields.wrong("getClusterParameter", other, expected)),
    };
    if named.is_empty() {
        return Err(Error::bad_value("getClusterParameter needs at least one name"));
    }
    if named.iter().any(|named| matches!(named, Named::Audit)) {
        audit_config::require_audit(ctx)?;
    }
    reply.start_array("clusterParameters");
    for named in named {
        reply.push_document();
        match named {
            Named::Audit => {
                let config = ctx.service.audit.effective_config();
                reply.append("_id", AUDIT);
                reply.append("clusterParameterTime", RawValue::Timestamp(config.time));
                config.append_to(reply);
            }
            Named::Other(parameter) => ctx.service.cluster_parameters.append(parameter, reply),
        }
        reply.end();
    }
    reply.end();
    Ok(())
}

fn run_set(ctx: &CommandContext<'_>, request: &Request<'_>, _: &mut DocBuilder) -> Result<()> {
    let fields = Fields::new(request.body, "setClusterParameter");
    let RawValue::Document(given) = request.target() else {
        return Err(fields.wrong_or_missing("setClusterParameter", request.target(), "object"));
    };
    let (Some(parameter), 1) = (given.iter().next(), given.iter().count()) else {
        let text = "setClusterParameter sets exactly one parameter";
        return Err(Error::new(ErrorCode::InvalidOptions, text));
    };
    let named = Named::find(parameter.name())?;
    let RawValue::Document(values) = parameter.value() else {
        return Err(fields.wrong(parameter.name(), parameter.value(), "object"));
    };
    match named {
        Named::Audit => {
            audit_config::set(ctx, &Fields::read(values, AUDIT, audit_config::ARGUMENTS)?)
        }
        Named::Other(parameter) => {
            Fields::read(values, parameter.name, parameter.fields)?;
            let (store, op) = (&ctx.service.store, ctx.op);
            ctx.service.cluster_parameters.set((store, op), parameter, values)
        }
    }
}
