//! `setFeatureCompatibilityVersion`. Only one version exists; setting it again has no effect.

use mayfly_auth::Action;
use mayfly_base::{Error, ErrorCode, Result};
use mayfly_service::parameters::FEATURE_COMPATIBILITY_VERSION;
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
const ARGUMENTS: &[Argument] =
    &[Argument::flag("confirm"), Argument::any("fromConfigServer"), Argument::any("phase")];

fn run(_: &CommandContext<'_>, request: &Request<'_>, _: &mut DocBuilder) -> Result<()> {
    let fields = request.arguments()?;
    fields.bool("confirm")?;
    let version = match request.target() {
        RawValue::String(version) => version,
        other => return Err(fields.wrong("setFeatureCompatibilityVersion", other, "string")),
    };
    if version != FEATURE_COMPATIBILITY_VERSION {
        return Err(Error::new(
            ErrorCode(4926900),
            format!(
                "Invalid feature compatibility version value '{version}'; expected \
                 '{FEATURE_COMPATIBILITY_VERSION}'"
            ),
        ));
    }
    Ok(())
}
