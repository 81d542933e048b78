//! The keys of `auditLog`, which depend on each other.

use anyhow::{anyhow, bail};
use mayfly_mql::{Matcher, ParseContext};
use mayfly_value::DocBuf;
use mayfly_value::extjson;

use super::Layers;
use crate::audit::{AuditDestination, AuditFormat, AuditSettings};
use crate::failure::{Failure, FailureKind};

/// The settings of the audit log; `None` without a destination.
///
/// # Errors
/// Keys that contradict each other, an invalid filter.
pub(super) fn settings(layers: &Layers) -> anyhow::Result<Option<AuditSettings>> {
    parse(layers).map_err(|error| {
        error.context(Failure::new(
            FailureKind::Options,
            "cannot use the configuration",
            "correct the keys of auditLog (mayflydb --print-config shows their origin)",
        ))
    })
}

fn parse(layers: &Layers) -> anyhow::Result<Option<AuditSettings>> {
    let destination = layers.text("auditLog.destination")?;
    let format = match layers.text("auditLog.format")?.as_str() {
        "BSON" => AuditFormat::Bson,
        _ => AuditFormat::Json,
    };
    let (path, filter) = (layers.text("auditLog.path")?, layers.text("auditLog.filter")?);
    let runtime = layers.bool("auditLog.runtimeConfiguration")?;
    let destination = match destination.as_str() {
        "" if path.is_empty() && filter.is_empty() && !runtime => return Ok(None),
        "" => bail!("auditLog.destination is not set, but other keys of auditLog are"),
        "file" if path.is_empty() => {
            bail!("auditLog.path is not set, but auditLog.destination is file")
        }
        "file" => AuditDestination::File(path.into(), format),
        other if !path.is_empty() => {
            bail!("auditLog.path is set, but auditLog.destination is {other}")
        }
        other if format == AuditFormat::Bson => {
            bail!("auditLog.format is BSON, but auditLog.destination is {other}")
        }
        "syslog" => AuditDestination::Syslog,
        _ => AuditDestination::Console,
    };
    if runtime && !filter.is_empty() {
        bail!("auditLog.filter is set, but auditLog.runtimeConfiguration leaves it to commands");
    }
    let parameters = layers.parameters();
    if runtime && parameters.iter().any(|(name, _)| name == "auditAuthorizationSuccess") {
        bail!(
            "auditAuthorizationSuccess is set, but auditLog.runtimeConfiguration leaves it to commands"
        );
    }
    let filter = match filter.as_str() {
        "" => None,
        text => Some(read_filter(text).map_err(|why| anyhow!("auditLog.filter: {why}"))?),
    };
    Ok(Some(AuditSettings { destination, filter, runtime }))
}

/// Reads a query in extended JSON.
pub(super) fn read_filter(text: &str) -> Result<DocBuf, String> {
    let filter = extjson::parse_document(text).map_err(|error| error.to_string())?;
    match Matcher::parse(filter.as_doc(), &ParseContext::default()) {
        Ok(_) => Ok(filter),
        Err(error) => Err(error.message().to_owned()),
    }
}
