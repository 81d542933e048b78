//! Opening the store in a PostgreSQL database, for the engine `postgres`.

use std::sync::Arc;
use std::time::Duration;

use anyhow::anyhow;
use mayfly_base::ErrorCode;
use mayfly_kv::{Engine, StandbyStats};
use mayfly_kv_postgres::{
    OpenError, PostgresEngine, PostgresOptions, StoreFacts, Waiting, WhenFree,
};
use secrecy::ExposeSecret;

use crate::Config;
use crate::failure::{Failure, FailureKind};

/// What the server tries; the URL may contain a password and is not shown.
const TRIED: &str = "cannot open the store in PostgreSQL";
/// The most snapshots that are held for clients, each with a connection of its own.
const HELD: usize = 16;
const CORRECT_URL: &str = "correct --storageUrl";
const UPGRADE: &str = "name another database with --storageUrl, or start the other version";

/// Opens the store, and makes its schema if the database has none.
///
/// # Errors
/// A [`Failure`] with advice for each reason.
pub(crate) fn open(config: &Config) -> anyhow::Result<Arc<dyn Engine>> {
    let (url, options) = location(config)?;
    if config.repl_set.is_some() && !config.has_members() {
        let advice = "leave --replSet out, because PostgreSQL replicates the data, or add \
                      --storageStandby: the servers over one database are the members of the set";
        let failure = Failure::new(FailureKind::Options, TRIED, advice);
        return Err(
            anyhow!("a replica set of one member needs the embedded engine").context(failure)
        );
    }
    if config.is_secondary {
        return PostgresEngine::open_secondary(url, options)
            .map(|engine| engine as Arc<dyn Engine>)
            .map_err(failed);
    }
    let engine = match PostgresEngine::open(url, options) {
        Ok(engine) => engine,
        Err(error) => return Err(failed(error)),
    };
    if let Err(why) = check_standbys(config, &engine.stats().standbys.unwrap_or_default()) {
        // The reason is reported.
        let _ = engine.close();
        return Err(why);
    }
    Ok(engine)
}

/// Checks that a failover of the database loses no acknowledged write, if the configuration wants
/// that; otherwise a warning says so.
fn check_standbys(config: &Config, standbys: &StandbyStats) -> anyhow::Result<()> {
    if standbys.are_synchronous {
        return Ok(());
    }
    if config.storage_require_synchronous {
        let advice = "name a standby in synchronous_standby_names of PostgreSQL, or leave \
                      --requireSynchronousStandby out";
        let failure = Failure::new(FailureKind::General, TRIED, advice);
        let text =
            "commits do not wait for a standby, so that a failover could lose acknowledged writes";
        return Err(anyhow!(text).context(failure));
    }
    if standbys.databases > 0 {
        tracing::warn!(
            startupWarning = true,
            standbys = standbys.databases,
            "The standbys of PostgreSQL are asynchronous: a failover can lose acknowledged writes, also those with w: \"majority\""
        );
    }
    Ok(())
}

/// Waits until the store has no owner, or one that shows no sign of life. `look` ends the wait by
/// returning false. Returns whether the store can be opened.
///
/// # Errors
/// As [`open`].
pub(crate) fn await_store(
    config: &Config,
    when_free: &dyn Fn() -> WhenFree,
    look: &mut dyn FnMut(&Waiting) -> bool,
) -> anyhow::Result<bool> {
    let (url, options) = location(config)?;
    PostgresEngine::await_store(url, &options, when_free, look).map_err(failed)
}

/// The failure of a server whose store another one has taken over.
pub(crate) fn taken_over() -> anyhow::Error {
    let advice = "nothing is lost; clients use the other server, and this one can be started again";
    let failure = Failure::new(FailureKind::Folder, "stopped", advice);
    anyhow!("another server has taken the store over").context(failure)
}

/// Opens the store in the database of this URL for a restore.
///
/// # Errors
/// As [`open`].
pub(crate) fn open_at(url: &str) -> anyhow::Result<Arc<dyn Engine>> {
    match PostgresEngine::open(url, PostgresOptions::default()) {
        Ok(engine) => Ok(engine),
        Err(error) => Err(failed(error)),
    }
}

/// The state of the store, without opening it.
///
/// # Errors
/// As [`open`].
pub(crate) fn inspect(config: &Config) -> anyhow::Result<StoreFacts> {
    let (url, options) = location(config)?;
    PostgresEngine::inspect(url, &options).map_err(failed)
}

fn location(config: &Config) -> anyhow::Result<(&str, PostgresOptions)> {
    let Some(url) = &config.storage_url else {
        let advice = "name the database with --storageUrl postgresql://user@host:5432/database";
        let failure = Failure::new(FailureKind::Options, TRIED, advice);
        return Err(anyhow!("the engine postgres needs a URL").context(failure));
    };
    let connections = config.storage_connections;
    let options = PostgresOptions {
        connections,
        held_snapshots: HELD,
        outage: Duration::from_millis(config.storage_wait_ms),
        others_wait: config.storage_standby,
        address: config
            .advertise
            .as_ref()
            .filter(|_| config.has_members())
            .map(|it| it.to_lowercase()),
        ..PostgresOptions::default()
    };
    Ok((url.expose_secret(), options))
}

fn failed(error: OpenError) -> anyhow::Error {
    let (kind, advice) = match &error {
        OpenError::Options(_) => (FailureKind::Options, CORRECT_URL),
        OpenError::PasswordFile(_) => {
            (FailureKind::Options, "correct passfile= in --storageUrl, or PGPASSFILE")
        }
        OpenError::Tls(_) => {
            (FailureKind::Options, "correct sslmode= and sslrootcert= in --storageUrl")
        }
        OpenError::Login(_) => {
            (FailureKind::General, "correct the user in --storageUrl, and passfile= or PGPASSWORD")
        }
        OpenError::NoDatabase(_) => {
            (FailureKind::General, "create it (createdb), or name another in --storageUrl")
        }
        OpenError::NoRights(_) => (
            FailureKind::General,
            "grant the user CREATE on the database, or create the schema mayflydb with this user \
             as its owner",
        ),
        OpenError::Asynchronous => {
            (FailureKind::General, "set synchronous_commit to on or remote_apply for this user")
        }
        OpenError::ServerTooOld(_) | OpenError::NotPostgres(_) | OpenError::Encoding(_) => (
            FailureKind::Incompatible,
            "use a database with the encoding UTF8 in PostgreSQL 15 or newer",
        ),
        OpenError::NewerFormat(_) | OpenError::OlderFormat(_) | OpenError::Foreign(_) => {
            (FailureKind::Incompatible, UPGRADE)
        }
        OpenError::ReadOnly => (FailureKind::Folder, "name the primary in --storageUrl"),
        OpenError::InUse(_) => (
            FailureKind::Folder,
            "stop that server, or start both with --storageStandby, so that one waits",
        ),
        OpenError::Unavailable(_) => {
            (FailureKind::Folder, "start the database, or correct --storageUrl")
        }
    };
    anyhow!(error).context(Failure::new(kind, TRIED, advice))
}

/// The failure for an error of the store after the engine was opened.
pub(crate) fn store_failed(error: &mayfly_base::Error) -> anyhow::Error {
    let (kind, advice) = match error.code() {
        ErrorCode::UnsupportedFormat => (FailureKind::Incompatible, UPGRADE),
        ErrorCode::DataCorruptionDetected => {
            (FailureKind::Damage, "restore the database from a backup")
        }
        ErrorCode::NotYetInitialized => {
            (FailureKind::Folder, "complete it by running the command that was interrupted again")
        }
        _ => (FailureKind::Folder, "start the database, or correct --storageUrl"),
    };
    anyhow!("{}", error.message()).context(Failure::new(kind, TRIED, advice))
}
