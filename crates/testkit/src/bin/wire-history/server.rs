//! The server's process: started again and again over one folder, ended by its id.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

const START_PATIENCE: Duration = Duration::from_secs(60);
const STOP_PATIENCE: Duration = Duration::from_secs(30);

/// A running server.
pub(crate) struct Server {
    program: PathBuf,
    arguments: Vec<String>,
    folder: PathBuf,
    child: Child,
    /// How often it was started.
    pub(crate) starts: u32,
    /// Where it listens.
    pub(crate) port: u16,
}

impl Server {
    /// Starts it over an empty folder.
    pub(crate) fn start(
        program: &Path,
        arguments: &[String],
        folder: &Path,
    ) -> Result<Server, String> {
        std::fs::create_dir_all(folder.join("data")).map_err(|error| error.to_string())?;
        let (child, port) = spawn(program, arguments, folder, 1)?;
        Ok(Server {
            program: program.to_owned(),
            arguments: arguments.to_vec(),
            folder: folder.to_owned(),
            child,
            starts: 1,
            port,
        })
    }

    /// Starts it again; it must have ended.
    pub(crate) fn restart(&mut self) -> Result<(), String> {
        self.starts += 1;
        (self.child, self.port) = spawn(&self.program, &self.arguments, &self.folder, self.starts)?;
        Ok(())
    }

    /// Ends it without a warning.
    pub(crate) fn kill(&mut self) -> Result<(), String> {
        if let Some(status) = self.child.try_wait().map_err(|error| error.to_string())? {
            return Err(format!("the server had ended by itself: {status}"));
        }
        self.child.kill().and_then(|()| self.child.wait()).map_err(|error| error.to_string())?;
        Ok(())
    }

    /// Asks it to end, which it must do with status 0.
    pub(crate) fn stop(&mut self) -> Result<(), String> {
        let asked = Command::new("kill").arg(self.child.id().to_string()).status();
        asked.map_err(|error| error.to_string())?;
        let began = Instant::now();
        loop {
            match self.child.try_wait().map_err(|error| error.to_string())? {
                Some(status) if status.success() => return Ok(()),
                Some(status) => {
                    return Err(format!("the server ended with {status} after SIGTERM"));
                }
                None if began.elapsed() > STOP_PATIENCE => {
                    let pid = self.child.id();
                    return Err(format!("server {pid} does not end after SIGTERM"));
                }
                None => std::thread::sleep(Duration::from_millis(5)),
            }
        }
    }

    /// Errors and panics in its logs.
    pub(crate) fn complaints(&self) -> Vec<String> {
        let mut found = Vec::new();
        for start in 1..=self.starts {
            let text = std::fs::read(log_file(&self.folder, start)).unwrap_or_default();
            let text = String::from_utf8_lossy(&text);
            let is_bad = |line: &&str| {
                ["\"s\":\"E\"", "\"s\":\"F\"", "panicked at", " ERROR "]
                    .iter()
                    .any(|mark| line.contains(mark))
            };
            found.extend(text.lines().filter(is_bad).map(|line| format!("start {start}: {line}")));
        }
        found
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ended = self.child.kill().and_then(|()| self.child.wait());
    }
}

fn log_file(folder: &Path, start: u32) -> PathBuf {
    folder.join(format!("server-{start}.log"))
}

fn spawn(
    program: &Path,
    arguments: &[String],
    folder: &Path,
    start: u32,
) -> Result<(Child, u16), String> {
    let log = log_file(folder, start);
    let text = |error: std::io::Error| format!("{}: {error}", program.display());
    let out = File::create(&log).map_err(text)?;
    let mut command = Command::new(program);
    // What is said of a server in the environment is said of another one.
    for (name, _) in std::env::vars_os() {
        if name.to_string_lossy().starts_with("MAYFLYDB_") {
            command.env_remove(name);
        }
    }
    let mut child = command
        .args(["--port", "0", "--storageEngine", "rocksdb", "--dbpath"])
        .arg(folder.join("data"))
        .args(["--setParameter", "transactionLifetimeLimitSeconds=1"])
        .args(arguments)
        .stdin(Stdio::null())
        .stderr(out.try_clone().map_err(text)?)
        .stdout(out)
        .spawn()
        .map_err(text)?;
    let began = Instant::now();
    while began.elapsed() < START_PATIENCE {
        let said = std::fs::read(&log).map_err(text)?;
        let said = String::from_utf8_lossy(&said);
        let port = said.split_once("ready on 127.0.0.1:").and_then(|(_, rest)| {
            let digits = rest.find(|it: char| !it.is_ascii_digit())?;
            rest[..digits].parse().ok()
        });
        if let Some(port) = port {
            return Ok((child, port));
        }
        if let Some(status) = child.try_wait().map_err(text)? {
            return Err(format!("the server ended with {status} before it was ready: {said}"));
        }
        std::thread::sleep(Duration::from_millis(2));
    }
    let _ended = child.kill().and_then(|()| child.wait());
    Err(format!("the server was not ready within {START_PATIENCE:?}"))
}
