//! Archives in object stores, by URL: `s3://bucket/prefix`. Credentials, region and endpoint come
//! from the server's environment (`AWS_ACCESS_KEY_ID`, `AWS_SECRET_ACCESS_KEY`, `AWS_REGION`,
//! `AWS_ENDPOINT`, ...), never from clients.

use std::sync::mpsc;
use std::time::Duration;

use anyhow::anyhow;
use mayfly_base::{Error, ErrorCode, Result};
use object_store::path::Path;
use object_store::{ObjectStore, ObjectStoreExt, ObjectStoreScheme, PutPayload};
use parking_lot::Mutex;

/// The timeout of an upload.
const LONGEST_UPLOAD: Duration = Duration::from_secs(60);

/// Checks that a URL names a supported object store.
pub(super) fn check(given: &str) -> Result<()> {
    checked(given).map(drop)
}

fn bad(given: &str, error: &dyn std::fmt::Display) -> Error {
    Error::new(ErrorCode::InvalidOptions, format!("'ttl.archive.path' '{given}': {error}"))
}

fn checked(given: &str) -> Result<::url::Url> {
    let url = ::url::Url::parse(given).map_err(|error| bad(given, &error))?;
    let (scheme, _) = ObjectStoreScheme::parse(&url).map_err(|error| bad(given, &error))?;
    match scheme {
        ObjectStoreScheme::AmazonS3 if url.scheme() == "s3" => Ok(url),
        _ => Err(bad(given, &"only s3:// is supported")),
    }
}

/// `reqwest` is built without a cryptographic library and uses that of the process.
fn choose_cryptography() {
    // An error means that one was installed before.
    let _ = rustls::crypto::ring::default_provider().install_default();
}

type Upload = Box<dyn FnOnce(&tokio::runtime::Runtime) + Send>;

/// The thread that uploads. Threads that archive wait for it, because they must not enter a
/// runtime.
pub(super) struct ObjectStores {
    /// Options by the names of `object_store`.
    options: Vec<(String, String)>,
    uploader: Mutex<Option<mpsc::Sender<Upload>>>,
}

impl ObjectStores {
    pub(super) fn new(options: Vec<(String, String)>) -> ObjectStores {
        ObjectStores { options, uploader: Mutex::new(None) }
    }

    /// Reads the options from the server's environment.
    pub(super) fn from_environment() -> ObjectStores {
        let environment = std::env::vars_os().filter_map(|(name, value)| {
            Some((name.into_string().ok()?, value.into_string().ok()?))
        });
        let options = environment.filter(|(name, _)| name.starts_with("AWS_"));
        ObjectStores::new(options.map(|(name, value)| (name.to_ascii_lowercase(), value)).collect())
    }

    fn parse(&self, given: &str) -> Result<(Box<dyn ObjectStore>, Path)> {
        let url = checked(given)?;
        choose_cryptography();
        object_store::parse_url_opts(&url, self.options.iter().cloned())
            .map_err(|error| bad(given, &error))
    }

    /// Stores an object under the URL and waits for the answer of the store.
    ///
    /// # Errors
    /// The store's error, or a timeout.
    pub(super) fn put(&self, base: &str, name: &str, bytes: Vec<u8>) -> Result<()> {
        let failed = |text: String| Error::new(ErrorCode::FileStreamFailed, text);
        let (store, prefix) = self.parse(base)?;
        let place = Path::parse(format!("{}/{name}", prefix.as_ref().trim_end_matches('/')))
            .map_err(|error| failed(format!("the archive's name is invalid: {error}")))?;
        let (answer, answered) = mpsc::channel();
        self.uploader()?
            .send(Box::new(move |runtime| {
                let upload = async {
                    let put = store.put(&place, PutPayload::from(bytes));
                    tokio::time::timeout(LONGEST_UPLOAD, put).await
                };
                // The waiting thread may have ended with the server.
                let _ = answer.send(match runtime.block_on(upload) {
                    Ok(Ok(_)) => Ok(()),
                    Ok(Err(error)) => Err(anyhow!("{error}")),
                    Err(_) => Err(anyhow!("the object store did not answer in time")),
                });
            }))
            .map_err(|_| failed("the uploader has ended".into()))?;
        match answered.recv() {
            Ok(Ok(())) => Ok(()),
            Ok(Err(why)) => Err(failed(format!("cannot write the archive {base}: {why:#}"))),
            Err(_) => Err(failed("the uploader has ended".into())),
        }
    }

    fn uploader(&self) -> Result<mpsc::Sender<Upload>> {
        let mut uploader = self.uploader.lock();
        if let Some(sender) = &*uploader {
            return Ok(sender.clone());
        }
        let failed = |error: std::io::Error| {
            Error::new(ErrorCode::InternalError, format!("cannot start the uploader: {error}"))
        };
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let runtime = runtime.map_err(failed)?;
        let (sender, uploads) = mpsc::channel::<Upload>();
        // The thread ends when the last sender is dropped.
        let run = move || uploads.into_iter().for_each(|upload| upload(&runtime));
        std::thread::Builder::new().name("archive".into()).spawn(run).map_err(failed)?;
        Ok(uploader.insert(sender).clone())
    }
}
