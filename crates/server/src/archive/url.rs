//! Archives in object stores, by URL: `s3://bucket/prefix`. Credentials, region and endpoint come from the environment of the
//! server (`AWS_ACCESS_KEY_ID`, `AWS_SECRET_ACCESS_KEY`, `AWS_REGION`, `AWS_ENDPOINT`, ...), never from clients.

use std::sync::mpsc;
use std::time::Duration;

use anyhow::anyhow;
use mayfly_base::{Error, ErrorCode, Result};
use object_store::path::Path;
use object_store::{ObjectStore, ObjectStoreExt, ObjectStoreScheme, PutPayload};
use parking_lot::Mutex;

/// An upload that takes longer has failed.
const LONGEST_UPLOAD: Duration = Duration::from_secs(60);

/// Whether an URL names an object store that this server knows.
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

/// `reqwest` is built without a cryptographic library of its own and takes the one of the process.
fn choose_cryptography() {
    // An error says that one was chosen before.
    let _ = rustls::crypto::ring::default_provider().install_default();
}

type Upload = Box<dyn FnOnce(&tokio::runtime::Runtime) + Send>;

/// The thread that uploads. Whoever archives waits for it, on threads that must not enter a runtime themselves.
pub(super) struct ObjectStores {
    /// Names and values as `object_store` knows them.
    options: Vec<(String, String)>,
    uploader: Mutex<Option<mpsc::Sender<Upload>>>,
}

impl ObjectStores {
    pub(super) fn new(options: Vec<(String, String)>) -> ObjectStores {
        ObjectStores { options, uploader: Mutex::new(None) }
    }

    /// By the environment of the server.
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

    /// Puts an object under the URL and waits until the store has it.
    ///
    /// # Errors
    /// What the store answered, or that it did not within a minute.
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
                // Who asked may have gone with the server.
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
        // It ends when the last sender has gone.
        let run = move || uploads.into_iter().for_each(|upload| upload(&runtime));
        std::thread::Builder::new().name("archive".into()).spawn(run).map_err(failed)?;
        Ok(uploader.insert(sender).clone())
    }
}
