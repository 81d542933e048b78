//! TLS to PostgreSQL over rustls.
//!
//! `sslmode` has the meaning that libpq gives it: `require` encrypts and checks no certificate
//! unless `sslrootcert` is given, `verify-ca` checks the chain, `verify-full` the host name, too. A
//! certificate that is in the file of `sslrootcert` itself is accepted for itself, as PostgreSQL's
//! manual makes them for a first server with TLS; rustls alone refuses those of authorities.

use std::fs;
use std::future::Future;
use std::io;
use std::path::Path;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::{WebPkiServerVerifier, verify_server_name};
use rustls::crypto::{CryptoProvider, ring, verify_tls12_signature, verify_tls13_signature};
use rustls::server::ParsedCertificate;
use rustls::{
    CertificateError, ClientConfig, DigitallySignedStruct, Error, RootCertStore, SignatureScheme,
};
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, ServerName, UnixTime};
use sha2::{Digest, Sha256, Sha384, Sha512};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio_postgres::tls::{ChannelBinding, MakeTlsConnect, TlsConnect, TlsStream};
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream as RustlsStream;

use crate::open_error::OpenError;
use crate::options::SslCheck;

/// Makes TLS sessions with one configuration.
#[derive(Clone)]
pub(crate) struct Tls(Arc<ClientConfig>);

impl Tls {
    /// A configuration that checks certificates as asked, against this file of roots or those of
    /// the system.
    pub(crate) fn new(check: SslCheck, roots: Option<&Path>) -> Result<Tls, OpenError> {
        let provider = Arc::new(ring::default_provider());
        let builder = ClientConfig::builder_with_provider(provider.clone())
            .with_safe_default_protocol_versions()
            .map_err(|error| OpenError::Tls(error.to_string()))?;
        let verifier: Arc<dyn ServerCertVerifier> = match (check, roots) {
            (SslCheck::Nothing, None) => Arc::new(Unchecked(provider)),
            (check, roots) => {
                let (roots, listed) = root_store(roots)?;
                let inner = WebPkiServerVerifier::builder_with_provider(roots.into(), provider)
                    .build()
                    .map_err(|error| OpenError::Tls(error.to_string()))?;
                Arc::new(Checked { inner, listed, checks_name: check == SslCheck::Host })
            }
        };
        let config =
            builder.dangerous().with_custom_certificate_verifier(verifier).with_no_client_auth();
        Ok(Tls(Arc::new(config)))
    }
}

/// The roots, and the certificates of the file.
fn root_store(
    file: Option<&Path>,
) -> Result<(RootCertStore, Vec<CertificateDer<'static>>), OpenError> {
    let (mut roots, mut listed) = (RootCertStore::empty(), Vec::new());
    if let Some(path) = file {
        let failed = |text: String| OpenError::Tls(format!("{}: {text}", path.display()));
        let pem = fs::read(path).map_err(|error| failed(error.to_string()))?;
        for certificate in CertificateDer::pem_slice_iter(&pem) {
            let certificate = certificate.map_err(|error| failed(error.to_string()))?;
            listed.push(certificate.clone());
            roots.add(certificate).map_err(|error| failed(error.to_string()))?;
        }
    } else {
        roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
    }
    if roots.is_empty() {
        return Err(OpenError::Tls("there is no root certificate to check against".into()));
    }
    Ok((roots, listed))
}

impl<S: AsyncRead + AsyncWrite + Unpin + Send + 'static> MakeTlsConnect<S> for Tls {
    type Stream = Session<S>;
    type TlsConnect = Handshake;
    type Error = io::Error;

    fn make_tls_connect(&mut self, host: &str) -> io::Result<Handshake> {
        let name = ServerName::try_from(host.to_owned()).map_err(io::Error::other)?;
        Ok(Handshake { connector: TlsConnector::from(self.0.clone()), name })
    }
}

/// The next handshake.
pub(crate) struct Handshake {
    connector: TlsConnector,
    name: ServerName<'static>,
}

impl<S: AsyncRead + AsyncWrite + Unpin + Send + 'static> TlsConnect<S> for Handshake {
    type Stream = Session<S>;
    type Error = io::Error;
    type Future = Pin<Box<dyn Future<Output = io::Result<Session<S>>> + Send>>;

    fn connect(self, stream: S) -> Self::Future {
        Box::pin(
            async move { Ok(Session(Box::new(self.connector.connect(self.name, stream).await?))) },
        )
    }
}

/// An encrypted stream.
pub(crate) struct Session<S>(Box<RustlsStream<S>>);

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncRead for Session<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut *self.0).poll_read(context, buffer)
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncWrite for Session<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut *self.0).poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut *self.0).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut *self.0).poll_shutdown(context)
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> TlsStream for Session<S> {
    /// RFC 5929: the hash of the server's certificate, by the algorithm of its signature, with
    /// SHA-256 for weaker ones. It binds the login to this session, so that a server in between
    /// cannot pass it on.
    fn channel_binding(&self) -> ChannelBinding {
        let certificates = self.0.get_ref().1.peer_certificates();
        certificates
            .and_then(|certificates| end_point(certificates.first()?))
            .map_or_else(ChannelBinding::none, ChannelBinding::tls_server_end_point)
    }
}

fn end_point(certificate: &CertificateDer<'_>) -> Option<Vec<u8>> {
    use x509_parser::oid_registry as oid;
    let (_, parsed) = x509_parser::parse_x509_certificate(certificate).ok()?;
    let algorithm = &parsed.signature_algorithm.algorithm;
    let is = |oids: &[oid::Oid<'_>]| oids.contains(algorithm);
    let sha256 = [oid::OID_PKCS1_SHA256WITHRSA, oid::OID_SIG_ECDSA_WITH_SHA256];
    if is(&sha256) || is(&[oid::OID_PKCS1_SHA1WITHRSA]) {
        Some(Sha256::digest(certificate).to_vec())
    } else if is(&[oid::OID_PKCS1_SHA384WITHRSA, oid::OID_SIG_ECDSA_WITH_SHA384]) {
        Some(Sha384::digest(certificate).to_vec())
    } else if is(&[oid::OID_PKCS1_SHA512WITHRSA, oid::OID_SIG_ECDSA_WITH_SHA512]) {
        Some(Sha512::digest(certificate).to_vec())
    } else {
        None
    }
}

/// `sslmode=require` without roots: encrypts, and accepts any certificate.
#[derive(Debug)]
struct Unchecked(Arc<CryptoProvider>);

impl ServerCertVerifier for Unchecked {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let algorithms = &self.0.signature_verification_algorithms;
        verify_tls12_signature(message, certificate, signed, algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let algorithms = &self.0.signature_verification_algorithms;
        verify_tls13_signature(message, certificate, signed, algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}

/// `sslmode=verify-ca` and `verify-full`: the chain is checked, and the name with the latter.
#[derive(Debug)]
struct Checked {
    inner: Arc<WebPkiServerVerifier>,
    /// The certificates of `sslrootcert`.
    listed: Vec<CertificateDer<'static>>,
    checks_name: bool,
}

impl Checked {
    /// Checks a certificate that needs no chain: its time, and its name.
    fn check_listed(
        &self,
        certificate: &CertificateDer<'_>,
        name: &ServerName<'_>,
        now: UnixTime,
    ) -> Result<(), Error> {
        let refused = |error| Err(Error::InvalidCertificate(error));
        let Ok((_, parsed)) = x509_parser::parse_x509_certificate(certificate) else {
            return refused(CertificateError::BadEncoding);
        };
        let (validity, now) = (parsed.validity(), now.as_secs() as i64);
        if now < validity.not_before.timestamp() {
            return refused(CertificateError::NotValidYet);
        }
        if now > validity.not_after.timestamp() {
            return refused(CertificateError::Expired);
        }
        match self.checks_name {
            true => verify_server_name(&ParsedCertificate::try_from(certificate)?, name),
            false => Ok(()),
        }
    }
}

impl ServerCertVerifier for Checked {
    fn verify_server_cert(
        &self,
        certificate: &CertificateDer<'_>,
        others: &[CertificateDer<'_>],
        name: &ServerName<'_>,
        stapled: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        if self.listed.contains(certificate) {
            self.check_listed(certificate, name, now)?;
            return Ok(ServerCertVerified::assertion());
        }
        // The name is checked last.
        match self.inner.verify_server_cert(certificate, others, name, stapled, now) {
            Err(Error::InvalidCertificate(
                CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. },
            )) if !self.checks_name => Ok(ServerCertVerified::assertion()),
            other => other,
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.inner.verify_tls12_signature(message, certificate, signed)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.inner.verify_tls13_signature(message, certificate, signed)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.inner.supported_verify_schemes()
    }
}
