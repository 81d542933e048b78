//! The data folder: the check that it belongs to this server, and opening the engine in it.
//!
//! A new store is only created in a folder without files of other programs.

use std::fs;
use std::io;
use std::path::Path;
use std::sync::Arc;

use anyhow::{Context, anyhow};
use mayfly_kv::{Engine, MemoryEngine};
use mayfly_kv_rocksdb::{
    FORMAT_FILE, OlderFormat, OpenError, RocksEngine, RocksOptions, SCRATCH_FOLDER,
    UNFINISHED_FORMAT_FILE,
};

use crate::Config;
use crate::backup::restore::marker::MARKER;
use crate::config::EngineChoice;
use crate::failure::{Failure, FailureKind};
use crate::first_start::NOTE;
use crate::healthcheck::ANNOUNCEMENT;
use crate::{database, permissions, processes};

/// The folder of spill files in the data folder.
pub(crate) const SPILL_FOLDER: &str = SCRATCH_FOLDER;

/// The folder of search indexes in the data folder.
pub(crate) const SEARCH_FOLDER: &str = "search";

/// The file that RocksDB locks while it is open.
pub(crate) const LOCK_FILE: &str = "LOCK";

/// Files that identify the data of other programs.
const FOREIGN_FILES: &[(&str, &str)] = &[
    ("WiredTiger", "mongod"),
    ("storage.bson", "mongod"),
    ("mongod.lock", "mongod"),
    ("PG_VERSION", "PostgreSQL"),
    ("ibdata1", "MySQL"),
];

/// Files of this server that a crash may leave in a folder without a store: the data may be in a
/// PostgreSQL database.
const OWN_FILES: &[&str] = &[SPILL_FOLDER, SEARCH_FOLDER, ANNOUNCEMENT, NOTE];

/// Extensions of files that may be in a new data folder.
const HARMLESS_EXTENSIONS: &[&str] = &["conf", "log", "yaml", "yml"];

const CHOOSE_ANOTHER: &str = "choose another folder with --dbpath";

/// How to migrate the data of an older version.
const MIGRATE: &str = "to bring its data over, start the version that wrote it, take a dump (mongodump), start this version \
                          over an empty folder, named with --dbpath, and restore the dump there (mongorestore)";

/// How to convert the data of an older version.
const UPGRADE: &str = "start once with --upgrade to convert it; the old files stay in a folder in it, before-format-N, for the \
                          version that wrote it";

/// Refuses a folder of another program; changes nothing.
pub(crate) fn check(config: &Config) -> anyhow::Result<()> {
    let folder = &config.db_path;
    if config.engine.has_folder() && folder.join(MARKER).exists() {
        let text = "a restore into it is not complete";
        let advice = format!(
            "complete it by running the same 'mayflydb restore' again, or {CHOOSE_ANOTHER}"
        );
        return Err(anyhow!(text).context(failure(config, FailureKind::Folder, advice)));
    }
    if !config.engine.has_folder() || folder.join(FORMAT_FILE).exists() {
        return Ok(());
    }
    if folder.join(UNFINISHED_FORMAT_FILE).exists() {
        return Ok(());
    }
    match foreign_files(folder, config) {
        Ok(None) => Ok(()),
        Ok(Some(text)) => Err(anyhow!(text)).context(failure(
            config,
            FailureKind::Incompatible,
            format!("{CHOOSE_ANOTHER}, or empty this one if its files are not needed"),
        )),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(error) => Err(unusable(config, error)),
    }
}

/// Opens the engine. The folder is created if it is missing.
pub(crate) fn open(config: &Config, max_open_files: i32) -> anyhow::Result<Arc<dyn Engine>> {
    match config.engine {
        EngineChoice::Memory => Ok(Arc::new(MemoryEngine::new())),
        EngineChoice::Postgres => {
            if config.db_path.join(FORMAT_FILE).exists() {
                tracing::warn!(
                    folder = %config.db_path.display(),
                    "the data folder contains a store of the engine rocksdb, which is not used"
                );
            }
            prepare(config)?;
            database::open(config)
        }
        EngineChoice::Rocksdb => {
            let folder = &config.db_path;
            // Checked before anything is written: RocksDB starts a new log file before it tries the
            // lock.
            if let Some(holder) = processes::holding_lock(&folder.join(LOCK_FILE)) {
                return Err(in_use(config, Some(holder)));
            }
            prepare(config)?;
            let options = RocksOptions {
                cache_bytes: config.cache_bytes,
                max_open_files,
                reserve_bytes: config.reserve_bytes,
                older_format: match config.upgrade {
                    true => OlderFormat::Keep,
                    false => OlderFormat::Refuse,
                },
                ..RocksOptions::default()
            };
            match RocksEngine::open(folder, options) {
                Ok(engine) => Ok(engine),
                Err(error) => Err(open_failed(config, error)),
            }
        }
    }
}

/// Creates the folder if it is missing, restricts access to it, and checks that it can be written.
fn prepare(config: &Config) -> anyhow::Result<()> {
    let folder = &config.db_path;
    fs::create_dir_all(folder).map_err(|error| unusable(config, error))?;
    if !config.honor_system_umask {
        let restricted = permissions::restrict(folder).map_err(|error| unusable(config, error))?;
        if restricted > 0 {
            tracing::info!(
                folder = %folder.display(),
                entries = restricted,
                "removed the permissions of other users from files in the data folder"
            );
        }
    }
    let probe = folder.join(".write-test");
    // The engine handles a full disk: it has a reserve for being opened.
    match fs::write(&probe, b"").and_then(|()| fs::remove_file(&probe)) {
        Err(error) if !is_full(&error) => Err(unusable(config, error)),
        Ok(()) | Err(_) => Ok(()),
    }
}

fn is_full(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded)
}

fn failure(config: &Config, kind: FailureKind, advice: impl Into<String>) -> Failure {
    Failure::new(kind, format!("cannot open data folder {}", config.db_path.display()), advice)
}

/// The failure for an error of the file system.
fn unusable(config: &Config, error: io::Error) -> anyhow::Error {
    let advice = advice(error.kind());
    anyhow!(error).context(failure(config, FailureKind::Folder, advice))
}

/// The advice for the operator about a folder that cannot be used.
pub(crate) fn advice(kind: io::ErrorKind) -> String {
    match kind {
        io::ErrorKind::PermissionDenied => {
            format!("give the user of this process the right to write to it, or {CHOOSE_ANOTHER}")
        }
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => {
            format!("free space on its disk, or {CHOOSE_ANOTHER}")
        }
        io::ErrorKind::NotADirectory | io::ErrorKind::AlreadyExists => {
            format!("a file has this path, {CHOOSE_ANOTHER}")
        }
        _ => CHOOSE_ANOTHER.to_owned(),
    }
}

fn open_failed(config: &Config, error: OpenError) -> anyhow::Error {
    let (kind, advice) = match &error {
        OpenError::InUse => return in_use(config, None),
        OpenError::NewerFormat(_) => (
            FailureKind::Incompatible,
            format!("start the version that wrote it, or {CHOOSE_ANOTHER}"),
        ),
        OpenError::OlderFormat(_) => (FailureKind::Incompatible, MIGRATE.to_owned()),
        OpenError::NotUpgraded(_) => (FailureKind::Incompatible, UPGRADE.to_owned()),
        OpenError::Foreign(_) => (FailureKind::Incompatible, CHOOSE_ANOTHER.to_owned()),
        OpenError::Damaged(_) => (FailureKind::Damage, RESTORE.to_owned()),
        OpenError::Unavailable { kind, .. } => (FailureKind::Folder, advice(*kind)),
    };
    anyhow!(error).context(failure(config, kind, advice))
}

fn in_use(config: &Config, holder: Option<String>) -> anyhow::Error {
    let holder = holder.map_or_else(|| "another process".to_owned(), |holder| format!("{holder},"));
    let advice = format!("stop that process, or {CHOOSE_ANOTHER}");
    anyhow!("{holder} has it open").context(failure(config, FailureKind::Folder, advice))
}

/// The advice for the operator about damaged data.
const RESTORE: &str = "check the disk and restore the folder from a backup";

/// The failure for an error of the store.
pub(crate) fn store_failed(config: &Config, error: &mayfly_base::Error) -> anyhow::Error {
    use mayfly_base::ErrorCode;
    if config.engine == EngineChoice::Postgres {
        return database::store_failed(error);
    }
    let (kind, advice) = match error.code() {
        ErrorCode::UnsupportedFormat => (
            FailureKind::Incompatible,
            format!("start the version that wrote it, or {CHOOSE_ANOTHER}"),
        ),
        ErrorCode::DataCorruptionDetected => (FailureKind::Damage, RESTORE.to_owned()),
        ErrorCode::OutOfDiskSpace => (FailureKind::Folder, advice(io::ErrorKind::StorageFull)),
        ErrorCode::NotYetInitialized => (
            FailureKind::Folder,
            "use the store at its new place, or complete the copy by running its command again"
                .to_owned(),
        ),
        _ => (FailureKind::Folder, CHOOSE_ANOTHER.to_owned()),
    };
    anyhow!("{}", error.message()).context(failure(config, kind, advice))
}

/// The foreign files in a folder without a store; `None` if a new store may be created there.
fn foreign_files(folder: &Path, config: &Config) -> io::Result<Option<String>> {
    let mut unknown = None;
    for entry in fs::read_dir(folder)? {
        let name = entry?.file_name();
        let name = name.to_string_lossy();
        if let Some((_, program)) = FOREIGN_FILES.iter().find(|(sign, _)| *sign == name) {
            return Ok(Some(format!("it contains the data of {program} (the file {name})")));
        }
        if !is_harmless(folder, &name, config) {
            unknown.get_or_insert_with(|| name.into_owned());
        }
    }
    Ok(unknown.map(|name| format!("it contains files that are not mayflydb's ('{name}')")))
}

/// Hidden files, logs and configuration, `lost+found`, and files of this server.
fn is_harmless(folder: &Path, name: &str, config: &Config) -> bool {
    let path = folder.join(name);
    let same = |other: &Path| matches!((fs::canonicalize(&path), fs::canonicalize(other)), (Ok(a), Ok(b)) if a == b);
    let extension = path.extension().and_then(|extension| extension.to_str()).unwrap_or_default();
    name.starts_with('.')
        || name == "lost+found"
        || OWN_FILES.contains(&name)
        || name.contains(".log.")
        || HARMLESS_EXTENSIONS.contains(&extension)
        || config.archive.folder.as_deref().is_some_and(same)
        || config.backup.folder.as_deref().is_some_and(same)
        || config.log.path().is_some_and(|path| same(path))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_ours_is_named() {
        let config = Config::defaults().unwrap();
        let folder = tempfile::tempdir().unwrap();
        let found = |config: &Config| foreign_files(folder.path(), config).unwrap();
        for harmless in
            ["lost+found", ".keep", "mayflydb.yaml", "a.log", "a.log.2027-01-01", "_tmp"]
        {
            fs::write(folder.path().join(harmless), "").unwrap();
        }
        assert_eq!(found(&config), None);
        let archive = folder.path().join("old");
        fs::create_dir(&archive).unwrap();
        assert!(found(&config).unwrap().contains("'old'"));
        let mut config = config;
        config.archive.folder = Some(archive);
        assert_eq!(found(&config), None);
        fs::write(folder.path().join("000004.sst"), "").unwrap();
        assert!(found(&config).unwrap().contains("'000004.sst'"));
        fs::write(folder.path().join("WiredTiger"), "").unwrap();
        assert!(found(&config).unwrap().contains("mongod"));
    }
}
