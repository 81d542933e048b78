//! A server's process over a folder of its own: started, ended in order or at once, started again
//! over the same data.

use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use rustix::process::{Pid, Resource, Rlimit, Signal, getrlimit, kill_process, setrlimit};
use tempfile::TempDir;

use crate::process::Process;

/// Longest wait for an orderly end.
const STOP_PATIENCE: Duration = Duration::from_secs(60);

/// What is needed to start it, and to end it.
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
    /// It is asked to (SIGTERM).
    Orderly,
    /// Without knowing (SIGKILL).
    Killed,
}

impl Own {
    /// Starts a server over an empty folder.
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

    /// Starts it again over the same folder, on another port.
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

    /// The folder of data.
    pub(crate) fn data(&self) -> PathBuf {
        self.folder.path().join("data")
    }

    /// Whether it ended.
    pub(crate) fn ended(&mut self) -> Result<Option<ExitStatus>> {
        Ok(self.child.try_wait()?)
    }

    /// Ends it; gives how long that took.
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
        // The folder goes too, so there is nothing to close in order.
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

/// As many open files as the system allows, here and in the servers started here, for thousands of
/// connections.
pub(crate) fn raise_open_files() {
    let limit = getrlimit(Resource::Nofile);
    // Where it is refused, a load with too many connections says so.
    let _ = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, maximum: limit.maximum });
}
