//! The place of a repository: a folder of this machine, or `s3://bucket/prefix`.
//!
//! A running server makes backups only under `backup.folder` and `backup.urls` of its
//! configuration, because the command's text comes from a client. Credentials, region and endpoint
//! of S3 come from the environment of the process (`AWS_ACCESS_KEY_ID`, `AWS_SECRET_ACCESS_KEY`,
//! `AWS_REGION`, `AWS_ENDPOINT`, ...), never from clients.

use std::path::{Component, Path, PathBuf};
use std::sync::Arc;

use mayfly_base::{Error, ErrorCode, Result};
use mayfly_repository::FolderStore;
use object_store::prefix::PrefixStore;
use object_store::{ObjectStore, ObjectStoreScheme};

/// The allowed destinations of backups.
#[derive(Clone, Debug, Default)]
pub struct BackupOptions {
    /// The folder that paths are relative to.
    pub folder: Option<PathBuf>,
    /// The allowed prefixes of URLs.
    pub urls: Vec<String>,
    /// The repository into which the log is archived.
    pub archive_to: Option<String>,
    /// The interval of the archive.
    pub log_interval_secs: u64,
    /// By how many bytes the log may exceed its limit while it waits for the archive; `None` for
    /// the limit itself.
    pub max_lag_bytes: Option<u64>,
}

/// The place of a repository.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    /// A folder of this machine.
    Folder(PathBuf),
    /// A URL of S3.
    Url(String),
}

/// Whether a missing folder is created.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Missing {
    Create,
    Refuse,
}

fn invalid(text: impl Into<String>) -> Error {
    Error::new(ErrorCode::InvalidOptions, text.into())
}

impl BackupOptions {
    /// The place that a client has named, if the configuration allows it.
    ///
    /// # Errors
    /// 72 InvalidOptions.
    pub(crate) fn allowed(&self, given: &str) -> Result<Place> {
        match given.contains("://") {
            true => self.allowed_url(given),
            false => self.allowed_folder(given),
        }
    }

    fn allowed_folder(&self, given: &str) -> Result<Place> {
        let Some(root) = &self.folder else {
            return Err(invalid(format!(
                "'to' is the folder '{given}', but 'backup.folder' is not set in the server's \
                 configuration"
            )));
        };
        let given_path = Path::new(given);
        let relative = given_path.strip_prefix(root).unwrap_or(given_path);
        let is_inside = relative.components().all(|part| matches!(part, Component::Normal(_)));
        let place = root.join(relative);
        // A symbolic link below the folder could lead out of it.
        let stays = || Some(real_path(&place)?.starts_with(real_path(root)?));
        match is_inside && !given.contains('\0') && stays() == Some(true) {
            true => Ok(Place::Folder(place)),
            false => Err(invalid(format!(
                "'to' must be a folder inside of 'backup.folder' of the server's configuration, \
                 but is '{given}'"
            ))),
        }
    }

    fn allowed_url(&self, given: &str) -> Result<Place> {
        let is_under = |prefix: &String| {
            given.strip_prefix(prefix.as_str()).is_some_and(|rest| {
                prefix.ends_with('/') || rest.is_empty() || rest.starts_with('/')
            })
        };
        // A path with `..` or a query could lead outside of the allowed prefix.
        let is_tricky = given.contains("..") || given.contains(['?', '#', '%', '@', '\\']);
        match !is_tricky && self.urls.iter().any(is_under) {
            true => Ok(Place::Url(given.to_owned())),
            false => Err(invalid(format!(
                "'to' is not under one of the URLs in 'backup.urls' of the server's \
                 configuration: '{given}'"
            ))),
        }
    }
}

impl Place {
    /// The place that an operator has named on the command line.
    pub(crate) fn of_operator(given: &str) -> Place {
        match given.contains("://") {
            true => Place::Url(given.to_owned()),
            false => Place::Folder(PathBuf::from(given)),
        }
    }

    /// Opens the object store of the place.
    ///
    /// # Errors
    /// 72 InvalidOptions for a URL that is not supported; errors of the folder.
    pub(crate) fn open(&self, missing: Missing, now_ms: i64) -> Result<Arc<dyn ObjectStore>> {
        match self {
            Place::Folder(folder) => {
                let opened = match missing {
                    Missing::Create => FolderStore::open_or_create(folder, now_ms),
                    Missing::Refuse => FolderStore::open(folder, now_ms),
                };
                Ok(Arc::new(opened?))
            }
            Place::Url(given) => open_url(given),
        }
    }
}

impl std::fmt::Display for Place {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Place::Folder(folder) => write!(f, "{}", folder.display()),
            Place::Url(url) => f.write_str(url),
        }
    }
}

/// The path without symbolic links; parts at its end that do not exist stay as they are. `None` if
/// one of its links leads to a path that does not exist.
pub(super) fn real_path(path: &Path) -> Option<PathBuf> {
    let path = std::path::absolute(path).ok()?;
    for above in path.ancestors() {
        if let (Ok(real), Ok(rest)) = (above.canonicalize(), path.strip_prefix(above)) {
            return Some(real.join(rest));
        }
        if above.is_symlink() {
            return None;
        }
    }
    None
}

fn open_url(given: &str) -> Result<Arc<dyn ObjectStore>> {
    let refused = |why: &dyn std::fmt::Display| invalid(format!("the place '{given}': {why}"));
    let url = url::Url::parse(given).map_err(|error| refused(&error))?;
    let (scheme, _) = ObjectStoreScheme::parse(&url).map_err(|error| refused(&error))?;
    if scheme != ObjectStoreScheme::AmazonS3 || url.scheme() != "s3" {
        return Err(refused(&"only folders and s3:// are supported"));
    }
    // `reqwest` is built without a cryptographic library and uses that of the process. An error
    // means that one was installed before.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let options = std::env::vars_os().filter_map(|(name, value)| {
        let name = name.into_string().ok().filter(|name| name.starts_with("AWS_"))?;
        Some((name.to_ascii_lowercase(), value.into_string().ok()?))
    });
    let (store, prefix) =
        object_store::parse_url_opts(&url, options).map_err(|error| refused(&error))?;
    match prefix.as_ref().is_empty() {
        true => Ok(Arc::from(store)),
        false => Ok(Arc::new(PrefixStore::new(store, prefix))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clients_name_only_places_of_the_configuration() {
        let options = BackupOptions {
            folder: Some("/backup".into()),
            urls: vec!["s3://bucket/prod".into(), "s3://other/".into()],
            ..BackupOptions::default()
        };
        let folder = |path: &str| Some(Place::Folder(path.into()));
        let url = |text: &str| Some(Place::Url(text.into()));
        for (given, expected) in [
            ("daily", folder("/backup/daily")),
            ("/backup/daily", folder("/backup/daily")),
            ("/backup", folder("/backup")),
            ("/backups", None),
            ("/etc", None),
            ("../etc", None),
            ("/backup/../etc", None),
            ("a/../../etc", None),
            ("a\0", None),
            ("s3://bucket/prod", url("s3://bucket/prod")),
            ("s3://bucket/prod/a", url("s3://bucket/prod/a")),
            ("s3://bucket/production", None),
            ("s3://bucket/prod/../x", None),
            ("s3://bucket/prod?x=1", None),
            ("s3://other/x", url("s3://other/x")),
            ("file:///etc", None),
        ] {
            let allowed = options.allowed(given);
            assert_eq!(allowed.as_ref().ok(), expected.as_ref(), "{given}: {allowed:?}");
        }
        assert!(BackupOptions::default().allowed("x").is_err());
    }

    #[test]
    fn symbolic_links_do_not_lead_out_of_the_folder() {
        let folder = tempfile::tempdir().unwrap();
        let (root, outside) = (folder.path().join("root"), folder.path().join("outside"));
        for made in [&root, &outside, &root.join("inside")] {
            std::fs::create_dir(made).unwrap();
        }
        let link = |name: &str, to: &Path| std::os::unix::fs::symlink(to, root.join(name)).unwrap();
        link("out", &outside);
        link("in", &root.join("inside"));
        link("nowhere", &folder.path().join("new"));
        let allowed = |root: &Path, given: &str| {
            let options = BackupOptions { folder: Some(root.into()), ..BackupOptions::default() };
            options.allowed(given).is_ok()
        };
        for (given, expected) in [
            ("in", true),
            ("in/new/deep", true),
            ("new", true),
            ("out", false),
            ("out/new/deep", false),
            ("nowhere", false),
            ("nowhere/new", false),
        ] {
            assert_eq!(allowed(&root, given), expected, "{given}");
        }
        // The folder of the configuration may be a link itself.
        let linked = folder.path().join("linked");
        std::os::unix::fs::symlink(&root, &linked).unwrap();
        assert!(allowed(&linked, "new") && !allowed(&linked, "out/new"));
    }

    #[test]
    fn only_s3_is_a_url_of_a_repository() {
        for given in ["http://x/y", "gs://bucket", "s3:", "://"] {
            let opened = Place::of_operator(given).open(Missing::Create, 0);
            let is_folder = !given.contains("://");
            assert!(is_folder || opened.is_err(), "{given}");
        }
    }
}
