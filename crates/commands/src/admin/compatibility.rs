//! `setFeatureCompatibilityVersion`. Manual: "setFeatureCompatibilityVersion".

use mayfly_auth::Action;
use mayfly_base::{Error, ErrorCode, Result};
use mayfly_service::FeatureCompatibility;
use mayfly_value::arguments::Argument;
use mayfly_value::{DocBuilder, RawValue};

use crate::context::{Command, CommandContext};
use crate::request::row::{RowFlags, Writes};
use crate::request::{Needs, Request};

pub(super) const ROW: Command =
    Command::new("setFeatureCompatibilityVersion", "Sets the version of the data's format", run)
        .arguments(ARGUMENTS)
        .needs(Needs::Cluster(&[Action::SetFeatureCompatibilityVersion]))
        .since("3.4")
        .flags(RowFlags::ADMIN_ONLY)
        .writes(Writes::Settings);
const ARGUMENTS: &[Argument] = &[
    Argument::flag("confirm").since("7.0"),
    Argument::any("fromConfigServer"),
    Argument::any("phase"),
];

fn run(ctx: &CommandContext<'_>, request: &Request<'_>, _: &mut DocBuilder) -> Result<()> {
    let fields = request.arguments()?;
    let is_confirmed = fields.bool("confirm")?.unwrap_or(false);
    let name = match request.target() {
        RawValue::String(name) => name,
        other => return Err(fields.wrong_or_missing(request.row.name, other, "string")),
    };
    let Some(version) = FeatureCompatibility::find(name) else {
        let valid = FeatureCompatibility::names();
        let text =
            format!("Invalid feature compatibility version value '{name}'; expected {valid}");
        return Err(Error::new(ErrorCode(4926900), text));
    };
    let compatibility = &ctx.service.feature_compatibility;
    if version == compatibility.current() {
        return Ok(());
    }
    if !is_confirmed {
        let text = format!(
            "The feature compatibility version changes to {version} only with 'confirm: true'"
        );
        return Err(Error::new(ErrorCode(7369100), text));
    }
    compatibility.set(&ctx.service.store, ctx.op, version)?;
    tracing::info!(version, "the feature compatibility version was changed");
    Ok(())
}
