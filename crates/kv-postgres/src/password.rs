//! The password of the user, from the places where libpq looks for it: `PGPASSWORD`, then the
//! password file.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};

use tokio_postgres::Config;
use tokio_postgres::config::Host;

use crate::open_error::OpenError;

const DEFAULT_PORT: u16 = 5432;
/// A larger file is not a password file.
const FILE_MAX: u64 = 1 << 20;

/// The password, if there is one.
pub(crate) fn find(config: &Config, file: Option<&Path>) -> Result<Option<String>, OpenError> {
    if file.is_none()
        && let Ok(password) = env::var("PGPASSWORD")
    {
        return Ok(Some(password));
    }
    let named = file.map(Path::to_owned).or_else(|| env::var_os("PGPASSFILE").map(PathBuf::from));
    let is_named = named.is_some();
    let home = || env::var_os("HOME").map(|home| Path::new(&home).join(".pgpass"));
    let Some(path) = named.or_else(home) else { return Ok(None) };
    match read(&path) {
        Ok(text) => Ok(lookup(&text, config)),
        Err(_) if !is_named => Ok(None),
        Err(text) => Err(OpenError::PasswordFile(format!("{}: {text}", path.display()))),
    }
}

fn read(path: &Path) -> Result<String, String> {
    let metadata = fs::metadata(path).map_err(|error| error.to_string())?;
    if !metadata.is_file() || metadata.len() > FILE_MAX {
        return Err("it is not a password file".into());
    }
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt;
        if metadata.permissions().mode() & 0o077 != 0 {
            return Err("other users can read the password file; give it the mode 0600".into());
        }
    }
    fs::read_to_string(path).map_err(|error| error.to_string())
}

/// The password of the first line that matches: `host:port:database:user:password`, where `*`
/// matches anything and a backslash escapes a colon.
fn lookup(text: &str, config: &Config) -> Option<String> {
    let host = match config.get_hosts().first() {
        Some(Host::Tcp(host)) => host.as_str(),
        _ => "localhost",
    };
    let port = config.get_ports().first().copied().unwrap_or(DEFAULT_PORT).to_string();
    let user = config.get_user().unwrap_or_default();
    let wanted = [host, &port, config.get_dbname().unwrap_or(user), user];
    text.lines().filter(|line| !line.starts_with('#')).find_map(|line| {
        let mut fields = fields(line);
        let password = fields.pop()?;
        let matches = fields.len() == wanted.len()
            && fields.iter().zip(wanted).all(|(field, wanted)| field == "*" || field == wanted);
        matches.then_some(password)
    })
}

fn fields(line: &str) -> Vec<String> {
    let (mut fields, mut escaped) = (vec![String::new()], false);
    for c in line.chars() {
        let last = fields.len() - 1;
        match c {
            '\\' if !escaped => escaped = true,
            ':' if !escaped && last < 4 => fields.push(String::new()),
            _ => {
                fields[last].push(c);
                escaped = false;
            }
        }
    }
    fields
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_line_that_matches() {
        let config: Config = "postgresql://me@db/data".parse().unwrap();
        let text =
            "# a comment\nother:*:*:*:no\ndb:5433:*:me:no\ndb:5432:da\\ta:me:a\\:b:c\n*:*:*:*:last";
        assert_eq!(lookup(text, &config).as_deref(), Some("a:b:c"));
        assert_eq!(lookup("*:*:*:you:no\nshort:line", &config), None);
    }
}
