//! `--healthcheck`: sends a `ping` to a running server, for containers and supervisors. With a
//! server that requires TLS it only does a handshake, because such a server may require a client
//! certificate, which this process does not have.
//!
//! A running server writes its address and whether it requires TLS into its data folder
//! ([`Announcement`]), so that the check needs no flag of the server except a data folder that is
//! not the default. A port that is configured for the check takes precedence. A server that waits
//! for its store ([`crate::standby`]) listens on no address; it is well while its process runs.

use std::fs;
use std::io::{self, ErrorKind, Read, Write};
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, bail};
use mayfly_value::{DocBuilder, RawDoc, RawValue};
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::CryptoProvider;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{ClientConfig, ClientConnection, DigitallySignedStruct, SignatureScheme};
use serde_json::json;

use crate::failure::{Failure, FailureKind};
use crate::{Config, TlsMode};

/// The timeout of each step.
const TIMEOUT: Duration = Duration::from_secs(3);
const OP_MSG: i32 = 2013;
/// The header, the flags and the kind byte of the only section.
const BEFORE_DOCUMENT: usize = 16 + 4 + 1;
/// The largest reply that is read; the reply of `ping` is much smaller.
const MAX_REPLY_BYTES: usize = 64 * 1024;

/// The file in the data folder of a running server.
pub(crate) const ANNOUNCEMENT: &str = "running.json";

/// The address of a running server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Reachable {
    address: SocketAddr,
    requires_tls: bool,
}

/// The file with the address of a running server in its data folder; removed when dropped.
pub(crate) struct Announcement(PathBuf);

impl Announcement {
    /// Writes the file, with an address that this machine can reach.
    ///
    /// # Errors
    /// Errors of the file system.
    pub(crate) fn write(config: &Config, addresses: &[SocketAddr]) -> io::Result<Announcement> {
        let near = |address: &&SocketAddr| address.ip().is_loopback();
        let any = |address: &&SocketAddr| address.ip().is_unspecified();
        let addresses = || addresses.iter();
        let found = addresses().find(near).or_else(|| addresses().find(any));
        let mut address = *found.or_else(|| addresses().next()).ok_or(ErrorKind::NotFound)?;
        if address.ip().is_unspecified() {
            address.set_ip(match address {
                SocketAddr::V4(_) => Ipv4Addr::LOCALHOST.into(),
                SocketAddr::V6(_) => Ipv6Addr::LOCALHOST.into(),
            });
        }
        let text = json!({
            "address": address.to_string(),
            "requiresTLS": config.tls.mode == TlsMode::Required,
            "process": std::process::id(),
        });
        Announcement::put(config, &text)
    }

    /// Writes that this process waits for its store.
    ///
    /// # Errors
    /// Errors of the file system.
    pub(crate) fn write_waiting(config: &Config) -> io::Result<Announcement> {
        fs::create_dir_all(&config.db_path)?;
        Announcement::put(config, &json!({ "waiting": true, "process": std::process::id() }))
    }

    fn put(config: &Config, text: &serde_json::Value) -> io::Result<Announcement> {
        let path = config.db_path.join(ANNOUNCEMENT);
        // Renamed, so that a concurrent check reads the whole file or nothing.
        let unfinished = path.with_extension("tmp");
        fs::write(&unfinished, format!("{text}\n"))?;
        fs::rename(&unfinished, &path)?;
        Ok(Announcement(path))
    }

    fn parsed(folder: &Path) -> Option<serde_json::Value> {
        let text = fs::read_to_string(folder.join(ANNOUNCEMENT)).ok()?;
        serde_json::from_str(&text).ok()
    }

    /// Whether a process waits for its store, and runs.
    fn is_waiting(folder: &Path) -> bool {
        let found = Announcement::parsed(folder).filter(|found| found["waiting"] == true);
        let process = found.and_then(|found| found["process"].as_u64());
        process.is_some_and(|process| Path::new(&format!("/proc/{process}")).exists())
    }

    /// Reads the file; `None` if it is missing or invalid.
    fn read(folder: &Path) -> Option<Reachable> {
        let found = Announcement::parsed(folder)?;
        let address = found["address"].as_str()?.parse().ok()?;
        Some(Reachable { address, requires_tls: found["requiresTLS"].as_bool()? })
    }
}

impl Drop for Announcement {
    fn drop(&mut self) {
        // If the file remains, it names an address at which no server listens.
        let _ = fs::remove_file(&self.0);
    }
}

/// The server that the configuration of this process describes.
fn configured(config: &Config) -> Reachable {
    let announced =
        config.engine.has_folder().then(|| Announcement::read(&config.db_path)).flatten();
    let means = |announced: &Reachable| {
        let port = announced.address.port();
        config.port_is_default || config.port == 0 || config.port == port
    };
    announced.filter(means).unwrap_or(Reachable {
        address: SocketAddr::from((Ipv4Addr::LOCALHOST, config.port)),
        requires_tls: config.tls.mode == TlsMode::Required,
    })
}

/// Checks that the server answers.
///
/// # Errors
/// The cause, for the standard error output.
pub fn check(config: &Config) -> anyhow::Result<()> {
    if config.engine.has_folder() && Announcement::is_waiting(&config.db_path) {
        return Ok(());
    }
    let Reachable { address, requires_tls } = configured(config);
    let asked = match requires_tls {
        true => shake_hands(address),
        false => ask(address),
    };
    asked.with_context(|| {
        let advice =
            "start the server, or name its port with --port or its data folder with --dbpath";
        Failure::new(FailureKind::General, format!("cannot ask the server on {address}"), advice)
    })
}

fn connect(address: SocketAddr) -> anyhow::Result<TcpStream> {
    let stream = TcpStream::connect_timeout(&address, TIMEOUT)?;
    stream.set_read_timeout(Some(TIMEOUT))?;
    stream.set_write_timeout(Some(TIMEOUT))?;
    Ok(stream)
}

/// Begins a TLS connection. The server's certificate is not verified, because its names are those
/// for clients.
fn shake_hands(address: SocketAddr) -> anyhow::Result<()> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ClientConfig::builder_with_provider(provider.clone())
        .with_safe_default_protocol_versions()?
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(AnyCertificate(provider)))
        .with_no_client_auth();
    let name = ServerName::IpAddress(address.ip().into());
    let mut session = ClientConnection::new(Arc::new(config), name)?;
    let mut stream = connect(address)?;
    while session.is_handshaking() && session.peer_certificates().is_none() {
        session.complete_io(&mut stream)?;
    }
    Ok(())
}

/// Accepts any certificate: no secret is sent, and the answer only shows that a server is running.
#[derive(Debug)]
struct AnyCertificate(Arc<CryptoProvider>);

impl ServerCertVerifier for AnyCertificate {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let known = &self.0.signature_verification_algorithms;
        rustls::crypto::verify_tls12_signature(message, certificate, signed, known)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let known = &self.0.signature_verification_algorithms;
        rustls::crypto::verify_tls13_signature(message, certificate, signed, known)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}

fn ask(address: SocketAddr) -> anyhow::Result<()> {
    let mut stream = connect(address)?;
    stream.write_all(&ping())?;
    let mut length = [0; 4];
    stream.read_exact(&mut length)?;
    let length = u32::from_le_bytes(length) as usize;
    if !(BEFORE_DOCUMENT..=MAX_REPLY_BYTES).contains(&length) {
        bail!("it does not speak the MongoDB protocol");
    }
    let mut rest = vec![0; length - 4];
    stream.read_exact(&mut rest)?;
    match RawDoc::new(&rest[BEFORE_DOCUMENT - 4..]).and_then(|reply| reply.get("ok")) {
        Some(RawValue::Double(1.0)) => Ok(()),
        _ => bail!("it answers with an error"),
    }
}

fn ping() -> Vec<u8> {
    let mut command = DocBuilder::new();
    command.append("ping", 1).append("$db", "admin");
    let command = command.finish();
    let length = BEFORE_DOCUMENT + command.as_bytes().len();
    let mut message = Vec::with_capacity(length);
    for word in [length as i32, 1, 0, OP_MSG, 0] {
        message.extend_from_slice(&word.to_le_bytes());
    }
    message.push(0);
    message.extend_from_slice(command.as_bytes());
    message
}
