//! The listener's loop: one task per connection, bounded, and a way to wait until they are gone.

use std::sync::Arc;
use std::time::Duration;

use mayfly_service::{Connection, Service};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;

use crate::{connection, peer};

/// Pause after a failed accept: out of file descriptors does not get better by trying faster.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// How many connection tasks run.
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
    /// Waits until none is left; false when they took too long.
    pub(crate) async fn drained(&self, patience: Duration) -> bool {
        let mut receiver = self.count.subscribe();
        let none = receiver.wait_for(|count| *count == 0);
        tokio::time::timeout(patience, none).await.is_ok()
    }
}

/// Leaves the registries when its task ends, however it ends.
struct Registered {
    service: Arc<Service>,
    connection: Arc<Connection>,
    connected: Connected,
    quiet: bool,
}

impl Drop for Registered {
    fn drop(&mut self) {
        self.service.audit_closed(&self.connection);
        self.service.connections.closed(self.connection.id);
        self.connected.count.send_modify(|count| *count -= 1);
        if !self.quiet {
            tracing::info!(
                id = 22944,
                remote = &*self.connection.client,
                connectionId = self.connection.id,
                "Connection ended"
            );
        }
    }
}

/// Accepts until the server stops.
pub(crate) async fn accept(
    listener: TcpListener,
    service: Arc<Service>,
    connected: Connected,
    quiet: bool,
) {
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            () = service.shutdown.requested() => return,
        };
        match accepted {
            Ok((stream, peer)) => open(stream, peer.to_string(), &service, &connected, quiet),
            Err(error) => {
                tracing::warn!(error = %error, "accepting a connection failed");
                tokio::time::sleep(ACCEPT_PAUSE).await;
            }
        }
    }
}

fn open(
    stream: TcpStream,
    client: String,
    service: &Arc<Service>,
    connected: &Connected,
    quiet: bool,
) {
    peer::keep_alive(&stream);
    let local = stream.local_addr().map(|address| address.to_string()).unwrap_or_default();
    let Some(connection) = service.connections.open(client, local, service.clock.now_ms()) else {
        tracing::warn!(id = 22942, "connection refused because there are too many");
        return;
    };
    if !quiet {
        tracing::info!(
            id = 22943,
            remote = &*connection.client,
            connectionId = connection.id,
            "Connection accepted"
        );
    }
    connected.count.send_modify(|count| *count += 1);
    let registered = Registered {
        service: service.clone(),
        connection: connection.clone(),
        connected: connected.clone(),
        quiet,
    };
    let service = service.clone();
    tokio::spawn(async move {
        let _registered = registered;
        connection::serve(stream, &service, &connection).await;
    });
}
