//! A process of a server, from its start until it is ready.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use super::Connection;

const START_PATIENCE: Duration = Duration::from_secs(60);
/// The longest wait for an answer of the server.
const ANSWER_PATIENCE: Duration = Duration::from_secs(120);
const LOOK: Duration = Duration::from_millis(2);

/// A process that is ready, killed when dropped.
pub struct Process {
    /// The handle of the operating system's process.
    pub child: Child,
    /// The port that it listens on.
    pub port: u16,
}

impl Process {
    /// Starts a server and waits until it reports on its standard output that it is ready. Later
    /// output is dropped.
    ///
    /// # Errors
    /// The process cannot be started, or ends before it is ready.
    pub fn start(mut command: Command) -> Result<Process, String> {
        let (name, mut child) = spawn(command.stdout(Stdio::piped()))?;
        let (sender, receiver) = mpsc::channel();
        let mut lines = child.stdout.take().map(BufReader::new);
        std::thread::spawn(move || {
            let mut line = String::new();
            while lines.as_mut().is_some_and(|it| it.read_line(&mut line).is_ok_and(|it| it > 0)) {
                let _gone = port_of(&line).map(|port| sender.send(port));
                line.clear();
            }
        });
        let mut process = Process { child, port: 0 };
        process.port = receiver
            .recv_timeout(START_PATIENCE)
            .map_err(|why| format!("{name} was not ready: {why}"))?;
        Ok(process)
    }

    /// Starts a server and waits until its log reports that it is ready.
    ///
    /// # Errors
    /// The process cannot be started, or ends before it is ready.
    pub fn start_logging(mut command: Command, log: &Path) -> Result<Process, String> {
        let (_, child) = spawn(&mut command)?;
        let mut process = Process { child, port: 0 };
        process.wait_for_log(log)?;
        Ok(process)
    }

    /// Starts a server and does not wait for it.
    ///
    /// # Errors
    /// The process cannot be started.
    pub(super) fn launch(command: &mut Command) -> Result<Process, String> {
        let (_, child) = spawn(command)?;
        Ok(Process { child, port: 0 })
    }

    /// Waits until the log reports that it is ready.
    pub(super) fn wait_for_log(&mut self, log: &Path) -> Result<(), String> {
        let began = Instant::now();
        while began.elapsed() < START_PATIENCE {
            let said = std::fs::read(log).unwrap_or_default();
            let said = String::from_utf8_lossy(&said);
            if let Some(port) = port_of(&said) {
                self.port = port;
                return Ok(());
            }
            self.check_alive().map_err(|why| format!("{why}, before it was ready: {said}"))?;
            std::thread::sleep(LOOK);
        }
        Err(format!("the server was not ready within {START_PATIENCE:?}"))
    }

    /// Whether it has ended by itself.
    ///
    /// # Errors
    /// Its exit status.
    pub fn check_alive(&mut self) -> Result<(), String> {
        match self.child.try_wait().map_err(|error| error.to_string())? {
            Some(status) => Err(format!("the server ended by itself: {status}")),
            None => Ok(()),
        }
    }

    /// A new connection.
    ///
    /// # Panics
    /// Nothing listens.
    #[track_caller]
    pub fn connect(&self) -> Connection {
        match Connection::open(self.port, ANSWER_PATIENCE) {
            Ok(connection) => connection,
            Err(error) => panic!("no connection to port {}: {error}", self.port),
        }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ended = self.child.kill().and_then(|()| self.child.wait());
    }
}

fn spawn(command: &mut Command) -> Result<(String, Child), String> {
    let name = command.get_program().to_string_lossy().into_owned();
    let child = command.spawn().map_err(|error| format!("{name}: {error}"))?;
    Ok((name, child))
}

/// The port in a text that reports that the server is ready; `None` while the end of the line is
/// missing.
fn port_of(text: &str) -> Option<u16> {
    let (_, rest) = text.split_once("ready on 127.0.0.1:")?;
    let digits = rest.find(|it: char| !it.is_ascii_digit())?;
    rest[..digits].parse().ok()
}
