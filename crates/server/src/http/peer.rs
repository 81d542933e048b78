//! The client of an HTTP connection.

use std::net::SocketAddr;
use std::sync::Arc;

use mayfly_service::{ClientInfo, Connection, Service};
use mayfly_value::DocBuilder;

/// The name of the page among the clients, in `currentOp` and in the log.
const APP_NAME: &str = "MayflyDB status page";

/// The client of an HTTP connection. It is an extension of each of its requests.
#[derive(Clone)]
pub(super) struct Peer {
    /// The connection on which its commands run.
    pub(super) connection: Arc<Connection>,
    /// The client's address.
    pub(super) remote: SocketAddr,
    /// The address that it connected to.
    pub(super) local: SocketAddr,
    /// Whether the connection is encrypted.
    pub(super) is_encrypted: bool,
}

impl Peer {
    /// A client that has connected.
    pub(super) fn new(service: &Service, remote: SocketAddr, local: SocketAddr) -> Peer {
        let now_ms = service.clock.now_ms();
        let connection = service.connections.outside(remote.to_string(), local.to_string(), now_ms);
        let mut metadata = DocBuilder::new();
        metadata.start_document("application").append("name", APP_NAME).end();
        let metadata = Some(metadata.finish());
        connection.set_info(ClientInfo { app_name: APP_NAME.to_owned(), metadata });
        Peer { connection, remote, local, is_encrypted: false }
    }

    /// Whether the client is on this machine.
    pub(super) fn is_local(&self) -> bool {
        self.remote.ip().to_canonical().is_loopback()
    }

    /// Whether others can read what the client sends.
    pub(super) fn is_readable_by_others(&self) -> bool {
        !self.is_encrypted && !self.is_local()
    }
}
