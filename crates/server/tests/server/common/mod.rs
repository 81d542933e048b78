//! Starts the program of this crate as a process with a data folder.

use std::ops::{Deref, DerefMut};
use std::path::Path;
use std::process::{Command, Stdio};

use mayfly_testkit::outside::Process;
pub(crate) use mayfly_testkit::outside::{Connection, message};

/// A running server, killed when dropped.
pub(crate) struct Server(Process);

impl Server {
    pub(crate) fn start(folder: &Path) -> Server {
        Self::start_with(folder, &[])
    }

    /// Starts it with further options of the command line.
    pub(crate) fn start_with(folder: &Path, options: &[&str]) -> Server {
        Self::start_by(program(), folder, options)
    }

    /// Starts it by a command that passes its arguments on to the program.
    pub(crate) fn start_by(mut command: Command, folder: &Path, options: &[&str]) -> Server {
        command.arg("--dbpath").arg(folder);
        Self::start_in_default_folder(command, options)
    }

    /// The same, with the default folder.
    pub(crate) fn start_in_default_folder(mut command: Command, options: &[&str]) -> Server {
        command.args(["--port", "0"]).args(options);
        Server(Process::start(command).unwrap())
    }

    /// Starts it with its log in a file.
    pub(crate) fn start_logging(folder: &Path, log: &Path, options: &[&str]) -> Server {
        Self::start_logging_to(Stdio::inherit(), folder, log, options)
    }

    /// The same, with its output in a file.
    pub(crate) fn start_logging_to(
        out: Stdio,
        folder: &Path,
        log: &Path,
        options: &[&str],
    ) -> Server {
        let mut command = program();
        command.stdout(out);
        Self::start_logging_by(command, folder, log, options)
    }

    /// The same, by a command that passes its arguments on to the program.
    pub(crate) fn start_logging_by(
        mut command: Command,
        folder: &Path,
        log: &Path,
        options: &[&str],
    ) -> Server {
        command.args(["--port", "0", "--dbpath"]).arg(folder);
        command.arg("--logpath").arg(log).args(options);
        Server(Process::start_logging(command, log).unwrap())
    }
}

/// Runs the health check with nothing but the folder in its environment, as a container does.
pub(crate) fn is_healthy(data: &Path, flags: &[&str]) -> bool {
    let mut check = program();
    check.arg("--healthcheck").args(flags).env("MAYFLYDB_DBPATH", data);
    check.output().unwrap().status.success()
}

fn program() -> Command {
    Command::new(env!("CARGO_BIN_EXE_mayflydb"))
}

impl Deref for Server {
    type Target = Process;

    fn deref(&self) -> &Process {
        &self.0
    }
}

impl DerefMut for Server {
    fn deref_mut(&mut self) -> &mut Process {
        &mut self.0
    }
}
