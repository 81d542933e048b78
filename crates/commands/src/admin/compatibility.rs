//! `setFeatureCompatibilityVersion`. There is one version; setting it again changes nothing.

use mayfly_auth::Action;
use mayfly_base::{Error, ErrorCode, Result};
use mayfly_service::parameters::FEATURE_COMPATIBILITY_VERSION;
use mayfly_value::{DocBuilder, RawValue};

use crate::crud::wrote;
use crate::{CommandContext, Needs, Request, Row, RowFlags};

pub(super) const ROW: Row =
    Row::new("setFeatureCompatibilityVersion", "Sets the version of the data's format", run)
        .needs(Needs::Cluster(&[Action::SetFeatureCompatibilityVersion]))
        .since("3.4")
        .flags(RowFlags::ADMIN_ONLY.and(RowFlags::WRITE_CONCERN));

fn run(ctx: &mut CommandContext<'_>, request: &Request<'_>, _: &mut DocBuilder) -> Result<()> {
    let fields = request.fields(&["confirm", "fromConfigServer", "phase"])?;
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
    wrote(ctx, request);
    Ok(())
}
