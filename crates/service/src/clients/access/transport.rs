//! The server's certificate, and the contents of clients' certificates. The binary reads and
//! verifies them.

use mayfly_auth::RoleName;
use mayfly_base::Result;

/// The server's certificate as `serverStatus` shows it.
#[derive(Clone, Debug)]
pub struct ServerCertificate {
    /// The subject's name, as RFC 2253 writes it.
    pub subject: String,
    /// When it ends, in milliseconds since 1970.
    pub expires_ms: i64,
    /// Whether the server has a certificate authority for clients' certificates.
    pub has_authority: bool,
}

/// The contents of a client's verified certificate.
#[derive(Clone, Debug)]
pub struct ClientCertificate {
    /// The subject's name, as RFC 2253 writes it.
    pub subject: String,
    /// The roles that it grants; `None` without the extension for roles.
    pub roles: Option<Vec<RoleName>>,
}

/// The encryption of connections, implemented by the binary.
pub trait TransportSecurity: Send + Sync {
    /// The server's certificate; `None` without TLS.
    fn certificate(&self) -> Option<ServerCertificate>;

    /// Reads certificates and keys again. New connections use them.
    ///
    /// # Errors
    /// 140 InvalidSSLConfiguration when the files cannot be used; the previous ones stay in use.
    fn rotate(&self) -> Result<()>;
}
