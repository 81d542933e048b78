//! The process of a server with a data folder of its own: it is started, stopped or killed, and
//! started again with the same data.

use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use rustix::process::{Pid, Resource, Rlimit, Signal, getrlimit, kill_process, setrlimit};
use tempfile::TempDir;

use crate::process::Process;

/// Longest wait for the end after SIGTERM.
const STOP_PATIENCE: Duration = Duration::from_secs(60);

/// A server process that was started here.
pub(crate) struct Own {
    pub(crate) path: PathBuf,
    pub(crate) arguments: Vec<String>,
    pub(crate) parent: PathBuf,
    child: Child,
    port: u16,
    /// Removed when dropped.
    folder: TempDir,
}

/// How a server ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ending {
    /// By SIGTERM.
    Orderly,
    /// By SIGKILL.
    Killed,
}

impl Own {
    /// Starts a server with an empty folder.
    pub(crate) fn start(path: &Path, arguments: &[String], parent: &Path) -> Result<Own> {
        let folder = TempDir::with_prefix_in("mayfly-bench-", parent)?;
        std::fs::create_dir(folder.path().join("data"))?;
        let (child, port) = spawn(path, arguments, folder.path())?;
        Ok(Own {
            path: path.to_owned(),
            arguments: arguments.to_vec(),
            parent: parent.to_owned(),
            child,
            port,
            folder,
        })
    }

    /// Starts it again with the same folder, on another port.
    pub(crate) fn spawn(&mut self) -> Result<()> {
        (self.child, self.port) = spawn(&self.path, &self.arguments, self.folder.path())?;
        Ok(())
    }

    /// `host:port`.
    pub(crate) fn address(&self) -> String {
        format!("127.0.0.1:{}", self.port)
    }

    /// The process.
    pub(crate) fn process(&self) -> Process {
        Process(self.child.id())
    }

    /// The data folder.
    pub(crate) fn data(&self) -> PathBuf {
        self.folder.path().join("data")
    }

    /// Its exit status, if it has ended.
    pub(crate) fn ended(&mut self) -> Result<Option<ExitStatus>> {
        Ok(self.child.try_wait()?)
    }

    /// Ends it; returns the time that it took.
    pub(crate) fn stop(&mut self, ending: Ending) -> Result<Duration> {
        let began = Instant::now();
        let signal = match ending {
            Ending::Orderly => Signal::TERM,
            Ending::Killed => Signal::KILL,
        };
        kill_process(Pid::from_child(&self.child), signal)?;
        while self.child.try_wait()?.is_none() {
            if began.elapsed() > STOP_PATIENCE {
                bail!("the server does not end");
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        Ok(began.elapsed())
    }
}

impl Drop for Own {
    fn drop(&mut self) {
        // The folder is removed as well, so that the data need not be closed.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn spawn(path: &Path, arguments: &[String], folder: &Path) -> Result<(Child, u16)> {
    let port = TcpListener::bind("127.0.0.1:0")?.local_addr()?.port();
    let child = Command::new(path)
        .args(["--bind_ip", "127.0.0.1", "--quiet", "--port", &port.to_string()])
        .arg("--dbpath")
        .arg(folder.join("data"))
        .arg("--logpath")
        .arg(folder.join("log"))
        .args(arguments)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .spawn()
        .with_context(|| path.display().to_string())?;
    Ok((child, port))
}

/// Raises the limit of open files as far as the system allows, for thousands of connections.
/// Servers that are started here inherit it.
pub(crate) fn raise_open_files() {
    let limit = getrlimit(Resource::Nofile);
    // If that fails, a load with too many connections reports it.
    let _ = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, maximum: limit.maximum });
}
