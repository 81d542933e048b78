//! The server under load: a running one, or one that is started here and ended afterwards.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use crate::client::Client;
use crate::launch::{Ending, Own};
use crate::process::{Process, folder_bytes};
use crate::wire::number_at;

/// Longest wait for the first reply.
const START_PATIENCE: Duration = Duration::from_secs(120);
/// A server that uses less of a core than this is quiet.
const QUIET_SHARE: f64 = 0.05;
/// Longest wait for a quiet server.
const SETTLE_PATIENCE: Duration = Duration::from_secs(8);

/// A server under load.
pub(crate) struct Target {
    /// `host:port`.
    pub(crate) address: String,
    /// Its process, when it runs on this machine.
    pub(crate) process: Option<Process>,
    own: Option<Own>,
}

/// The source of servers.
#[derive(Clone, Debug)]
pub(crate) enum Source {
    /// A program, started here with an empty folder.
    Program {
        path: PathBuf,
        arguments: Vec<String>,
        /// The folder in which their data folders are created.
        parent: PathBuf,
    },
    /// The address of a running server.
    Address(String),
}

impl Source {
    /// A server from this source.
    pub(crate) fn target(&self) -> Result<Target> {
        match self {
            Source::Program { path, arguments, parent } => Target::start(path, arguments, parent),
            Source::Address(uri) => Target::running(uri),
        }
    }
}

impl Target {
    /// A running server.
    fn running(uri: &str) -> Result<Target> {
        let address = uri.strip_prefix("mongodb://").unwrap_or(uri).trim_end_matches('/');
        let address =
            if address.contains(':') { address.to_owned() } else { format!("{address}:27017") };
        let mut client = Client::connect(&address)?;
        let status = client.ask(|doc| {
            doc.append("serverStatus", 1).append("$db", "admin");
        });
        let process = status.ok().and_then(|status| {
            let process = Process(number_at(status.as_doc(), &["pid"])? as u32);
            process.cpu_seconds().map(|_| process)
        });
        Ok(Target { address, process, own: None })
    }

    fn start(path: &Path, arguments: &[String], parent: &Path) -> Result<Target> {
        let own = Own::start(path, arguments, parent)?;
        let mut target =
            Target { address: own.address(), process: Some(own.process()), own: Some(own) };
        target.await_answer()?;
        Ok(target)
    }

    /// Another server of the same program, with an empty folder.
    pub(crate) fn another(&self) -> Result<Target> {
        let own = self.own.as_ref().context("only for a server that is started here")?;
        Target::start(&own.path, &own.arguments, &own.parent)
    }

    /// Ends the server; returns the time that it took.
    pub(crate) fn stop(&mut self, ending: Ending) -> Result<Duration> {
        self.own.as_mut().context("not started here")?.stop(ending)
    }

    /// Starts it again with the same folder; returns the time until the first reply.
    pub(crate) fn restart(&mut self) -> Result<Duration> {
        let began = Instant::now();
        let own = self.own.as_mut().context("not started here")?;
        own.spawn()?;
        (self.address, self.process) = (own.address(), Some(own.process()));
        self.await_answer()?;
        Ok(began.elapsed())
    }

    /// A new connection.
    pub(crate) fn client(&self) -> Result<Client> {
        Client::connect(&self.address)
    }

    /// CPU seconds of the server so far.
    pub(crate) fn cpu_seconds(&self) -> Option<f64> {
        self.process?.cpu_seconds()
    }

    /// The size of its data folder, if it was started here.
    pub(crate) fn disk_bytes(&self) -> Option<f64> {
        self.own.as_ref().map(|own| folder_bytes(&own.data()) as f64)
    }

    /// Waits until the server has finished its background work (compaction, flushes); returns its
    /// CPU seconds.
    pub(crate) fn settle(&self) -> f64 {
        let began = Instant::now();
        let Some(first) = self.cpu_seconds() else { return 0.0 };
        let mut before = first;
        let pause = Duration::from_millis(200);
        while began.elapsed() < SETTLE_PATIENCE {
            std::thread::sleep(pause);
            let now = self.cpu_seconds().unwrap_or(before);
            if (now - before) / pause.as_secs_f64() < QUIET_SHARE {
                break;
            }
            before = now;
        }
        self.cpu_seconds().unwrap_or(first) - first
    }

    fn await_answer(&mut self) -> Result<()> {
        let began = Instant::now();
        loop {
            if let Ok(mut client) = self.client() {
                let hello = client.run(|doc| {
                    doc.append("isMaster", 1).append("$db", "admin");
                });
                if hello.is_ok() {
                    return Ok(());
                }
            }
            let own = self.own.as_mut().context("not started here")?;
            if let Some(status) = own.ended()? {
                bail!("the server ended at once: {status}");
            }
            if began.elapsed() > START_PATIENCE {
                bail!("the server does not answer");
            }
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}
