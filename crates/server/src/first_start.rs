//! What a server does once, when its data folder is new: it makes the first user, and runs scripts.
//!
//! Containers say so by the variables of the reference's image: `MONGO_INITDB_ROOT_USERNAME` and `MONGO_INITDB_ROOT_PASSWORD` (each
//! also with `_FILE` behind it, which names a file that holds the value), and `MONGO_INITDB_DATABASE`, the database that scripts begin
//! in. Scripts are the files `*.sh` and `*.js` of a folder (`init.folder`), in the order of their names.
//!
//! 1. A note in the data folder says that this was begun. A server that finds the note of an earlier start does not start.
//! 2. The first user is made, with the role `root` on `admin`.
//! 3. While scripts run, only this machine is served, and everybody may do everything.
//! 4. The note is removed. From here on `--auth` holds, which the first user implies.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;

use anyhow::{Context, anyhow, bail};
use mayfly_commands::{Incoming, Next, dispatch};
use mayfly_service::{Connection, Service};
use mayfly_storage::Collection;
use mayfly_value::{DocBuilder, RawDoc, RawValue};
use secrecy::{ExposeSecret, SecretString};
use zeroize::Zeroizing;

use crate::Config;
use crate::config::EngineChoice;
use crate::failure::{Failure, FailureKind};

/// In the data folder while the first start is under way.
pub(crate) const NOTE: &str = "first-start";

const USER: &str = "MONGO_INITDB_ROOT_USERNAME";
const PASSWORD: &str = "MONGO_INITDB_ROOT_PASSWORD";
const DATABASE: &str = "MONGO_INITDB_DATABASE";

/// What to do when the data folder is new.
#[derive(Clone, Debug, Default)]
pub struct FirstStart {
    /// The first user and its password.
    user: Option<(String, SecretString)>,
    /// The database that scripts begin in.
    database: String,
    /// The folder of scripts.
    folder: Option<PathBuf>,
}

impl FirstStart {
    /// Reads the variables; `folder` is where the scripts are.
    ///
    /// # Errors
    /// A user without a password, a password without a user, a variable that is given twice, a file that cannot be read.
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
            let advice = "set both variables, or the same two with _FILE behind them, or none";
            Failure::new(FailureKind::Options, "cannot make the first user", advice)
        })
    }

    /// Whether there is a first user, who has to log in.
    pub fn has_user(&self) -> bool {
        self.user.is_some()
    }

    /// Whether the data is new, and something has to be done with it.
    ///
    /// # Errors
    /// An earlier first start did not come to its end.
    pub(crate) fn is_due(&self, service: &Service, config: &Config) -> anyhow::Result<bool> {
        let note = note(config);
        if note.as_ref().is_some_and(|note| note.exists()) {
            return Err(anyhow!(
                "an earlier start was to make the first user and run scripts, and did not end"
            ))
            .context(failure("empty the data folder, and start again"));
        }
        if self.user.is_none() && self.scripts()?.is_empty() {
            return Ok(false);
        }
        let own = ["admin", "config", "local"];
        let is_own = |collection: &Arc<Collection>| own.contains(&collection.namespace().db());
        Ok(service.store.collections(None).iter().all(is_own)
            && !service.access.has_users_or_roles(&service.store)?)
    }

    /// Notes that the first start has begun, and makes the first user.
    ///
    /// # Errors
    /// The note cannot be written, the user not made.
    pub(crate) fn begin(&self, service: &Arc<Service>, config: &Config) -> anyhow::Result<()> {
        if let Some(note) = note(config) {
            fs::write(&note, b"").with_context(|| failure("give the data folder room"))?;
        }
        if let Some((user, password)) = &self.user {
            make_user(service, user, password.expose_secret())
                .with_context(|| failure("choose another name"))?;
            tracing::info!(user, "made the first user");
        }
        Ok(())
    }

    /// Runs the scripts, against the server at this port of this machine.
    ///
    /// # Errors
    /// A script that cannot be run, or that fails.
    pub(crate) fn run_scripts(&self, port: u16) -> anyhow::Result<()> {
        for script in self.scripts()? {
            tracing::info!(script = %script.display(), "running a script of the first start");
            self.run_script(&script, port).with_context(|| {
                let advice = "correct the script, empty the data folder, and start again";
                let tried = format!("cannot run the script {}", script.display());
                Failure::new(FailureKind::General, tried, advice)
            })?;
        }
        Ok(())
    }

    /// Notes that the first start is over.
    ///
    /// # Errors
    /// The note cannot be removed.
    pub(crate) fn end(&self, config: &Config) -> anyhow::Result<()> {
        match note(config).map(fs::remove_file) {
            None | Some(Ok(())) => Ok(()),
            Some(Err(error)) => {
                Err(error).context(failure("remove the file first-start from the data folder"))
            }
        }
    }

    /// The scripts, in the order in which they run.
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
        let port = port.to_string();
        let shell = ["mongosh", "--quiet", "--host", "127.0.0.1", "--port", &port];
        let mut command;
        if script.extension().is_some_and(|end| end == "sh") {
            // As the reference's image does: in a shell that has the client's words in `mongo`.
            command = Command::new("bash");
            command.arg("-ec").arg("mongo=(\"${@:2}\"); . \"$1\"").arg("bash").arg(script);
            command.args(shell);
        } else {
            command = Command::new(shell[0]);
            command.args(&shell[1..]).arg(&self.database).arg(script);
        }
        // A server that the script starts is not the one in the background.
        command.env_remove(crate::daemon::MARK);
        let program = command.get_program().to_string_lossy().into_owned();
        let status = command.stdin(Stdio::null()).status().map_err(|error| match error.kind() {
            io::ErrorKind::NotFound => anyhow!("{program} is not installed beside the server"),
            _ => anyhow!(error),
        })?;
        match status.success() {
            true => Ok(()),
            false => bail!("it ended with {status}"),
        }
    }
}

fn failure(advice: &str) -> Failure {
    Failure::new(FailureKind::General, "cannot finish the first start", advice)
}

/// The path of the note; nothing where the data is in memory only.
fn note(config: &Config) -> Option<PathBuf> {
    (config.engine != EngineChoice::Memory).then(|| config.db_path.join(NOTE))
}

/// A variable's value, from itself or from the file that it names with `_FILE` behind it. Empty is as good as unset.
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

/// Makes the user by the command that clients make users by.
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
        _ => bail!("the server does not say why"),
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
