//! The keys of `systemLog` for the destination of the log, which depend on each other.

use std::path::PathBuf;

use anyhow::bail;

use super::Layers;
use crate::failure::{Failure, FailureKind};
use crate::logging::RotateMethod;

/// The destination of the log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LogDestination {
    /// Text on a terminal, JSON lines otherwise.
    StandardOutput,
    /// This file.
    File(PathBuf),
    /// The system's log, with this facility.
    Syslog(String),
}

/// The configuration of the log.
#[derive(Clone, Debug)]
pub struct LogSettings {
    /// Where lines of the log go.
    pub destination: LogDestination,
    /// Whether the existing file is appended to; otherwise it is renamed.
    pub append: bool,
    /// How files of the log and of the audit log are rotated.
    pub rotate: RotateMethod,
}

impl LogSettings {
    /// The path of the log file, if there is one.
    pub fn path(&self) -> Option<&PathBuf> {
        match &self.destination {
            LogDestination::File(path) => Some(path),
            LogDestination::StandardOutput | LogDestination::Syslog(_) => None,
        }
    }
}

/// The settings of the log.
///
/// # Errors
/// Keys that contradict each other.
pub(super) fn settings(layers: &Layers) -> anyhow::Result<LogSettings> {
    parse(layers).map_err(|error| {
        error.context(Failure::new(
            FailureKind::Options,
            "cannot use the configuration",
            "correct the keys of systemLog (mayflydb --print-config shows their origin)",
        ))
    })
}

fn parse(layers: &Layers) -> anyhow::Result<LogSettings> {
    let path = layers.text("systemLog.path")?;
    let destination = match layers.text("systemLog.destination")?.as_str() {
        "syslog" if !path.is_empty() => {
            bail!("systemLog.path is set, but systemLog.destination is syslog")
        }
        "syslog" => LogDestination::Syslog(layers.text("systemLog.syslogFacility")?),
        "file" if path.is_empty() => {
            bail!("systemLog.path is not set, but systemLog.destination is file")
        }
        _ if path.is_empty() => LogDestination::StandardOutput,
        _ => LogDestination::File(path.into()),
    };
    let append = layers.bool("systemLog.logAppend")?;
    let rotate = match layers.text("systemLog.logRotate")?.as_str() {
        "reopen" if !append => {
            bail!("systemLog.logRotate is reopen, but systemLog.logAppend is false")
        }
        "reopen" => RotateMethod::Reopen,
        _ => RotateMethod::Rename,
    };
    if layers.bool("processManagement.fork")? && destination == LogDestination::StandardOutput {
        bail!(
            "processManagement.fork is true, but the log goes to the standard output, which is closed after the start: \
             set systemLog.path"
        );
    }
    Ok(LogSettings { destination, append, rotate })
}
