//! `setParameter`: changes server parameters at runtime.

use mayfly_auth::Action;
use mayfly_base::{Error, ErrorCode, Result};
use mayfly_service::parameters::find;
use mayfly_value::DocBuilder;

use crate::context::{Command, CommandContext};
use crate::request::generic::is_generic;
use crate::request::row::RowFlags;
use crate::request::{Needs, Request};

pub(crate) const ROW: Command = Command::new("setParameter", "Changes server parameters", run)
    .needs(Needs::Cluster(&[Action::SetParameter]))
    .flags(RowFlags::ADMIN_ONLY.union(RowFlags::LENIENT));

fn run(ctx: &CommandContext<'_>, request: &Request<'_>, doc: &mut DocBuilder) -> Result<()> {
    let named = || request.body.iter().skip(1).filter(|e| !is_generic(e.name_bytes()));
    // All names are checked before any value changes.
    let mut parameters = Vec::new();
    for element in named() {
        let name = element.name();
        let Some(parameter) = find(name) else {
            let text = format!(
                "attempt to set unrecognized parameter [{name}], use help:true to see options "
            );
            return Err(Error::new(ErrorCode::InvalidOptions, text));
        };
        parameters.push((parameter, element.value()));
    }
    let Some((first, _)) = parameters.first() else {
        let text = "no option found to set, use help:true to see options ";
        return Err(Error::new(ErrorCode::InvalidOptions, text));
    };
    first.append(ctx.service, "was", doc);
    for (parameter, value) in parameters {
        parameter.set_running(ctx.service, value)?;
        tracing::info!(parameter = parameter.name, value = ?value, "server parameter changed");
    }
    Ok(())
}
