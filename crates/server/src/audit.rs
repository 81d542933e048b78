//! Where the audit log goes: a file of JSON lines or BSON documents, the standard output, or the system's log.
//!
//! A file is opened for appending and written without a buffer, one call for each event, so that whoever got a reply finds its event
//! in the file even when the process is killed. Nothing is synced: a power cut may take the last events. The system's log is asked
//! once more over a fresh socket; what it does not take is lost, and the log says so.

use std::fs::{File, OpenOptions};
use std::io::{self, ErrorKind, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::{Context, anyhow};
use mayfly_base::Clock;
use mayfly_service::{AuditSink, Service, audit};
use mayfly_value::bson::DateTime;
use mayfly_value::extjson::{self, Style};
use mayfly_value::{DocBuf, RawDoc};
use parking_lot::Mutex;

use crate::failure::{Failure, FailureKind};
use crate::logging::rotate::{self, Out};

/// Where the system's log listens.
const SYSTEM_LOG: &str = "/dev/log";
/// How long the system's log may take to accept an event.
const SYSTEM_LOG_WAIT: Duration = Duration::from_secs(1);
/// How long while it takes none.
const STUCK_WAIT: Duration = Duration::from_millis(1);
/// Facility "user", severity "informational". RFC 3164, section 4.1.1.
const PRIORITY: u8 = 8 + 6;

/// Where events go.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AuditDestination {
    /// This file.
    File(PathBuf, AuditFormat),
    /// The standard output.
    Console,
    /// The system's log.
    Syslog,
}

/// How events look in a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AuditFormat {
    /// A line of JSON each.
    Json,
    /// BSON documents, one after the other.
    Bson,
}

/// What the configuration says about the audit log.
#[derive(Clone, Debug)]
pub struct AuditSettings {
    /// Where events go.
    pub destination: AuditDestination,
    /// Which events; nothing for all.
    pub filter: Option<DocBuf>,
    /// Commands may change the filter.
    pub runtime: bool,
}

/// Begins to audit.
///
/// # Errors
/// A [`Failure`]: the file or the system's log cannot be written, or what is stored of the filter cannot be read.
pub(crate) fn begin(
    service: &Arc<Service>,
    settings: &AuditSettings,
    clock: &Arc<dyn Clock>,
) -> anyhow::Result<()> {
    let sink = open(&settings.destination, clock)?;
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
        "choose another with --auditPath, in a folder that exists and has room",
    )
}

fn open(
    destination: &AuditDestination,
    clock: &Arc<dyn Clock>,
) -> anyhow::Result<Box<dyn AuditSink>> {
    Ok(match destination {
        AuditDestination::File(path, format) => {
            let file = open_file(path, *format);
            let file = file.with_context(|| path.display().to_string()).with_context(unwritable)?;
            let out: Out = Arc::new(Mutex::new(Box::new(file)));
            let (path, clock) = (path.clone(), clock.clone());
            Box::new(AuditFile { out, path, format: *format, clock })
        }
        AuditDestination::Console => Box::new(Console),
        AuditDestination::Syslog => Box::new(
            SystemLog::connect(Path::new(SYSTEM_LOG), clock.clone()).with_context(|| {
                let tried = format!("cannot reach the system's log at {SYSTEM_LOG}");
                let advice = "start it, or choose another destination with --auditDestination";
                Failure::new(FailureKind::General, tried, advice)
            })?,
        ),
    })
}

/// Nobody else on the machine may read it. A line that a crash cut off is ended, so that the next event has one of its own.
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
    path: PathBuf,
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

    fn rotate(&self) -> Result<Option<String>, String> {
        let open = |path: &Path| open_file(path, self.format);
        rotate::rotate(&self.out, &self.path, &*self.clock, open)
            .map(|old| Some(old.display().to_string()))
            .map_err(|error| format!("{error:#}"))
    }
}

struct Console;

impl AuditSink for Console {
    fn write(&self, event: RawDoc<'_>) -> io::Result<()> {
        io::stdout().write_all(format!("{}\n", json(event)).as_bytes())
    }

    fn rotate(&self) -> Result<Option<String>, String> {
        Ok(None)
    }
}

struct SystemLog {
    path: PathBuf,
    socket: Mutex<UnixDatagram>,
    /// It has not taken the last event in time, and is given less until it takes one.
    is_stuck: AtomicBool,
    clock: Arc<dyn Clock>,
}

impl SystemLog {
    fn connect(path: &Path, clock: Arc<dyn Clock>) -> io::Result<SystemLog> {
        let socket = Mutex::new(SystemLog::socket(path)?);
        Ok(SystemLog { path: path.to_owned(), socket, is_stuck: AtomicBool::new(false), clock })
    }

    fn socket(path: &Path) -> io::Result<UnixDatagram> {
        let socket = UnixDatagram::unbound()?;
        socket.connect(path)?;
        socket.set_write_timeout(Some(SYSTEM_LOG_WAIT))?;
        Ok(socket)
    }

    fn send(&self, message: &[u8]) -> io::Result<()> {
        let mut socket = self.socket.lock();
        let sent = socket.send(message).or_else(|error| match error.kind() {
            ErrorKind::WouldBlock | ErrorKind::TimedOut => Err(error),
            // It was perhaps started anew.
            _ => {
                *socket = SystemLog::socket(&self.path)?;
                socket.send(message)
            }
        });
        let stuck = sent.as_ref().is_err_and(|error| error.kind() == ErrorKind::WouldBlock);
        if self.is_stuck.swap(stuck, Ordering::Relaxed) != stuck {
            let wait = if stuck { STUCK_WAIT } else { SYSTEM_LOG_WAIT };
            socket.set_write_timeout(Some(wait))?;
        }
        sent.map(drop)
    }

    /// Time, program and process before the event. RFC 3164, section 4.1; without a name of the host, which local daemons add.
    fn message(&self, event: RawDoc<'_>) -> String {
        let now = DateTime::from_millis(self.clock.now_ms());
        // `2027-01-15T08:00:00Z`
        let text = now.try_to_rfc3339_string().unwrap_or_default();
        let part = |from: usize, to: usize| text.get(from..to).unwrap_or_default();
        let months =
            ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];
        let month = part(5, 7).parse::<usize>().ok().and_then(|month| months.get(month - 1));
        let (month, day) = (month.unwrap_or(&"Jan"), part(8, 10).trim_start_matches('0'));
        let (time, process) = (part(11, 19), std::process::id());
        format!("<{PRIORITY}>{month} {day:>2} {time} mayflydb[{process}]: {}", json(event))
    }
}

impl AuditSink for SystemLog {
    fn write(&self, event: RawDoc<'_>) -> io::Result<()> {
        if let Err(error) = self.send(self.message(event).as_bytes()) {
            tracing::error!(%error, "the system's log did not take an audit event, which is lost");
        }
        Ok(())
    }

    fn rotate(&self) -> Result<Option<String>, String> {
        Ok(None)
    }
}

#[cfg(test)]
mod tests {
    use mayfly_base::ManualClock;
    use mayfly_value::bson::doc;

    use super::*;

    #[test]
    fn the_systems_log_gets_datagrams_in_its_form_also_after_it_was_started_anew() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("log");
        let clock: Arc<dyn Clock> = Arc::new(ManualClock::at_ms(1_800_000_000_000));
        assert!(SystemLog::connect(&path, clock.clone()).is_err());
        let daemon = UnixDatagram::bind(&path).unwrap();
        let log = SystemLog::connect(&path, clock).unwrap();
        let event = DocBuf::from_bson(&doc! { "atype": "x\ny", "result": 0 });
        let mut buffer = [0; 1024];
        let mut received = |daemon: &UnixDatagram| {
            let length = daemon.recv(&mut buffer).unwrap();
            String::from_utf8(buffer[..length].to_vec()).unwrap()
        };
        let process = std::process::id();
        let expected =
            format!(r#"<14>Jan 15 08:00:00 mayflydb[{process}]: {{"atype":"x\ny","result":0}}"#);
        log.write(event.as_doc()).unwrap();
        assert_eq!(received(&daemon), expected);
        drop(daemon);
        std::fs::remove_file(&path).unwrap();
        // Lost, and no reason to stop.
        log.write(event.as_doc()).unwrap();
        let daemon = UnixDatagram::bind(&path).unwrap();
        log.write(event.as_doc()).unwrap();
        assert_eq!(received(&daemon), expected);
        // One that takes nothing keeps nobody for long, and what it takes later arrives.
        while !log.is_stuck.load(Ordering::Relaxed) {
            log.write(event.as_doc()).unwrap();
        }
        received(&daemon);
        log.write(event.as_doc()).unwrap();
        assert!(!log.is_stuck.load(Ordering::Relaxed));
    }

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
