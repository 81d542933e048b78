//! Certificates: the server's own, and what a client's says about it. Who reads and checks them is the binary's business.

use mayfly_auth::RoleName;
use mayfly_base::Result;

/// The server's certificate as `serverStatus` shows it.
#[derive(Clone, Debug)]
pub struct ServerCertificate {
    /// The subject's name, as RFC 2253 writes it.
    pub subject: String,
    /// When it ends, in milliseconds since 1970.
    pub expires_ms: i64,
    /// Whether the server knows authorities that sign clients' certificates.
    pub has_authority: bool,
}

/// What a client's verified certificate says.
#[derive(Clone, Debug)]
pub struct ClientCertificate {
    /// The subject's name, as RFC 2253 writes it.
    pub subject: String,
    /// The roles that it grants; nothing without the extension for roles.
    pub roles: Option<Vec<RoleName>>,
}

/// Who encrypts connections.
pub trait TransportSecurity: Send + Sync {
    /// The server's certificate; nothing where no connection is encrypted.
    fn certificate(&self) -> Option<ServerCertificate>;

    /// Reads certificates and keys again, for connections that begin from here on.
    ///
    /// # Errors
    /// 140 InvalidSSLConfiguration where the files cannot be used; everything stays as it was then.
    fn rotate(&self) -> Result<()>;
}
