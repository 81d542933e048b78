//! Encrypted connections: which ones are accepted, with which certificate, and the contents of the
//! client's certificate.
//!
//! 1. The first byte of a connection distinguishes TLS from the plain protocol
//!    ([`Transport::accept`]); the mode decides which of them are served.
//! 2. The handshake uses the files as they were last read. `rotateCertificates` reads them again;
//!    open connections keep their certificates.
//! 3. The subject of a client's verified certificate is stored in the connection, for a login by
//!    `MONGODB-X509`.

mod files;
mod handshake;
mod stream;
mod subject;

use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, bail};
use mayfly_base::{Error, ErrorCode};
use mayfly_service::metrics::TLS_VERSIONS;
use mayfly_service::{Connection, ServerCertificate, Service, TransportSecurity};
use parking_lot::{Mutex, RwLock};
use rustls::server::{NoClientAuth, WebPkiClientVerifier};
use rustls::{RootCertStore, ServerConfig, SupportedProtocolVersion};
use secrecy::SecretString;
use tokio::net::TcpStream;
use tokio_rustls::TlsAcceptor;

pub(crate) use handshake::begin;
pub(crate) use stream::Stream;

use crate::failure::{Failure, FailureKind};

/// The first byte of a TLS connection: a record of the handshake.
const HANDSHAKE: u8 = 22;
/// The time before its expiry at which a warning about a certificate begins.
const WARN_BEFORE_MS: i64 = 30 * 24 * 60 * 60 * 1000;
/// The interval between two checks of the certificate's expiry.
const CHECK_INTERVAL: Duration = Duration::from_secs(24 * 60 * 60);

/// The connections that are served.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum TlsMode {
    /// Plain ones only.
    #[default]
    Disabled,
    /// The client chooses.
    Allowed,
    /// Encrypted ones only.
    Required,
}

/// The configuration of encrypted connections.
#[derive(Clone, Debug, Default)]
pub struct TlsOptions {
    /// Which connections are served.
    pub mode: TlsMode,
    /// The file with the server's certificate and key.
    pub certificate_key_file: Option<PathBuf>,
    /// The password of the key.
    pub password: Option<SecretString>,
    /// The authorities that sign clients' certificates.
    pub ca_file: Option<PathBuf>,
    /// Certificate revocation lists.
    pub crl_file: Option<PathBuf>,
    /// Whether clients without a certificate are served although `ca_file` is set.
    pub allow_without_certificates: bool,
    /// Versions that are refused, such as `TLS1_2`.
    pub disabled_protocols: Vec<String>,
    /// Whether a certified module is requested.
    pub fips_mode: bool,
}

impl TlsOptions {
    /// The enabled versions.
    fn versions(&self) -> anyhow::Result<Vec<&'static SupportedProtocolVersion>> {
        let mut versions = vec![&rustls::version::TLS13, &rustls::version::TLS12];
        for name in &self.disabled_protocols {
            match name.as_str() {
                // They are always disabled.
                "TLS1_0" | "TLS1_1" => {}
                "TLS1_2" => versions.retain(|one| one.version != rustls::ProtocolVersion::TLSv1_2),
                "TLS1_3" => versions.retain(|one| one.version != rustls::ProtocolVersion::TLSv1_3),
                "none" if self.disabled_protocols.len() == 1 => {}
                other => bail!(
                    "net.tls.disabledProtocols: '{other}' is not one of TLS1_0, TLS1_1, TLS1_2, TLS1_3"
                ),
            }
        }
        if versions.is_empty() {
            bail!("net.tls.disabledProtocols leaves no version");
        }
        Ok(versions)
    }

    /// Reads all files.
    fn load(&self) -> anyhow::Result<Loaded> {
        let Some(path) = &self.certificate_key_file else {
            bail!("net.tls.certificateKeyFile is not set");
        };
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let (chain, key) = files::certificate_and_key(path, self.password.as_ref())?;
        let mut certificate = match chain.first() {
            Some(certificate) => subject::describe(certificate)
                .with_context(|| format!("{}: the certificate", path.display()))?,
            None => bail!("{} contains no certificate", path.display()),
        };
        let verifier = match &self.ca_file {
            None if self.crl_file.is_some() => bail!("net.tls.CRLFile needs net.tls.CAFile"),
            None => Arc::new(NoClientAuth),
            Some(path) => {
                let mut roots = RootCertStore::empty();
                for certificate in files::certificates(path)? {
                    roots.add(certificate).with_context(|| path.display().to_string())?;
                }
                let mut builder =
                    WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider.clone());
                if let Some(path) = &self.crl_file {
                    builder = builder
                        .with_crls(files::revocation_lists(path)?)
                        .only_check_end_entity_revocation()
                        .allow_unknown_revocation_status();
                }
                if self.allow_without_certificates {
                    builder = builder.allow_unauthenticated();
                }
                builder.build().with_context(|| path.display().to_string())?
            }
        };
        let mut config = ServerConfig::builder_with_provider(provider)
            .with_protocol_versions(&self.versions()?)?
            .with_client_cert_verifier(verifier)
            .with_single_cert(chain, key)
            .with_context(|| path.display().to_string())?;
        // Drivers of some languages open many connections; resumed sessions are cheaper.
        config.session_storage = rustls::server::ServerSessionMemoryCache::new(SESSIONS_KEPT);
        certificate.has_authority = self.ca_file.is_some();
        Ok(Loaded { config: Arc::new(config), certificate })
    }
}

/// The number of sessions that clients may resume.
const SESSIONS_KEPT: usize = 1024;

/// The contents of the files.
struct Loaded {
    config: Arc<ServerConfig>,
    certificate: ServerCertificate,
}

/// Accepts connections, encrypted or not.
pub(crate) struct Transport {
    options: TlsOptions,
    /// `None` if the mode is disabled.
    loaded: RwLock<Option<Loaded>>,
    rotating: Mutex<()>,
}

impl Transport {
    /// Reads the configured files.
    ///
    /// # Errors
    /// A [`Failure`] with the file and the cause.
    pub(crate) fn open(options: TlsOptions) -> anyhow::Result<Transport> {
        let failed = |advice: &str| {
            Failure::new(FailureKind::Options, "cannot set up encrypted connections", advice)
        };
        if options.fips_mode {
            return Err(anyhow::anyhow!("this server has no certified cryptographic module"))
                .context(failed("remove net.tls.FIPSMode"));
        }
        let loaded = match options.mode {
            TlsMode::Disabled => None,
            TlsMode::Allowed | TlsMode::Required => {
                Some(options.load().with_context(|| failed("correct the files of net.tls"))?)
            }
        };
        Ok(Transport { options, loaded: RwLock::new(loaded), rotating: Mutex::default() })
    }

    /// A transport without encryption.
    pub(crate) fn plain() -> Transport {
        let options = TlsOptions::default();
        Transport { options, loaded: RwLock::default(), rotating: Mutex::default() }
    }

    /// Whether connections may be encrypted.
    pub(crate) fn is_needed(&self) -> bool {
        self.options.mode != TlsMode::Disabled
    }

    /// Whether the connection begins without encryption, and the mode requires it. Waits for the
    /// first byte without a timeout.
    ///
    /// # Errors
    /// The client is gone.
    pub(crate) async fn refuses(&self, stream: &TcpStream) -> io::Result<bool> {
        let mut first = [0];
        Ok(self.options.mode == TlsMode::Required
            && stream.peek(&mut first).await? == 1
            && first[0] != HANDSHAKE)
    }

    /// Accepts a connection: detects whether it is encrypted, and does the handshake. Waits for the
    /// client without a timeout.
    ///
    /// # Errors
    /// The client is gone, its handshake fails, or the mode does not serve it.
    pub(crate) async fn accept(&self, stream: TcpStream) -> io::Result<Stream> {
        let mut first = [0];
        let encrypted = stream.peek(&mut first).await? == 1 && first[0] == HANDSHAKE;
        if !encrypted {
            return match self.options.mode {
                TlsMode::Required => {
                    let text = "the connection is not encrypted, and net.tls.mode requires that";
                    Err(io::Error::new(io::ErrorKind::InvalidData, text))
                }
                TlsMode::Allowed | TlsMode::Disabled => Ok(Stream::Plain(stream)),
            };
        }
        let config = match &*self.loaded.read() {
            Some(loaded) => loaded.config.clone(),
            None => unreachable!("a server that speaks TLS has a certificate"),
        };
        let stream = TlsAcceptor::from(config).accept(stream).await?;
        Ok(Stream::Tls(Box::new(stream)))
    }

    /// Warns if the certificate expires soon.
    fn warn_of_end(&self, now_ms: i64) {
        let Some(certificate) = self.certificate() else { return };
        let left = certificate.expires_ms - now_ms;
        let days = left / (24 * 60 * 60 * 1000);
        match left {
            i64::MIN..=0 => tracing::warn!(
                component = "NETWORK",
                subject = certificate.subject,
                "the server's certificate has expired and clients refuse it; renew it and run rotateCertificates"
            ),
            1..WARN_BEFORE_MS => tracing::warn!(
                component = "NETWORK",
                id = 23221,
                subject = certificate.subject,
                days,
                "the server's certificate expires soon"
            ),
            _ => {}
        }
    }
}

impl TransportSecurity for Transport {
    fn certificate(&self) -> Option<ServerCertificate> {
        self.loaded.read().as_ref().map(|loaded| loaded.certificate.clone())
    }

    fn rotate(&self) -> mayfly_base::Result<()> {
        if self.options.mode == TlsMode::Disabled {
            let text = "the server has no certificates: net.tls.mode is disabled";
            return Err(Error::new(ErrorCode::IllegalOperation, text));
        }
        // Serialized, so that the newest files stay in use.
        let _rotating = self.rotating.lock();
        let loaded = self.options.load().map_err(|error| {
            Error::new(ErrorCode::InvalidSSLConfiguration, format!("{error:#}"))
        })?;
        *self.loaded.write() = Some(loaded);
        Ok(())
    }
}

/// Records the client's certificate and TLS version after a handshake.
fn note_client(stream: &Stream, service: &Service, connection: &Connection) {
    if let Some(version) = stream.version()
        && let Some(at) = TLS_VERSIONS.iter().position(|known| *known == version)
    {
        service.metrics.network.tls[at].add(1);
    }
    let Stream::Tls(stream) = stream else { return };
    let session = stream.get_ref().1;
    let Some(certificate) = session.peer_certificates().and_then(<[_]>::first) else { return };
    match subject::client(certificate) {
        Ok(client) => drop(connection.access.certificate.set(client)),
        Err(error) => tracing::warn!(
            ctx = &**connection.desc(),
            error = %format_args!("{error:#}"),
            "the subject of a client's certificate is invalid; it cannot log in with it"
        ),
    }
}

/// Checks the certificate's expiry periodically until the server stops.
pub(crate) async fn watch_end(transport: Arc<Transport>, service: Arc<Service>) {
    loop {
        transport.warn_of_end(service.clock.now_ms());
        tokio::select! {
            () = tokio::time::sleep(CHECK_INTERVAL) => {}
            () = service.shutdown.begun() => return,
        }
    }
}
