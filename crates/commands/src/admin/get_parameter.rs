//! `getParameter`: one, several or all server parameters.

use mayfly_auth::Action;
use mayfly_base::{Error, ErrorCode, Result};
use mayfly_service::parameters::{Parameter, SetAt, TABLE, find};
use mayfly_value::arguments::Argument;
use mayfly_value::{DocBuilder, RawValue};

use crate::context::{Command, CommandContext};
use crate::request::generic::is_generic;
use crate::request::row::RowFlags;
use crate::request::{Fields, Needs, Request};

pub(crate) const ROW: Command = Command::new("getParameter", "Returns server parameters", run)
    .needs(Needs::Cluster(&[Action::GetParameter]))
    .flags(RowFlags::ADMIN_ONLY.union(RowFlags::LENIENT));

/// The fields of a document as the command's value.
const OPTIONS: &[Argument] = &[
    Argument::flag("showDetails"),
    Argument::flag("allParameters"),
    Argument::choice("setAt", &["startup", "runtime"]),
];

fn run(ctx: &CommandContext<'_>, request: &Request<'_>, doc: &mut DocBuilder) -> Result<()> {
    let (mut all, mut details, mut set_at) = (false, false, None);
    match request.target() {
        RawValue::String("*") => all = true,
        RawValue::Document(options) => {
            let options = Fields::read(options, "getParameter", OPTIONS)?;
            all = options.bool("allParameters")? == Some(true);
            details = options.bool("showDetails")? == Some(true);
            set_at = options.string("setAt")?;
        }
        _ => {}
    }
    let is_shown = |parameter: &Parameter| match set_at {
        None => true,
        Some("startup") => parameter.set_at != SetAt::Never,
        Some(_) => parameter.set_at == SetAt::Both,
    };
    let mut found = all;
    if all {
        for parameter in TABLE.iter().filter(|parameter| is_shown(parameter)) {
            append(ctx, parameter, details, doc);
        }
    } else {
        for element in request.body.iter().skip(1).filter(|e| !is_generic(e.name_bytes())) {
            if let Some(parameter) = find(element.name()).filter(|parameter| is_shown(parameter)) {
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
