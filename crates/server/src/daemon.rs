//! `processManagement.fork`: runs the server in the background, and writes its process id to a
//! file.
//!
//! 1. The first process starts the same program with the same arguments and the variable [`MARK`]
//!    in its environment, and waits.
//! 2. The second process becomes the leader of a session without a terminal
//!    ([`Background::enter`]). When it serves clients, it writes a line to its standard output and
//!    then redirects all standard streams to `/dev/null` ([`Background::ready`]).
//! 3. The first process exits with 0 after that line, otherwise with the exit code of the second
//!    process, whose error message it repeats.
//!
//! Forking without executing a new program is unsafe as soon as there is a second thread.

use std::fs::{self, File, OpenOptions};
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};

use anyhow::Context;

use crate::failure::{Failure, FailureKind};

/// The environment variable of the process in the background.
pub(crate) const MARK: &str = "MAYFLYDB_FORKED";
/// The line that this process writes when it serves clients.
const READY: &str = "ready";

/// Starts this program in the background and waits until it serves clients; returns the exit code.
///
/// # Errors
/// The program cannot be started.
pub fn start() -> anyhow::Result<ExitCode> {
    let failed = || {
        let advice = "remove processManagement.fork, and start the server with a supervisor";
        Failure::new(FailureKind::General, "cannot start the server in the background", advice)
    };
    let program = std::env::current_exe().with_context(failed)?;
    let mut child = Command::new(program)
        .args(std::env::args_os().skip(1))
        .env(MARK, "1")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .with_context(failed)?;
    let mut line = String::new();
    if let Some(out) = child.stdout.take() {
        // An error counts as the end of the output: the exit code of the process is read.
        let _ = BufReader::new(out).read_line(&mut line);
    }
    if line.trim_end() == READY {
        println!("mayflydb runs in the background, process {}", child.id());
        return Ok(ExitCode::SUCCESS);
    }
    let mut sentence = String::new();
    if let Some(mut error) = child.stderr.take() {
        let _ = error.read_to_string(&mut sentence);
    }
    eprint!("{sentence}");
    let status = child.wait().with_context(failed)?;
    let code = status.code().and_then(|code| u8::try_from(code).ok()).filter(|code| *code > 0);
    Ok(ExitCode::from(code.unwrap_or(FailureKind::General as u8)))
}

/// Whether this is the process in the background.
pub fn is_background() -> bool {
    std::env::var_os(MARK).is_some()
}

/// The process in the background.
pub struct Background;

impl Background {
    /// Leaves the session of the process that started this one.
    ///
    /// # Errors
    /// The system refuses it.
    pub fn enter() -> anyhow::Result<Background> {
        rustix::process::setsid().context("cannot begin a session of its own")?;
        Ok(Background)
    }

    /// Reports that the server serves clients, so that the first process exits.
    ///
    /// # Errors
    /// `/dev/null` cannot be opened.
    pub fn ready(self) -> anyhow::Result<()> {
        // The first process may have exited; the server continues.
        let _ = writeln!(std::io::stdout(), "{READY}");
        let nowhere = File::options().read(true).write(true).open("/dev/null");
        let nowhere = nowhere.context("cannot open /dev/null")?;
        rustix::stdio::dup2_stdout(&nowhere).context("cannot close the standard output")?;
        rustix::stdio::dup2_stderr(&nowhere).context("cannot close the standard error output")
    }
}

/// The file with the id of this process, removed when dropped.
pub struct PidFile(PathBuf);

impl PidFile {
    /// Writes the file, with read access for supervisors of other users.
    ///
    /// # Errors
    /// A [`Failure`]: the file cannot be written.
    pub fn write(path: &Path) -> anyhow::Result<PidFile> {
        let write = || {
            let mut file = OpenOptions::new().create(true).write(true).truncate(true).open(path)?;
            writeln!(file, "{}", std::process::id())?;
            file.set_permissions(fs::Permissions::from_mode(0o644))
        };
        write().with_context(|| {
            let tried = format!("cannot write the process id file {}", path.display());
            let advice = "choose another with --pidfilepath, in a folder that exists";
            Failure::new(FailureKind::General, tried, advice)
        })?;
        Ok(PidFile(path.to_owned()))
    }
}

impl Drop for PidFile {
    fn drop(&mut self) {
        // A remaining file has the id of a process that has ended, which supervisors check.
        let _ = fs::remove_file(&self.0);
    }
}
