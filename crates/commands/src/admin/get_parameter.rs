//! `getParameter`: one, several or all server parameters.

use mayfly_auth::Action;
use mayfly_base::{Error, ErrorCode, Result};
use mayfly_service::parameters::{Parameter, SetAt, TABLE, find};
use mayfly_value::{DocBuilder, RawValue};

use crate::context::{Command, CommandContext};
use crate::request::generic::is_generic;
use crate::request::row::RowFlags;
use crate::request::{Fields, Needs, Request};

pub(crate) const ROW: Command = Command::new("getParameter", "Returns server parameters", run)
    .needs(Needs::Cluster(&[Action::GetParameter]))
    .flags(RowFlags::ADMIN_ONLY.union(RowFlags::LENIENT));

fn run(ctx: &CommandContext<'_>, request: &Request<'_>, doc: &mut DocBuilder) -> Result<()> {
    let (mut all, mut details) = (false, false);
    match request.target() {
        RawValue::String("*") => all = true,
        RawValue::Document(options) => {
            let known = &["showDetails", "allParameters", "setAt"];
            let options = Fields::strict(options, "getParameter", known)?;
            all = options.bool("allParameters")? == Some(true);
            details = options.bool("showDetails")? == Some(true);
        }
        _ => {}
    }
    let mut found = all;
    if all {
        for parameter in TABLE {
            append(ctx, parameter, details, doc);
        }
    } else {
        for element in request.body.iter().skip(1).filter(|e| !is_generic(e.name_bytes())) {
            if let Some(parameter) = find(element.name()) {
                append(ctx, parameter, details, doc);
                found = true;
            }
        }
    }
    if found {
        return Ok(());
    }
    Err(Error::new(ErrorCode::InvalidOptions, "no option found to get"))
}

fn append(ctx: &CommandContext<'_>, parameter: &Parameter, details: bool, doc: &mut DocBuilder) {
    if !details {
        parameter.append(ctx.service, parameter.name, doc);
        return;
    }
    doc.start_document(parameter.name);
    parameter.append(ctx.service, "value", doc);
    doc.append("settableAtRuntime", parameter.set_at == SetAt::Both);
    doc.append("settableAtStartup", parameter.set_at != SetAt::Never);
    doc.end();
}
