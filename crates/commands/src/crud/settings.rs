//! Query settings of a command.

use std::sync::Arc;

use mayfly_base::{Error, ErrorCode, Namespace, Result};
use mayfly_service::QuerySetting;
use mayfly_value::RawDoc;

use crate::context::CommandContext;

/// The settings that apply to a command on this namespace.
pub(crate) fn settings_of(
    ctx: &CommandContext<'_>,
    command: &str,
    ns: &Namespace,
    body: RawDoc<'_>,
) -> Option<Arc<QuerySetting>> {
    let settings = &ctx.service.query_settings;
    if settings.any() { settings.of(command, ns, body) } else { None }
}

/// The settings that apply to a command which is about to run.
///
/// # Errors
/// 411 QueryRejectedBySettings.
pub(super) fn settings_to_run(
    ctx: &CommandContext<'_>,
    command: &str,
    ns: &Namespace,
    body: RawDoc<'_>,
) -> Result<Option<Arc<QuerySetting>>> {
    match settings_of(ctx, command, ns, body) {
        Some(setting) if setting.reject => Err(Error::new(
            ErrorCode::QueryRejectedBySettings,
            "Query rejected by admin query settings",
        )),
        setting => Ok(setting),
    }
}
