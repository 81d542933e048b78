//! Clients: connections, logins and rights, session ids.

pub mod access;
mod connections;
mod session_id;

pub use access::{
    Access, Authority, ClientCertificate, ConnectionAccess, LoggedIn, OpenLogin, ServerCertificate,
    TransportSecurity,
};
pub use connections::{ClientInfo, Connection, Connections};
pub use session_id::{SessionId, SessionOwner};
