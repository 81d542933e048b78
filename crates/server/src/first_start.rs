//! The first start with a new data folder: creates the first user, and runs scripts.
//!
//! Containers configure it by the variables of the reference's image: `MONGO_INITDB_ROOT_USERNAME`
//! and `MONGO_INITDB_ROOT_PASSWORD` (each also with the suffix `_FILE`, for a file that contains
//! the value), and `MONGO_INITDB_DATABASE`, the initial database of scripts. Scripts are the files
//! `*.sh` and `*.js` of a folder (`init.folder`), in the order of their names. mongosh runs `*.js`
//! if it is installed, otherwise the built-in shell.
//!
//! 1. A marker file in the data folder records that the first start has begun. A server that finds
//!    the marker of an earlier start does not start.
//! 2. The first user is created, with the role `root` on `admin`.
//! 3. While scripts run, the server only serves clients on this machine, without authorization.
//! 4. The marker is removed. From then on `--auth` is in effect, which the first user implies.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;

use anyhow::{Context, anyhow, bail};
use mayfly_commands::{Incoming, Next, dispatch};
use mayfly_scripts::{Program, ProgramFailure};
use mayfly_service::{Connection, Service};
use mayfly_storage::Collection;
use mayfly_value::{DocBuilder, RawDoc, RawValue};
use secrecy::{ExposeSecret, SecretString};
use zeroize::Zeroizing;

use crate::Config;
use crate::config::EngineChoice;
use crate::failure::{Failure, FailureKind};
use crate::shell_host::LocalHost;

/// The marker file in the data folder during the first start.
pub(crate) const NOTE: &str = "first-start";

const USER: &str = "MONGO_INITDB_ROOT_USERNAME";
const PASSWORD: &str = "MONGO_INITDB_ROOT_PASSWORD";
const DATABASE: &str = "MONGO_INITDB_DATABASE";
/// The reference's shell.
const SHELL: &str = "mongosh";

/// The actions of the first start.
#[derive(Clone, Debug, Default)]
pub struct FirstStart {
    /// The first user and its password.
    user: Option<(String, SecretString)>,
    /// The initial database of scripts.
    database: String,
    /// The folder of scripts.
    folder: Option<PathBuf>,
}

impl FirstStart {
    /// Reads the variables; `folder` contains the scripts.
    ///
    /// # Errors
    /// A user without a password, a password without a user, a variable that is given twice, a file
    /// that cannot be read.
    pub fn read(
        environment: &[(String, String)],
        folder: Option<PathBuf>,
    ) -> anyhow::Result<FirstStart> {
        let read = |name: &str| variable(environment, name);
        let parts = || -> anyhow::Result<FirstStart> {
            let user = match (read(USER)?, read(PASSWORD)?) {
                (None, None) => None,
                (Some(user), Some(password)) => Some((user, SecretString::from(password))),
                (Some(_), None) => bail!("{USER} is set, and {PASSWORD} is not"),
                (None, Some(_)) => bail!("{PASSWORD} is set, and {USER} is not"),
            };
            let database = read(DATABASE)?.unwrap_or_else(|| "test".to_owned());
            Ok(FirstStart { user, database, folder })
        };
        parts().with_context(|| {
            let advice = "set both variables, or both with the suffix _FILE, or none";
            Failure::new(FailureKind::Options, "cannot create the first user", advice)
        })
    }

    /// Whether there is a first user, and clients have to log in.
    pub fn has_user(&self) -> bool {
        self.user.is_some()
    }

    /// Whether the data is new, and there is something to do.
    ///
    /// # Errors
    /// An earlier first start was not completed.
    pub(crate) fn is_due(&self, service: &Service, config: &Config) -> anyhow::Result<bool> {
        let note = note(config);
        if note.as_ref().is_some_and(|note| note.exists()) {
            return Err(anyhow!(
                "an earlier first start, which creates the first user and runs scripts, did not finish"
            ))
            .context(failure(start_over(config)));
        }
        if self.user.is_none() && self.scripts()?.is_empty() {
            return Ok(false);
        }
        let own = ["admin", "config", "local"];
        let is_own = |collection: &Arc<Collection>| own.contains(&collection.namespace().db());
        Ok(service.store.collections(None).iter().all(is_own)
            && !service.access.has_users_or_roles(&service.store)?)
    }

    /// Writes the marker file and creates the first user.
    ///
    /// # Errors
    /// The file cannot be written, or the user not created.
    pub(crate) fn begin(&self, service: &Arc<Service>, config: &Config) -> anyhow::Result<()> {
        if let Some(note) = note(config) {
            fs::write(&note, b"")
                .with_context(|| failure("free disk space for the data folder"))?;
        }
        if let Some((user, password)) = &self.user {
            make_user(service, user, password.expose_secret())
                .with_context(|| failure("choose another name for the first user"))?;
            tracing::info!(user, "created the first user");
        }
        Ok(())
    }

    /// Runs the scripts against the server at this port of this machine.
    ///
    /// # Errors
    /// A script cannot be run, or fails.
    pub(crate) fn run_scripts(&self, port: u16, config: &Config) -> anyhow::Result<()> {
        for script in self.scripts()? {
            tracing::info!(script = %script.display(), "running a script of the first start");
            self.run_script(&script, port).with_context(|| {
                let advice = format!("correct the script, {}", start_over(config));
                let tried = format!("cannot run the script {}", script.display());
                Failure::new(FailureKind::General, tried, advice)
            })?;
        }
        Ok(())
    }

    /// Removes the marker file.
    ///
    /// # Errors
    /// The file cannot be removed.
    pub(crate) fn end(&self, config: &Config) -> anyhow::Result<()> {
        match note(config).map(fs::remove_file) {
            None | Some(Ok(())) => Ok(()),
            Some(Err(error)) => {
                Err(error).context(failure("remove the file first-start from the data folder"))
            }
        }
    }

    /// The scripts in the order of their execution.
    fn scripts(&self) -> anyhow::Result<Vec<PathBuf>> {
        let Some(folder) = &self.folder else { return Ok(Vec::new()) };
        let entries = match fs::read_dir(folder) {
            Ok(entries) => entries,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            Err(error) => {
                let text = folder.display().to_string();
                return Err(anyhow!(error).context(text)).context(failure("correct init.folder"));
            }
        };
        let paths = entries.filter_map(|entry| Some(entry.ok()?.path()));
        let is_script =
            |path: &PathBuf| path.extension().is_some_and(|end| end == "sh" || end == "js");
        let mut scripts: Vec<PathBuf> = paths.filter(is_script).collect();
        scripts.sort();
        Ok(scripts)
    }

    fn run_script(&self, script: &Path, port: u16) -> anyhow::Result<()> {
        let number = port.to_string();
        let shell = [SHELL, "--quiet", "--host", "127.0.0.1", "--port", &number];
        let mut command;
        if script.extension().is_some_and(|end| end == "sh") {
            // The same as the reference's image: a shell with the client's command in `mongo`.
            command = Command::new("bash");
            command.arg("-ec").arg("mongo=(\"${@:2}\"); . \"$1\"").arg("bash").arg(script);
            command.args(shell);
        } else if is_installed(SHELL) {
            command = Command::new(shell[0]);
            command.args(&shell[1..]).arg(&self.database).arg(script);
        } else {
            return self.run_built_in(script, port);
        }
        // A server that the script starts is not the process in the background.
        command.env_remove(crate::daemon::MARK);
        let program = command.get_program().to_string_lossy().into_owned();
        let status = command.stdin(Stdio::null()).status().map_err(|error| match error.kind() {
            io::ErrorKind::NotFound => anyhow!("{program} is not installed"),
            _ => anyhow!(error),
        })?;
        match status.success() {
            true => Ok(()),
            false => bail!("it ended with {status}"),
        }
    }

    /// Runs a script in the built-in shell.
    fn run_built_in(&self, script: &Path, port: u16) -> anyhow::Result<()> {
        let source = fs::read_to_string(script).context("it cannot be read")?;
        let folder = script.parent().unwrap_or(Path::new("."));
        let name = script.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let host = LocalHost::connect(port, folder)?;
        let (folder, database) = (folder.to_string_lossy().into_owned(), self.database.clone());
        let ended = Program { name, folder, source, database }.run(host);
        ended.map_err(|ProgramFailure { exception, place }| match place {
            Some(place) => anyhow!("{place}: {exception}"),
            None => anyhow!(exception),
        })
    }
}

/// Whether a program is in one of the folders of `PATH`.
fn is_installed(program: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).any(|folder| folder.join(program).is_file())
}

fn failure(advice: &str) -> Failure {
    Failure::new(FailureKind::General, "cannot finish the first start", advice)
}

/// What the operator has to do after a first start that failed.
fn start_over(config: &Config) -> &'static str {
    match config.engine {
        EngineChoice::Postgres => {
            "drop the schema mayflydb from the database, empty the data folder, and start again"
        }
        EngineChoice::Rocksdb | EngineChoice::Memory => "empty the data folder, and start again",
    }
}

/// The path of the marker file; `None` if data is in memory only.
fn note(config: &Config) -> Option<PathBuf> {
    config.engine.has_folder().then(|| config.db_path.join(NOTE))
}

/// The value of a variable, or of the file in the variable with the suffix `_FILE`. An empty value
/// counts as unset.
fn variable(environment: &[(String, String)], name: &str) -> anyhow::Result<Option<String>> {
    let value = |name: &str| {
        let found = environment.iter().find(|(other, _)| other == name);
        found.map(|(_, value)| value.clone()).filter(|value| !value.is_empty())
    };
    let file = format!("{name}_FILE");
    match (value(name), value(&file)) {
        (Some(_), Some(_)) => bail!("{name} and {file} are both set"),
        (value, None) => Ok(value),
        (None, Some(path)) => {
            let text = fs::read_to_string(&path).with_context(|| format!("{file}: {path}"))?;
            Ok(Some(text.trim_end_matches(['\n', '\r']).to_owned()).filter(|it| !it.is_empty()))
        }
    }
}

/// Creates the user with the command `createUser`.
fn make_user(service: &Arc<Service>, user: &str, password: &str) -> anyhow::Result<()> {
    let mut command = DocBuilder::new();
    command.append("createUser", user).append("pwd", password);
    command.start_array("roles").push_document();
    command.append("role", "root").append("db", "admin").end().end();
    command.append("$db", "admin");
    let command = Zeroizing::new(command.finish().into_bytes());
    let command = RawDoc::new(&command).context("the command is too large")?;
    let incoming = Incoming::new(command);
    let connection = Connection::detached(0, "");
    let answered = dispatch(service, &connection, &incoming, DocBuilder::new());
    let reply = answered.doc.finish();
    match (answered.next, reply.as_doc().get("errmsg")) {
        (Next::Reply(outcome), _) if !outcome.failed => Ok(()),
        (_, Some(RawValue::String(why))) => bail!("{why}"),
        _ => bail!("the server gave no reason"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(variables: &[(&str, &str)]) -> anyhow::Result<FirstStart> {
        let owned = |(name, value): &(&str, &str)| ((*name).to_owned(), (*value).to_owned());
        FirstStart::read(&variables.iter().map(owned).collect::<Vec<_>>(), None)
    }

    #[test]
    fn a_user_needs_a_password_and_each_is_given_once() {
        assert!(!read(&[]).unwrap().has_user());
        assert!(!read(&[(USER, ""), (PASSWORD, "")]).unwrap().has_user());
        assert!(read(&[(USER, "u"), (PASSWORD, "p")]).unwrap().has_user());
        let why = |variables: &[(&str, &str)]| {
            let error = read(variables).unwrap_err();
            assert_eq!(FailureKind::of(&error), FailureKind::Options);
            format!("{error:#}")
        };
        assert!(why(&[(USER, "u")]).contains("MONGO_INITDB_ROOT_PASSWORD is not"));
        assert!(why(&[(PASSWORD, "secret")]).contains("MONGO_INITDB_ROOT_USERNAME is not"));
        assert!(!why(&[(PASSWORD, "secret")]).contains("secret"));
        let file = format!("{PASSWORD}_FILE");
        assert!(why(&[(USER, "u"), (PASSWORD, "p"), (&file, "f")]).contains("both set"));
        assert!(why(&[(USER, "u"), (&file, "/nowhere/at-all")]).contains("/nowhere/at-all"));
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("password");
        fs::write(&path, "two words\n").unwrap();
        let read = read(&[(USER, "u"), (&file, path.to_str().unwrap())]).unwrap();
        assert_eq!(read.user.unwrap().1.expose_secret(), "two words");
    }
}
