//! The system's log: sends datagrams to its daemon, in the format of RFC 3164.
//!
//! A message that the daemon does not accept is sent once more over a new socket, and is lost if
//! that fails.
//!
//! This is not the crate `syslog` (7.0): it uses the system's clock instead of the server's, does
//! not reconnect after a restart of the daemon, and waits without a limit for a daemon that accepts
//! nothing.

use std::io::{self, ErrorKind, Write};
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::Context;
use mayfly_base::Clock;
use mayfly_value::bson::DateTime;
use parking_lot::Mutex;

/// The socket of the daemon.
const SOCKET: &str = "/dev/log";
/// The action that fails without a daemon, as part of a sentence.
pub(crate) const TRIED: &str = "cannot reach the system's log at /dev/log";
/// The timeout of a message.
const WAIT: Duration = Duration::from_secs(1);
/// The timeout while the daemon accepts no messages.
const STUCK_WAIT: Duration = Duration::from_millis(1);
/// Severity "informational". RFC 3164, section 4.1.1.
const INFORMATIONAL: u8 = 6;

/// Facilities by name; the index of a name is its number. RFC 3164, section 4.1.1.
pub const FACILITIES: &[&str] = &[
    "kern", "user", "mail", "daemon", "auth", "syslog", "lpr", "news", "uucp", "cron", "authpriv",
    "ftp", "ntp", "audit", "alert", "clock", "local0", "local1", "local2", "local3", "local4",
    "local5", "local6", "local7",
];
/// The default facility of programs.
pub(crate) const DEFAULT_FACILITY: &str = "user";

/// A connection to the daemon.
pub(crate) struct SystemLog {
    path: PathBuf,
    priority: u8,
    socket: Mutex<UnixDatagram>,
    /// Whether the last message timed out; the timeout is then shorter until a message is accepted.
    is_stuck: AtomicBool,
    clock: Arc<dyn Clock>,
}

impl SystemLog {
    /// Connects to the daemon of this machine.
    ///
    /// # Errors
    /// No daemon listens there.
    pub(crate) fn of_system(facility: &str, clock: Arc<dyn Clock>) -> anyhow::Result<SystemLog> {
        SystemLog::connect(Path::new(SOCKET), facility, clock).context(SOCKET)
    }

    fn connect(path: &Path, facility: &str, clock: Arc<dyn Clock>) -> io::Result<SystemLog> {
        let facility = FACILITIES.iter().position(|name| *name == facility).unwrap_or(1);
        Ok(SystemLog {
            path: path.to_owned(),
            // At most 191.
            priority: facility as u8 * 8 + INFORMATIONAL,
            socket: Mutex::new(SystemLog::socket(path)?),
            is_stuck: AtomicBool::new(false),
            clock,
        })
    }

    fn socket(path: &Path) -> io::Result<UnixDatagram> {
        let socket = UnixDatagram::unbound()?;
        socket.connect(path)?;
        socket.set_write_timeout(Some(WAIT))?;
        Ok(socket)
    }

    /// Sends a message.
    ///
    /// # Errors
    /// The daemon did not accept it.
    pub(crate) fn send(&self, text: &str) -> io::Result<()> {
        let message = self.message(text);
        let message = message.as_bytes();
        let mut socket = self.socket.lock();
        let sent = socket.send(message).or_else(|error| match error.kind() {
            ErrorKind::WouldBlock | ErrorKind::TimedOut => Err(error),
            // The daemon may have been restarted.
            _ => {
                *socket = SystemLog::socket(&self.path)?;
                socket.send(message)
            }
        });
        let stuck = sent.as_ref().is_err_and(|error| error.kind() == ErrorKind::WouldBlock);
        if self.is_stuck.swap(stuck, Ordering::Relaxed) != stuck {
            let wait = if stuck { STUCK_WAIT } else { WAIT };
            socket.set_write_timeout(Some(wait))?;
        }
        sent.map(drop)
    }

    /// The message with time, program and process id. RFC 3164, section 4.1; without the host name,
    /// which local daemons add.
    fn message(&self, text: &str) -> String {
        let now = DateTime::from_millis(self.clock.now_ms());
        // `2027-01-15T08:00:00Z`
        let time = now.try_to_rfc3339_string().unwrap_or_default();
        let part = |from: usize, to: usize| time.get(from..to).unwrap_or_default();
        let months =
            ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];
        let month = part(5, 7).parse::<usize>().ok().and_then(|month| months.get(month - 1));
        let (month, day) = (month.unwrap_or(&"Jan"), part(8, 10).trim_start_matches('0'));
        let (time, process, priority) = (part(11, 19), std::process::id(), self.priority);
        format!("<{priority}>{month} {day:>2} {time} mayflydb[{process}]: {text}")
    }
}

/// Each write is a message, because the log writes whole lines.
impl Write for SystemLog {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        self.send(String::from_utf8_lossy(line).trim_end())?;
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use mayfly_base::ManualClock;

    use super::*;

    #[test]
    fn the_daemon_gets_datagrams_in_its_form_also_after_it_was_restarted() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("log");
        let clock: Arc<dyn Clock> = Arc::new(ManualClock::at_ms(1_800_000_000_000));
        assert!(SystemLog::connect(&path, "user", clock.clone()).is_err());
        let daemon = UnixDatagram::bind(&path).unwrap();
        let mut log = SystemLog::connect(&path, "user", clock.clone()).unwrap();
        let event = r#"{"atype":"x\ny","result":0}"#;
        let mut buffer = [0; 1024];
        let mut received = |daemon: &UnixDatagram| {
            let length = daemon.recv(&mut buffer).unwrap();
            String::from_utf8(buffer[..length].to_vec()).unwrap()
        };
        let process = std::process::id();
        let expected = format!("<14>Jan 15 08:00:00 mayflydb[{process}]: {event}");
        log.send(event).unwrap();
        assert_eq!(received(&daemon), expected);
        log.write_all(format!("{event}\n").as_bytes()).unwrap();
        assert_eq!(received(&daemon), expected);
        let local = SystemLog::connect(&path, "local7", clock).unwrap();
        local.send("text").unwrap();
        assert!(received(&daemon).starts_with("<190>"));
        drop(daemon);
        std::fs::remove_file(&path).unwrap();
        assert!(log.send(event).is_err());
        let daemon = UnixDatagram::bind(&path).unwrap();
        log.send(event).unwrap();
        assert_eq!(received(&daemon), expected);
        // A daemon that accepts nothing delays each message by only a millisecond, and messages
        // arrive again when it accepts them.
        while !log.is_stuck.load(Ordering::Relaxed) {
            let _ = log.send(event);
        }
        received(&daemon);
        log.send(event).unwrap();
        assert!(!log.is_stuck.load(Ordering::Relaxed));
    }
}
