//! The accept loop of a listener: one task per connection, with a limit, and a wait until all have
//! ended.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use mayfly_service::{Connection, Service};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;

use crate::tls::Transport;
use crate::{connection, peer};

/// The pause after a failed accept: retrying faster does not free file descriptors.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// The number of running connection tasks.
#[derive(Clone)]
pub(crate) struct Connected {
    count: watch::Sender<usize>,
}

impl Default for Connected {
    fn default() -> Connected {
        Connected { count: watch::Sender::new(0) }
    }
}

impl Connected {
    /// Waits until none is left; returns false after the timeout.
    pub(crate) async fn drained(&self, patience: Duration) -> bool {
        let mut receiver = self.count.subscribe();
        let none = receiver.wait_for(|count| *count == 0);
        tokio::time::timeout(patience, none).await.is_ok()
    }
}

/// Removes the connection from the registries when its task ends in any way.
struct Registered {
    service: Arc<Service>,
    connection: Arc<Connection>,
    connected: Connected,
}

impl Drop for Registered {
    fn drop(&mut self) {
        self.service.audit_closed(&self.connection);
        self.service.connections.closed(self.connection.id);
        self.connected.count.send_modify(|count| *count -= 1);
        if !self.service.settings.is_quiet() {
            tracing::info!(
                id = 22944,
                remote = &*self.connection.client,
                connectionId = self.connection.id,
                "Connection ended"
            );
        }
    }
}

/// The shared state of all listeners of a server.
#[derive(Clone)]
pub(crate) struct Reception {
    pub(crate) service: Arc<Service>,
    pub(crate) transport: Arc<Transport>,
    pub(crate) connected: Connected,
    pub(crate) clients: ServedClients,
}

/// The clients that are served.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum ServedClients {
    /// All clients.
    All,
    /// Clients on this machine.
    Local,
}

/// Accepts connections until the server stops.
pub(crate) async fn accept(listener: Arc<TcpListener>, reception: Reception) {
    let service = &reception.service;
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            () = service.shutdown.begun() => return,
        };
        match accepted {
            Ok((_, peer)) if !reception.serves(peer.ip()) => {
                tracing::info!(remote = %peer, "connection refused until the first start has finished");
            }
            Ok((stream, peer)) => open(stream, peer.to_string(), &reception),
            Err(error) => {
                tracing::warn!(error = %error, "a connection could not be accepted");
                tokio::time::sleep(ACCEPT_PAUSE).await;
            }
        }
    }
}

impl Reception {
    fn serves(&self, client: IpAddr) -> bool {
        self.clients == ServedClients::All || client.to_canonical().is_loopback()
    }
}

fn open(stream: TcpStream, client: String, reception: &Reception) {
    let Reception { service, transport, connected, .. } = reception.clone();
    peer::keep_alive(&stream);
    let local = stream.local_addr().map(|address| address.to_string()).unwrap_or_default();
    let Some(connection) = service.connections.open(client, local, service.clock.now_ms()) else {
        tracing::warn!(
            id = 22942,
            "connection refused: the limit net.maxIncomingConnections or maxConnectionsPerAddress is reached"
        );
        return;
    };
    if !service.settings.is_quiet() {
        tracing::info!(
            id = 22943,
            remote = &*connection.client,
            connectionId = connection.id,
            "Connection accepted"
        );
    }
    connected.count.send_modify(|count| *count += 1);
    let registered =
        Registered { service: service.clone(), connection: connection.clone(), connected };
    tokio::spawn(async move {
        let _registered = registered;
        connection::serve(stream, &transport, &service, &connection).await;
    });
}
