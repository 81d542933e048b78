//! A server process that is started repeatedly with one folder, and ended by its id.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use super::Process;

const STOP_PATIENCE: Duration = Duration::from_secs(30);

/// A running server.
pub struct Server {
    program: PathBuf,
    arguments: Vec<String>,
    folder: PathBuf,
    environment: Vec<(String, String)>,
    process: Process,
    /// The number of starts.
    pub starts: u32,
    /// The port that it listens on.
    pub port: u16,
}

impl Server {
    /// Starts it with the folder `data` in this one, which is created if it is missing.
    ///
    /// # Errors
    /// The failure, with the output of the server.
    pub fn start(program: &Path, arguments: &[String], folder: &Path) -> Result<Server, String> {
        Server::start_with(program, arguments, &[], folder)
    }

    /// The same with these variables in its environment.
    ///
    /// # Errors
    /// The failure, with the output of the server.
    pub fn start_with(
        program: &Path,
        arguments: &[String],
        environment: &[(String, String)],
        folder: &Path,
    ) -> Result<Server, String> {
        std::fs::create_dir_all(folder.join("data")).map_err(|error| error.to_string())?;
        let process = launch(program, arguments, environment, &log_file(folder, 1), folder)?;
        let mut server = Server {
            program: program.to_owned(),
            arguments: arguments.to_vec(),
            folder: folder.to_owned(),
            environment: environment.to_vec(),
            process,
            starts: 1,
            port: 0,
        };
        server.wait_until_ready()?;
        Ok(server)
    }

    /// Starts it again; it must have ended.
    ///
    /// # Errors
    /// The failure, with the output of the server.
    pub fn restart(&mut self) -> Result<(), String> {
        self.launch()?;
        self.wait_until_ready()
    }

    /// Starts it again without waiting until it is ready.
    ///
    /// # Errors
    /// The process cannot be started.
    pub fn launch(&mut self) -> Result<(), String> {
        self.starts += 1;
        let log = log_file(&self.folder, self.starts);
        self.process =
            launch(&self.program, &self.arguments, &self.environment, &log, &self.folder)?;
        Ok(())
    }

    /// Its log since the last start.
    pub fn log(&self) -> String {
        let text = std::fs::read(log_file(&self.folder, self.starts)).unwrap_or_default();
        String::from_utf8_lossy(&text).into_owned()
    }

    /// The id of the operating system's process.
    pub fn id(&self) -> u32 {
        self.process.child.id()
    }

    /// The resident memory; 0 when the process has ended, or if it is unknown.
    pub fn resident_bytes(&self) -> u64 {
        self.figure("VmRSS:") << 10
    }

    /// The CPU time; 0 when the process has ended, or if it is unknown.
    pub fn processor_time(&self) -> Duration {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", self.process.child.id()));
        let stat = stat.unwrap_or_default();
        // After the name, which may contain spaces: user and system time are the 12th and 13th
        // field, in hundredths of a second.
        let rest = stat.rsplit_once(')').map_or("", |(_, rest)| rest);
        let ticks =
            rest.split_whitespace().skip(11).take(2).filter_map(|it| it.parse::<u64>().ok());
        Duration::from_millis(ticks.sum::<u64>() * 10)
    }

    /// A number of its `/proc/<id>/status`.
    pub fn figure(&self, name: &str) -> u64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.process.child.id()));
        let status = status.unwrap_or_default();
        let line = status.lines().find_map(|line| line.strip_prefix(name)).unwrap_or("");
        line.split_whitespace().next().and_then(|number| number.parse().ok()).unwrap_or(0)
    }

    /// Whether it has ended by itself.
    ///
    /// # Errors
    /// Its exit status.
    pub fn check_alive(&mut self) -> Result<(), String> {
        self.process.check_alive()
    }

    fn wait_until_ready(&mut self) -> Result<(), String> {
        self.process.wait_for_log(&log_file(&self.folder, self.starts))?;
        self.port = self.process.port;
        Ok(())
    }

    /// Ends it by SIGKILL.
    ///
    /// # Errors
    /// It had ended by itself.
    pub fn kill(&mut self) -> Result<(), String> {
        self.check_alive()?;
        self.process
            .child
            .kill()
            .and_then(|()| self.process.child.wait())
            .map_err(|error| error.to_string())?;
        Ok(())
    }

    /// Ends it by SIGTERM; its exit status must be 0.
    ///
    /// # Errors
    /// It did not.
    pub fn stop(&mut self) -> Result<(), String> {
        self.stop_within(STOP_PATIENCE)
    }

    /// The same with a time limit.
    ///
    /// # Errors
    /// It did not end with status 0 within the limit.
    pub fn stop_within(&mut self, limit: Duration) -> Result<(), String> {
        self.check_alive()?;
        let asked = Command::new("kill").arg(self.process.child.id().to_string()).status();
        asked.map_err(|error| error.to_string())?;
        let began = Instant::now();
        loop {
            match self.process.child.try_wait().map_err(|error| error.to_string())? {
                Some(status) if status.success() => return Ok(()),
                Some(status) => {
                    return Err(format!("the server ended with {status} after SIGTERM"));
                }
                None if began.elapsed() > limit => {
                    return Err(format!("the server did not end within {limit:?} of SIGTERM"));
                }
                None => std::thread::sleep(Duration::from_millis(5)),
            }
        }
    }

    /// Errors and panics in its logs.
    pub fn complaints(&self) -> Vec<String> {
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

fn log_file(folder: &Path, start: u32) -> PathBuf {
    folder.join(format!("server-{start}.log"))
}

fn launch(
    program: &Path,
    arguments: &[String],
    environment: &[(String, String)],
    log: &Path,
    folder: &Path,
) -> Result<Process, String> {
    let text = |error: std::io::Error| format!("{}: {error}", program.display());
    let out = File::create(log).map_err(text)?;
    let mut command = Command::new(program);
    // Variables of the environment are meant for another server.
    for (name, _) in std::env::vars_os() {
        if name.to_string_lossy().starts_with("MAYFLYDB_") {
            command.env_remove(name);
        }
    }
    // What the arguments do not name.
    for (flag, value) in [("--storageEngine", "rocksdb"), ("--port", "0")] {
        if !arguments.iter().any(|argument| argument == flag) {
            command.args([flag, value]);
        }
    }
    command
        .arg("--dbpath")
        .arg(folder.join("data"))
        .args(["--setParameter", "transactionLifetimeLimitSeconds=1"])
        .args(arguments)
        .envs(environment.iter().map(|(name, value)| (name, value)))
        .stdin(Stdio::null())
        .stderr(out.try_clone().map_err(text)?)
        .stdout(out);
    Process::launch(&mut command)
}
