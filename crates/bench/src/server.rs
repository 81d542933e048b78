//! The server under load: one that runs already, or one started here and ended afterwards.

use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use tempfile::TempDir;

use crate::client::{Client, number_at};
use crate::process::Process;

/// Longest wait for the first answer.
const START_PATIENCE: Duration = Duration::from_secs(60);
/// A server that uses less of a core than this is quiet.
const QUIET_SHARE: f64 = 0.05;
/// Longest wait for a quiet server.
const SETTLE_PATIENCE: Duration = Duration::from_secs(8);

/// A server.
pub(crate) struct Target {
    /// `host:port`.
    pub(crate) address: String,
    /// Its process, when it runs on this machine.
    pub(crate) process: Option<Process>,
    own: Option<Own>,
}

/// What is needed to start it, and to end it.
struct Own {
    path: PathBuf,
    arguments: Vec<String>,
    parent: PathBuf,
    child: Child,
    /// Removed when dropped.
    _folder: TempDir,
}

impl Target {
    /// A server that runs already.
    pub(crate) fn running(uri: &str) -> Result<Target> {
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

    /// Starts a server over an empty folder.
    pub(crate) fn start(path: &Path, arguments: &[String], parent: &Path) -> Result<Target> {
        let folder = TempDir::with_prefix_in("mayfly-bench-", parent)?;
        let port = TcpListener::bind("127.0.0.1:0")?.local_addr()?.port();
        let data = folder.path().join("data");
        std::fs::create_dir(&data)?;
        let child = Command::new(path)
            .args(["--bind_ip", "127.0.0.1", "--quiet", "--port", &port.to_string()])
            .arg("--dbpath")
            .arg(&data)
            .arg("--logpath")
            .arg(folder.path().join("log"))
            .args(arguments)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .spawn()
            .with_context(|| path.display().to_string())?;
        let process = Process(child.id());
        let own = Own {
            path: path.to_owned(),
            arguments: arguments.to_vec(),
            parent: parent.to_owned(),
            child,
            _folder: folder,
        };
        let address = format!("127.0.0.1:{port}");
        let mut target = Target { address, process: Some(process), own: Some(own) };
        target.await_answer()?;
        Ok(target)
    }

    /// Another server like this one over an empty folder of its own; nothing when this one was not started here.
    pub(crate) fn another(&self) -> Option<Result<Target>> {
        let own = self.own.as_ref()?;
        Some(Target::start(&own.path, &own.arguments, &own.parent))
    }

    /// A new connection.
    pub(crate) fn client(&self) -> Result<Client> {
        Client::connect(&self.address)
    }

    /// CPU seconds of the server so far.
    pub(crate) fn cpu_seconds(&self) -> Option<f64> {
        self.process?.cpu_seconds()
    }

    /// Waits until the server has done what it does after an answer (compaction, flushes); gives its CPU seconds.
    pub(crate) fn settle(&self) -> f64 {
        let began = Instant::now();
        let first = self.cpu_seconds().unwrap_or(0.0);
        let mut before = first;
        let pause = Duration::from_millis(200);
        while began.elapsed() < SETTLE_PATIENCE {
            std::thread::sleep(pause);
            let now = self.cpu_seconds().unwrap_or(0.0);
            if (now - before) / pause.as_secs_f64() < QUIET_SHARE {
                break;
            }
            before = now;
        }
        self.cpu_seconds().unwrap_or(0.0) - first
    }

    fn await_answer(&mut self) -> Result<()> {
        let began = Instant::now();
        loop {
            if let Ok(mut client) = self.client() {
                let hello = client.run(|doc| {
                    doc.append("hello", 1).append("$db", "admin");
                });
                if hello.is_ok() {
                    return Ok(());
                }
            }
            let own = self.own.as_mut().context("not started here")?;
            if let Some(status) = own.child.try_wait()? {
                bail!("the server ended at once: {status}");
            }
            if began.elapsed() > START_PATIENCE {
                bail!("the server does not answer");
            }
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}

impl Drop for Own {
    fn drop(&mut self) {
        // The folder goes too, so there is nothing to close in order.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
