//! The beginning of a connection: a TLS handshake if it is encrypted.

use std::time::Duration;

use mayfly_service::{Connection, Service};
use tokio::net::TcpStream;

use super::{Stream, Transport, note_client};

/// The timeout of a handshake.
const PATIENCE: Duration = Duration::from_secs(10);

/// Begins a connection, encrypted or not; returns `None` if it ends before its first request.
pub(crate) async fn begin(
    stream: TcpStream,
    transport: &Transport,
    service: &Service,
    connection: &Connection,
) -> Option<Stream> {
    if !transport.is_needed() {
        return Some(Stream::Plain(stream));
    }
    let accepted = tokio::select! {
        accepted = tokio::time::timeout(PATIENCE, transport.accept(stream)) => accepted,
        () = service.shutdown.begun() => return None,
        () = connection.close.requested() => return None,
    };
    let why = match accepted {
        Ok(Ok(stream)) => {
            note_client(&stream, service, connection);
            return Some(stream);
        }
        Ok(Err(error)) => error.to_string(),
        Err(_) => "its TLS handshake takes too long".to_owned(),
    };
    tracing::info!(
        id = 22988,
        ctx = &**connection.desc(),
        remote = &*connection.client,
        why,
        "closing a connection whose TLS handshake failed"
    );
    None
}
