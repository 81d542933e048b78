//! A client of one server, for tasks of this program that run a command there: one connection, TLS,
//! a login by SCRAM-SHA-256, one command at a time.

mod login;
mod uri;

use std::fs;
use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, anyhow, bail};
use mayfly_value::{DocBuf, RawDoc, RawValue};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};

pub(crate) use login::Exchange;
pub(crate) use uri::{Uri, UriUser};

/// The time limit of connecting.
const CONNECT: Duration = Duration::from_secs(10);
const OP_MSG: i32 = 2013;
/// The header, the flags and the kind byte of the only section.
const BEFORE_DOCUMENT: usize = 16 + 4 + 1;
/// The largest reply.
const MAX_REPLY_BYTES: usize = 48_000_000;
/// The authorities that the system trusts, in the distributions that are supported.
const SYSTEM_AUTHORITIES: &[&str] =
    &["/etc/ssl/certs/ca-certificates.crt", "/etc/pki/tls/certs/ca-bundle.crt"];

/// A connection to a server.
pub(crate) struct Client {
    stream: Box<dyn ReadWrite>,
}

trait ReadWrite: Read + Write + Send {}

impl<S: Read + Write + Send> ReadWrite for S {}

/// An error that the server returned.
#[derive(Debug)]
pub(crate) struct ServerError {
    /// The code.
    pub(crate) code: i32,
    message: String,
}

impl std::fmt::Display for ServerError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for ServerError {}

impl Client {
    /// Connects, and logs in if the URI names a user.
    ///
    /// # Errors
    /// Errors of the network, of the certificate, and of the login.
    pub(crate) fn connect(uri: &Uri) -> anyhow::Result<Client> {
        let stream = connect(uri)?;
        let mut client = Client { stream };
        if let Some(user) = &uri.user {
            login::log_in(&mut client, user)?;
        }
        Ok(client)
    }

    /// Runs a command, and waits for its reply as long as it takes.
    ///
    /// # Errors
    /// [`ServerError`]; errors of the network.
    pub(crate) fn run(&mut self, command: RawDoc<'_>) -> anyhow::Result<DocBuf> {
        let found = self.reply(command)?;
        let reply = found.as_doc();
        if reply.get("ok") == Some(RawValue::Double(1.0)) {
            return Ok(found);
        }
        let text = reply.get("errmsg").and_then(RawValue::as_str);
        let code = match reply.get("code") {
            Some(RawValue::Int32(code)) => code,
            _ => 0,
        };
        let message = text.unwrap_or("the server answers with an error").to_owned();
        Err(anyhow!(ServerError { code, message }))
    }

    /// Runs a command; returns the reply, also one with an error.
    ///
    /// # Errors
    /// Errors of the network.
    pub(crate) fn reply(&mut self, command: RawDoc<'_>) -> anyhow::Result<DocBuf> {
        let length = BEFORE_DOCUMENT + command.as_bytes().len();
        let mut message = Vec::with_capacity(length);
        for word in [i32::try_from(length)?, 1, 0, OP_MSG, 0] {
            message.extend_from_slice(&word.to_le_bytes());
        }
        message.push(0);
        message.extend_from_slice(command.as_bytes());
        self.stream.write_all(&message)?;
        self.stream.flush()?;
        let mut length = [0; 4];
        self.stream.read_exact(&mut length)?;
        let length = u32::from_le_bytes(length) as usize;
        if !(BEFORE_DOCUMENT..=MAX_REPLY_BYTES).contains(&length) {
            bail!("the server does not speak the MongoDB protocol");
        }
        let mut rest = vec![0; length - 4];
        self.stream.read_exact(&mut rest)?;
        let reply = RawDoc::new(&rest[BEFORE_DOCUMENT - 4..]).context("the reply is invalid")?;
        Ok(reply.to_owned())
    }
}

fn connect(uri: &Uri) -> anyhow::Result<Box<dyn ReadWrite>> {
    use std::net::ToSocketAddrs;
    let mut last = io::Error::new(io::ErrorKind::NotFound, "the host has no address");
    for address in (uri.host.as_str(), uri.port).to_socket_addrs()? {
        match TcpStream::connect_timeout(&address, CONNECT) {
            Ok(stream) => return encrypted(uri, stream),
            Err(error) => last = error,
        }
    }
    Err(last.into())
}

fn encrypted(uri: &Uri, stream: TcpStream) -> anyhow::Result<Box<dyn ReadWrite>> {
    // A server that vanishes during a long command is noticed.
    socket2::SockRef::from(&stream).set_keepalive(true)?;
    if !uri.tls {
        return Ok(Box::new(stream));
    }
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()?
        .with_root_certificates(authorities(uri)?)
        .with_no_client_auth();
    let name = ServerName::try_from(uri.host.clone())?;
    let session = ClientConnection::new(Arc::new(config), name)?;
    Ok(Box::new(StreamOwned::new(session, stream)))
}

fn authorities(uri: &Uri) -> anyhow::Result<RootCertStore> {
    let files: Vec<&str> = match &uri.ca_file {
        Some(file) => vec![file],
        None => SYSTEM_AUTHORITIES
            .iter()
            .copied()
            .filter(|it| fs::exists(it).is_ok_and(|it| it))
            .collect(),
    };
    let mut authorities = RootCertStore::empty();
    for file in files {
        let certificates = CertificateDer::pem_file_iter(file);
        let certificates = certificates.with_context(|| format!("cannot read {file}"))?;
        for certificate in certificates {
            // Files of systems contain certificates of old forms, too.
            let _ = authorities.add(certificate.with_context(|| format!("cannot read {file}"))?);
        }
    }
    match authorities.is_empty() {
        false => Ok(authorities),
        true => bail!("no authority for certificates is known: add tlsCAFile to the URI"),
    }
}
