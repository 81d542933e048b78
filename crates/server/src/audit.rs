//! The destinations of the audit log: a file of JSON lines or BSON documents, the standard output,
//! or the system's log.
//!
//! A file is opened for appending and written without a buffer, one write per event, so that the
//! event of an answered command is in the file even if the process is killed. Nothing is synced: a
//! power failure may lose the last events. An event that the system's log does not accept is lost,
//! and this is logged.

use std::fs::{File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context, anyhow};
use mayfly_base::Clock;
use mayfly_service::{AuditSink, LogRotation, Service, audit};
use mayfly_value::extjson::{self, Style};
use mayfly_value::{DocBuf, RawDoc};
use parking_lot::Mutex;

use crate::failure::{Failure, FailureKind};
use crate::logging::RotateMethod;
use crate::logging::rotate::{LogOutput, Out, Rotated};
use crate::logging::system_log::{self, DEFAULT_FACILITY, SystemLog};

/// The destination of events.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AuditDestination {
    /// This file.
    File(PathBuf, AuditFormat),
    /// The standard output.
    Console,
    /// The system's log.
    Syslog,
}

/// The format of events in a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AuditFormat {
    /// One line of JSON per event.
    Json,
    /// Concatenated BSON documents.
    Bson,
}

/// The configuration of the audit log.
#[derive(Clone, Debug)]
pub struct AuditSettings {
    /// The destination of events.
    pub destination: AuditDestination,
    /// Which events are recorded; `None` for all.
    pub filter: Option<DocBuf>,
    /// Whether commands may change the filter.
    pub runtime: bool,
}

/// Starts the audit log.
///
/// # Errors
/// A [`Failure`]: the file or the system's log cannot be written, or the stored filter cannot be
/// read.
pub(crate) fn begin(
    service: &Arc<Service>,
    settings: &AuditSettings,
    method: RotateMethod,
) -> anyhow::Result<()> {
    let sink = open(&settings.destination, method, &service.clock)?;
    let (filter, runtime) = (settings.filter.clone(), settings.runtime);
    service.begin_audit(audit::AuditOptions { sink, filter, runtime }).map_err(|error| {
        anyhow!("{}", error.message()).context(Failure::new(
            FailureKind::Options,
            "cannot begin the audit log",
            "correct auditLog.filter, or the document 'auditConfig' of config.clusterParameters",
        ))
    })?;
    match service.audit.has_failed() {
        true => Err(anyhow!("its first event could not be written").context(unwritable())),
        false => Ok(()),
    }
}

fn unwritable() -> Failure {
    Failure::new(
        FailureKind::General,
        "cannot write the audit log",
        "choose another with --auditPath, in a folder that exists and has free space",
    )
}

fn open(
    destination: &AuditDestination,
    method: RotateMethod,
    clock: &Arc<dyn Clock>,
) -> anyhow::Result<Box<dyn AuditSink>> {
    Ok(match destination {
        AuditDestination::File(path, format) => {
            let file = open_file(path, *format);
            let file = file.with_context(|| path.display().to_string()).with_context(unwritable)?;
            let out = Arc::new(Mutex::new(LogOutput::file(file)));
            let rotated = Rotated { path: path.clone(), method };
            Box::new(AuditFile { out, rotated, format: *format, clock: clock.clone() })
        }
        AuditDestination::Console => Box::new(Console),
        AuditDestination::Syslog => {
            Box::new(SystemLog::of_system(DEFAULT_FACILITY, clock.clone()).with_context(|| {
                let advice = "start it, or choose another destination with --auditDestination";
                Failure::new(FailureKind::General, system_log::TRIED, advice)
            })?)
        }
    })
}

/// Opens the file with access for its owner only. An incomplete line from a crash is terminated, so
/// that the next event gets its own line.
fn open_file(path: &Path, format: AuditFormat) -> io::Result<File> {
    let mut file =
        OpenOptions::new().create(true).append(true).read(true).mode(0o600).open(path)?;
    if format == AuditFormat::Json && file.seek(SeekFrom::End(0))? > 0 {
        let mut last = [0];
        file.seek(SeekFrom::End(-1))?;
        file.read_exact(&mut last)?;
        if last != *b"\n" {
            file.write_all(b"\n")?;
        }
    }
    Ok(file)
}

fn json(event: RawDoc<'_>) -> String {
    extjson::to_string(event, Style::First)
}

struct AuditFile {
    out: Out,
    rotated: Rotated,
    format: AuditFormat,
    clock: Arc<dyn Clock>,
}

impl AuditSink for AuditFile {
    fn write(&self, event: RawDoc<'_>) -> io::Result<()> {
        match self.format {
            AuditFormat::Json => self.out.lock().write_all(format!("{}\n", json(event)).as_bytes()),
            AuditFormat::Bson => self.out.lock().write_all(event.as_bytes()),
        }
    }

    fn rotate(&self, how: LogRotation) -> Result<Option<String>, String> {
        let open = |path: &Path| open_file(path, self.format);
        self.rotated
            .rotate(&self.out, how, &*self.clock, open)
            .map(|old| old.map(|old| old.display().to_string()))
            .map_err(|error| format!("{error:#}"))
    }
}

struct Console;

impl AuditSink for Console {
    fn write(&self, event: RawDoc<'_>) -> io::Result<()> {
        io::stdout().write_all(format!("{}\n", json(event)).as_bytes())
    }

    fn rotate(&self, _: LogRotation) -> Result<Option<String>, String> {
        Ok(None)
    }
}

impl AuditSink for SystemLog {
    fn write(&self, event: RawDoc<'_>) -> io::Result<()> {
        if let Err(error) = self.send(&json(event)) {
            tracing::error!(%error, "the system's log did not accept an audit event, which is lost");
        }
        Ok(())
    }

    fn rotate(&self, _: LogRotation) -> Result<Option<String>, String> {
        Ok(None)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_that_was_cut_off_is_ended() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("audit.json");
        std::fs::write(&path, "{\"atype\":\"au").unwrap();
        open_file(&path, AuditFormat::Json).unwrap().write_all(b"{}\n").unwrap();
        open_file(&path, AuditFormat::Json).unwrap().write_all(b"{}\n").unwrap();
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "{\"atype\":\"au\n{}\n{}\n");
    }
}
