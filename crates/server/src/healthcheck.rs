//! `--healthcheck`: asks a running server for a `ping`, for containers and supervisors. Of a server that requires TLS it wants a handshake
//! only: such a server may want a certificate as well, and this process has none.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, bail};
use mayfly_value::{DocBuilder, RawDoc, RawValue};
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::CryptoProvider;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{ClientConfig, ClientConnection, DigitallySignedStruct, SignatureScheme};

use crate::TlsMode;
use crate::failure::{Failure, FailureKind};

/// Longest wait for each step.
const TIMEOUT: Duration = Duration::from_secs(3);
const OP_MSG: i32 = 2013;
/// Header, flags and the kind byte of the one section.
const BEFORE_DOCUMENT: usize = 16 + 4 + 1;
/// Longest reply that is read; a `ping` is answered in far less.
const MAX_REPLY_BYTES: usize = 64 * 1024;

/// Whether a server answers on this port of this machine.
///
/// # Errors
/// What went wrong, for the standard error output.
pub fn check(port: u16, mode: TlsMode) -> anyhow::Result<()> {
    let address = SocketAddr::from(([127, 0, 0, 1], port));
    let asked = match mode {
        TlsMode::Required => shake_hands(address),
        TlsMode::Disabled | TlsMode::Allowed => ask(address),
    };
    asked.with_context(|| {
        let advice = "start the server, or name its port with --port";
        Failure::new(FailureKind::General, format!("cannot ask the server on {address}"), advice)
    })
}

fn connect(address: SocketAddr) -> anyhow::Result<TcpStream> {
    let stream = TcpStream::connect_timeout(&address, TIMEOUT)?;
    stream.set_read_timeout(Some(TIMEOUT))?;
    stream.set_write_timeout(Some(TIMEOUT))?;
    Ok(stream)
}

/// Begins an encrypted connection. The server's certificate is for its clients, and its names are not this machine's.
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

/// Takes any certificate: nothing is sent that others should not see, and the answer says only that somebody is there.
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
        bail!("it does not speak this protocol");
    }
    let mut rest = vec![0; length - 4];
    stream.read_exact(&mut rest)?;
    match RawDoc::new(&rest[BEFORE_DOCUMENT - 4..]).and_then(|reply| reply.get("ok")) {
        Some(RawValue::Double(1.0)) => Ok(()),
        _ => bail!("it answers, but not with ok"),
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
