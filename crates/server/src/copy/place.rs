//! What `--from` and `--to` name: a data folder, a PostgreSQL database, or a running server.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::anyhow;
use mayfly_kv::Engine;
use mayfly_kv_postgres::OpenError as DatabaseError;
use mayfly_kv_rocksdb::{FORMAT_FILE, OlderFormat};

use super::{CopyFlags, TRIED};
use crate::client::Uri;
use crate::data_folder::LOCK_FILE;
use crate::failure::{Failure, FailureKind};
use crate::{database, offline, processes};

const NAME_SERVER: &str =
    "name the server that has it open with --from mongodb://user:password@host:27017";

/// The place of a store.
#[derive(Debug)]
pub(super) enum Place {
    Folder(PathBuf),
    /// The URL may contain a password and is not shown.
    Database(String),
    Server(Uri),
}

fn mistake(text: String) -> anyhow::Error {
    let advice = "for example: mayflydb copy --from mongodb://127.0.0.1:27017 --to \
                  postgresql://mayfly@127.0.0.1:5432/store";
    anyhow!(text).context(Failure::new(FailureKind::Options, TRIED, advice))
}

fn unusable(text: String, advice: &str) -> anyhow::Error {
    anyhow!(text).context(Failure::new(FailureKind::Folder, TRIED, advice))
}

impl Place {
    /// Parses the value of a flag.
    ///
    /// # Errors
    /// A [`Failure`] for another form.
    pub(super) fn parse(flag: &str, text: &str) -> anyhow::Result<Place> {
        if text.starts_with("mongodb://") || text.starts_with("mongodb+srv://") {
            let parsed = Uri::parse(text).map_err(|error| mistake(format!("{flag}: {error:#}")));
            return parsed.map(Place::Server);
        }
        if text.starts_with("postgresql://") || text.starts_with("postgres://") {
            return Ok(Place::Database(text.to_owned()));
        }
        match text.contains("://") || text.is_empty() {
            false => Ok(Place::Folder(text.into())),
            true => {
                let forms = "a folder, postgresql:// or mongodb://";
                Err(mistake(format!("{flag} must be of one of the forms {forms}")))
            }
        }
    }

    /// Opens the engine of a target. A missing folder is created.
    ///
    /// # Errors
    /// A [`Failure`].
    pub(super) fn open_target(&self) -> anyhow::Result<Arc<dyn Engine>> {
        match self {
            Place::Server(_) => Err(mistake("--to must be a folder or a database".to_owned())),
            Place::Database(url) => database::open_at(url),
            Place::Folder(folder) => {
                refuse_open(folder, "stop that process, or name another folder with --to")?;
                let advice = "name an empty folder or a new one with --to";
                let of_io = |error: std::io::Error| {
                    unusable(format!("the folder {}: {error}", folder.display()), advice)
                };
                fs::create_dir_all(folder).map_err(of_io)?;
                if !folder.join(FORMAT_FILE).exists()
                    && fs::read_dir(folder).map_err(of_io)?.next().is_some()
                {
                    let text = format!("the folder {} is not empty", folder.display());
                    return Err(unusable(text, advice));
                }
                open_folder(folder, advice)
            }
        }
    }

    /// Opens the engine of a source that no server has open.
    ///
    /// # Errors
    /// A [`Failure`].
    pub(super) fn open_source(&self) -> anyhow::Result<Arc<dyn Engine>> {
        match self {
            Place::Server(_) => Err(mistake("a server has no engine to open".to_owned())),
            Place::Database(url) => database::open_at(url).map_err(|error| {
                let in_use = error.downcast_ref::<DatabaseError>();
                match matches!(in_use, Some(DatabaseError::InUse(_))) {
                    true => unusable(format!("{:#}", error.root_cause()), NAME_SERVER),
                    false => error,
                }
            }),
            Place::Folder(folder) => {
                refuse_open(folder, NAME_SERVER)?;
                let advice = "name the data folder of a store with --from";
                if !folder.join(FORMAT_FILE).exists() {
                    let text = format!("the folder {} contains no store", folder.display());
                    return Err(unusable(text, advice));
                }
                open_folder(folder, advice)
            }
        }
    }
}

fn refuse_open(folder: &Path, advice: &str) -> anyhow::Result<()> {
    match processes::holding_lock(&folder.join(LOCK_FILE)) {
        None => Ok(()),
        Some(holder) => Err(unusable(format!("{holder}, has {} open", folder.display()), advice)),
    }
}

fn open_folder(folder: &Path, advice: &str) -> anyhow::Result<Arc<dyn Engine>> {
    offline::open_engine(folder, OlderFormat::Refuse)
        .map_err(|error| unusable(format!("the folder {}: {error}", folder.display()), advice))
}

/// Checks what does not depend on the content of the places.
///
/// # Errors
/// A [`Failure`].
pub(super) fn check(from: &Place, to: &Place, flags: &CopyFlags) -> anyhow::Result<()> {
    let is_same = match (from, to) {
        (Place::Folder(from), Place::Folder(to)) => {
            let real = |folder: &Path| fs::canonicalize(folder).ok();
            from == to || real(from).is_some_and(|from| Some(from) == real(to))
        }
        (Place::Database(from), Place::Database(to)) => from == to,
        _ => false,
    };
    if is_same {
        return Err(mistake("--from and --to name the same store".to_owned()));
    }
    if matches!(to, Place::Server(_)) {
        return Err(mistake("--to must be a folder or a postgresql:// URL".to_owned()));
    }
    if flags.verify && matches!(from, Place::Server(_)) {
        let text = "--verify needs a source that no server has open: compare after the server of \
                    the source has ended, with its data folder or database as --from";
        return Err(mistake(text.to_owned()));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_parsed() {
        let parse = |text: &str| Place::parse("--from", text);
        assert!(matches!(parse("/var/lib/x").unwrap(), Place::Folder(_)));
        assert!(matches!(parse("postgresql://a@b/c").unwrap(), Place::Database(_)));
        assert!(matches!(parse("mongodb://127.0.0.1:1").unwrap(), Place::Server(_)));
        for wrong in ["", "http://x", "mongodb://", "mongodb+srv://x", "s3://bucket"] {
            assert!(parse(wrong).is_err(), "{wrong}");
        }
    }
}
