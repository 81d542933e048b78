//! The options of the engine, and the URL of the database.
//!
//! The URL is that of libpq: `postgresql://user@host:5432/database?sslmode=verify-full`, or a list
//! of `key=value`. The password may be in it, but a file is better: `passfile=` in the URL, or the
//! environment variables `PGPASSFILE` and `PGPASSWORD`, or `~/.pgpass`.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use tokio_postgres::Config;
use tokio_postgres::config::{Host, SslMode};

use crate::open_error::OpenError;
use crate::password;
use crate::tls::Tls;

/// The schema of a store whose options name none.
const SCHEMA: &str = "mayflydb";
/// The longest name of a schema; PostgreSQL cuts names after 63 bytes.
const SCHEMA_MAX: usize = 63;

/// The options of a store in PostgreSQL.
#[derive(Clone, Debug)]
pub struct PostgresOptions {
    /// The schema with the tables. It is made if it is missing.
    pub schema: String,
    /// The most connections for which operations queue. Others are made for single reads, for the
    /// ownership of the store, for settling a commit, for held snapshots, and for operations that
    /// hold one already.
    pub connections: usize,
    /// The most snapshots that are held at the same time, each with a connection of its own. The
    /// oldest one ends when there are more.
    pub held_snapshots: usize,
    /// How long a call waits for a connection and for a reply.
    pub deadline: Duration,
    /// How long an operation waits for a connection while the database cannot be reached, for
    /// example during its failover.
    pub outage: Duration,
    /// How long all calls of a store that is being closed may take together. Those that are under
    /// way after this time fail, because the database does not answer.
    pub longest_close: Duration,
    /// How long opening waits for another server that has the store open.
    pub wait_for_owner: Duration,
    /// Whether other servers wait to take the store over, so that this one shows that it lives.
    pub others_wait: bool,
    /// The address of this server for clients, `host:port`, which other servers over the store see.
    pub address: Option<String>,
    /// After how long without a sign of life a server that waits takes the store over; at least
    /// four seconds, whatever is given.
    pub lease: Duration,
}

impl Default for PostgresOptions {
    fn default() -> PostgresOptions {
        PostgresOptions {
            schema: SCHEMA.into(),
            connections: 60,
            held_snapshots: 30,
            deadline: Duration::from_secs(30),
            outage: Duration::ZERO,
            longest_close: Duration::from_secs(8),
            wait_for_owner: Duration::from_secs(5),
            others_wait: false,
            address: None,
            lease: Duration::from_secs(10),
        }
    }
}

impl PostgresOptions {
    pub(crate) fn check(&self) -> Result<(), OpenError> {
        let is_letter = |c: char| c.is_ascii_lowercase() || c == '_';
        let is_name = self.schema.starts_with(is_letter)
            && self.schema.chars().all(|c| is_letter(c) || c.is_ascii_digit())
            && self.schema.len() <= SCHEMA_MAX
            && !self.schema.starts_with("pg_");
        if !is_name {
            return Err(OpenError::Options(format!(
                "the schema '{}' must consist of a-z, 0-9 and _, and begin with a letter",
                self.schema
            )));
        }
        if self.connections < 2 || self.held_snapshots == 0 {
            return Err(OpenError::Options(
                "there must be at least two connections and one held snapshot".into(),
            ));
        }
        Ok(())
    }
}

/// Which certificates are accepted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SslCheck {
    /// Any.
    Nothing,
    /// Those whose chain ends in a root.
    Chain,
    /// Those that also name the host.
    Host,
}

/// Where the database is, and how to connect to it.
#[derive(Clone)]
pub(crate) struct Target {
    pub(crate) config: Config,
    /// `None` where the URL disables TLS.
    pub(crate) tls: Option<Tls>,
}

impl fmt::Debug for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The driver hides the password as well.
        f.debug_struct("Target").field("tls", &self.tls.is_some()).finish_non_exhaustive()
    }
}

/// Parameters of libpq that the driver does not know.
#[derive(Default)]
struct Extra {
    ssl_mode: Option<String>,
    root_cert: Option<PathBuf>,
    pass_file: Option<PathBuf>,
}

impl Extra {
    /// Takes the parameter, or returns false.
    fn take(&mut self, key: &str, value: &str) -> bool {
        match key {
            "sslmode" => self.ssl_mode = Some(value.into()),
            "sslrootcert" if value == "system" => self.root_cert = None,
            "sslrootcert" => self.root_cert = Some(value.into()),
            "passfile" => self.pass_file = Some(value.into()),
            _ => return false,
        }
        true
    }
}

impl Target {
    /// Reads the URL, and the password from where it is kept.
    pub(crate) fn parse(text: &str) -> Result<Target, OpenError> {
        let mut extra = Extra::default();
        let rest = without_extra(text, &mut extra)?;
        let mut config = Config::from_str(&rest)
            // The driver's message may quote a part of the text, and thereby of the password.
            .map_err(|error| match text.contains("pass") || text.contains('@') {
                true => OpenError::Options("the URL of PostgreSQL is malformed".into()),
                false => OpenError::Options(format!("the URL of PostgreSQL: {error}")),
            })?;
        if config.get_hosts().is_empty() && config.get_hostaddrs().is_empty() {
            return Err(OpenError::Options("the URL of PostgreSQL names no host".into()));
        }
        if config.get_user().is_none() {
            return Err(OpenError::Options("the URL of PostgreSQL names no user".into()));
        }
        if config.get_password().is_none()
            && let Some(password) = password::find(&config, extra.pass_file.as_deref())?
        {
            config.password(password);
        }
        let is_local = config.get_hosts().iter().all(|host| !matches!(host, Host::Tcp(_)));
        let (mode, check) = match extra.ssl_mode.as_deref() {
            Some("disable") => (SslMode::Disable, None),
            None if is_local => (SslMode::Disable, None),
            None | Some("prefer" | "allow") => (SslMode::Prefer, Some(SslCheck::Nothing)),
            Some("require") if extra.root_cert.is_some() => {
                (SslMode::Require, Some(SslCheck::Chain))
            }
            Some("require") => (SslMode::Require, Some(SslCheck::Nothing)),
            Some("verify-ca") => (SslMode::Require, Some(SslCheck::Chain)),
            Some("verify-full") => (SslMode::Require, Some(SslCheck::Host)),
            Some(other) => {
                return Err(OpenError::Options(format!("sslmode '{other}' is unknown")));
            }
        };
        config.ssl_mode(mode);
        let tls = check.map(|check| Tls::new(check, extra.root_cert.as_deref())).transpose()?;
        Ok(Target { config, tls })
    }
}

/// The text without the parameters that the driver does not know.
fn without_extra(text: &str, extra: &mut Extra) -> Result<String, OpenError> {
    let text = text.trim();
    if !text.starts_with("postgres://") && !text.starts_with("postgresql://") {
        let words = text
            .split_whitespace()
            .filter(|word| word.split_once('=').is_none_or(|(key, value)| !extra.take(key, value)));
        return Ok(words.collect::<Vec<_>>().join(" "));
    }
    let Some((before, query)) = text.split_once('?') else { return Ok(text.into()) };
    let mut kept = Vec::new();
    for pair in query.split('&') {
        let mut decoded = url::form_urlencoded::parse(pair.as_bytes());
        match decoded.next() {
            Some((key, value)) if extra.take(&key, &value) => {}
            _ => kept.push(pair),
        }
    }
    Ok(if kept.is_empty() { before.into() } else { format!("{before}?{}", kept.join("&")) })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<Target, OpenError> {
        Target::parse(text)
    }

    #[test]
    fn urls_and_lists() {
        let target = parse("postgresql://me:secret@db:7/data?sslmode=disable").unwrap();
        assert_eq!(target.config.get_user(), Some("me"));
        assert_eq!(target.config.get_ports(), [7]);
        assert!(target.tls.is_none());
        let target = parse("host=db user=me password=x sslmode=require").unwrap();
        assert!(target.tls.is_some());
        assert_eq!(target.config.get_ssl_mode(), SslMode::Require);
    }

    #[test]
    fn wrong_ones_are_refused_without_their_password() {
        for text in [
            "postgresql://me:secret@db:port/data",
            "postgresql://me:secret@db/data?sslmode=maybe",
            "postgresql://me:secret@db/data?passwort=secret",
            "postgresql:///data?user=me",
            "host=db password=secret",
            "secret",
        ] {
            let error = parse(text).map(|_| ()).unwrap_err();
            assert!(matches!(error, OpenError::Options(_)), "{text}: {error:?}");
            let shown = format!("{error} {error:?}");
            assert!(text == "secret" || !shown.contains("secret"), "{shown}");
        }
        let target = parse("postgresql://me:secret@db/data?sslmode=disable").unwrap();
        assert!(!format!("{target:?} {:?}", target.config).contains("secret"));
    }

    #[test]
    fn names_of_schemas() {
        for (name, is_fine) in [("mayflydb", true), ("a1_b", true), ("A", false), ("pg_x", false)] {
            let options = PostgresOptions { schema: name.into(), ..PostgresOptions::default() };
            assert_eq!(options.check().is_ok(), is_fine, "{name}");
        }
    }
}
