//! The built-in shell's side of this process: commands over a connection to the server, output,
//! files and variables.

use std::collections::HashMap;
use std::fs;
use std::io::Write as _;
use std::net::IpAddr;
use std::path::{Path, PathBuf};

use mayfly_scripts::ShellHost;
use mayfly_value::{DocBuf, RawDoc};
use secrecy::SecretString;

use crate::client::{Client, Uri, UriUser};

/// Connects the shell with the server at a port of this machine.
pub(crate) struct LocalHost {
    port: u16,
    client: Client,
    /// The folder of the program, in which relative paths are looked up, too.
    folder: PathBuf,
    variables: HashMap<String, String>,
}

impl LocalHost {
    /// Connects to the server for the program in this folder.
    ///
    /// # Errors
    /// The server cannot be reached.
    pub(crate) fn connect(port: u16, folder: &Path) -> anyhow::Result<LocalHost> {
        let client = Client::connect(&Uri::local(port))?;
        let variables = std::env::vars_os()
            .filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)))
            .collect();
        Ok(LocalHost { port, client, folder: folder.to_owned(), variables })
    }
}

impl ShellHost for LocalHost {
    fn run(&mut self, command: RawDoc<'_>) -> Result<DocBuf, String> {
        self.client.reply(command).map_err(|error| format!("{error:#}"))
    }

    fn log_in(&mut self, database: &str, user: &str, password: &str) -> Result<(), String> {
        let (name, source) = (user.to_owned(), database.to_owned());
        let user = UriUser { name, password: SecretString::from(password.to_owned()), source };
        let uri = Uri { user: Some(user), ..Uri::local(self.port) };
        self.client = Client::connect(&uri).map_err(|error| format!("{error:#}"))?;
        Ok(())
    }

    fn print(&mut self, line: &str) {
        // Whether anything reads the output does not matter to the program.
        let _ = writeln!(std::io::stdout().lock(), "{line}");
    }

    fn variable(&self, name: &str) -> Option<String> {
        self.variables.get(name).cloned()
    }

    fn read(&mut self, path: &str) -> Result<String, String> {
        let in_folder = self.folder.join(path);
        let path = if in_folder.exists() { in_folder } else { PathBuf::from(path) };
        fs::read_to_string(path).map_err(|error| error.to_string())
    }

    fn is_server(&self, host: &str, _: u16) -> bool {
        // Programs name the default port of a server that later listens there.
        let host = host.trim_matches(['[', ']']);
        host == "localhost" || host.parse::<IpAddr>().is_ok_and(|address| address.is_loopback())
    }
}
