//! PEM files: certificates, private keys, lists of revoked certificates.

use std::path::Path;

use anyhow::{Context, anyhow, bail};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use pkcs8::EncryptedPrivateKeyInfoRef;
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{
    CertificateDer, CertificateRevocationListDer, PrivateKeyDer, PrivatePkcs8KeyDer,
};
use secrecy::{ExposeSecret, SecretString};
use zeroize::Zeroizing;

/// The markers of encrypted private keys: of PKCS#8, and of OpenSSL's older format.
const ENCRYPTED: &str = "-----BEGIN ENCRYPTED PRIVATE KEY-----";
const ENCRYPTED_BEFORE: &str = "Proc-Type: 4,ENCRYPTED";

fn read(path: &Path) -> anyhow::Result<Zeroizing<Vec<u8>>> {
    let bytes = std::fs::read(path).with_context(|| format!("cannot read {}", path.display()))?;
    Ok(Zeroizing::new(bytes))
}

fn all<T: PemObject>(path: &Path, bytes: &[u8], what: &str) -> anyhow::Result<Vec<T>> {
    let found: Result<Vec<T>, _> = T::pem_slice_iter(bytes).collect();
    let found = found.map_err(|error| anyhow!("{} is not valid PEM: {error}", path.display()))?;
    match found.is_empty() {
        true => bail!("{} contains no {what}", path.display()),
        false => Ok(found),
    }
}

/// Reads the certificates of a file.
pub(super) fn certificates(path: &Path) -> anyhow::Result<Vec<CertificateDer<'static>>> {
    all(path, &read(path)?, "certificate")
}

/// Reads the certificate revocation lists of a file.
pub(super) fn revocation_lists(
    path: &Path,
) -> anyhow::Result<Vec<CertificateRevocationListDer<'static>>> {
    all(path, &read(path)?, "list of revoked certificates")
}

/// Reads the certificate chain of a file, the server's own certificate first, and its private key.
pub(super) fn certificate_and_key(
    path: &Path,
    password: Option<&SecretString>,
) -> anyhow::Result<(Vec<CertificateDer<'static>>, PrivateKeyDer<'static>)> {
    let bytes = read(path)?;
    let chain = all(path, &bytes, "certificate")?;
    let text = String::from_utf8_lossy(&bytes);
    let key = match (text.contains(ENCRYPTED), password) {
        _ if text.contains(ENCRYPTED_BEFORE) => bail!(
            "the private key in {} has a password in a format that is not supported; \
             convert it with: openssl pkcs8 -topk8",
            path.display()
        ),
        (true, None) => bail!(
            "the private key in {} has a password, and net.tls.certificateKeyFilePassword is not set",
            path.display()
        ),
        (true, Some(password)) => decrypt(&text, password.expose_secret())
            .with_context(|| format!("the private key in {}", path.display()))?,
        (false, _) => PrivateKeyDer::from_pem_slice(&bytes)
            .map_err(|_| anyhow!("{} contains no private key", path.display()))?,
    };
    Ok((chain, key))
}

/// Decrypts the private key of a PEM text.
fn decrypt(text: &str, password: &str) -> anyhow::Result<PrivateKeyDer<'static>> {
    let section = text.split(ENCRYPTED).nth(1).and_then(|rest| rest.split("-----").next());
    let base64: String = section.unwrap_or_default().split_whitespace().collect();
    let der = Zeroizing::new(STANDARD.decode(base64).context("is not valid PEM")?);
    let encrypted = EncryptedPrivateKeyInfoRef::try_from(der.as_slice())
        .map_err(|error| anyhow!("cannot be read: {error}"))?;
    let key = encrypted.decrypt(password).map_err(|_| anyhow!("has another password"))?;
    Ok(PrivatePkcs8KeyDer::from(key.as_bytes().to_vec()).into())
}
