//! Listening and the loop of an HTTP connection.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, anyhow};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::{Service as _, service_fn};
use hyper::{Request, Response};
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;

use super::peer::Peer;
use super::site::Site;
use crate::config::Config;
use crate::failure::{Failure, FailureKind};
use crate::{TlsMode, peer, processes, tls};

/// The largest number of connections. Further ones are closed at once.
const MAX_CONNECTIONS: usize = 64;
/// The time in which a client sends the head of a request, also the first one.
const HEAD_PATIENCE: Duration = Duration::from_secs(10);
/// The largest head of a request in bytes, and its largest number of headers.
const MAX_HEAD_BYTES: usize = 16 * 1024;
const MAX_HEADERS: usize = 64;
/// What a client gets that does not encrypt although the server requires it.
const PLAIN_ANSWER: &str = "HTTP/1.1 400 Bad Request\r\n\
    Content-Type: text/plain; charset=utf-8\r\nX-Content-Type-Options: nosniff\r\n\
    Content-Length: 49\r\nConnection: close\r\n\r\n\
    this server requires encryption: use https://...\n";
/// The pause after a failed accept.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Listens on the configured addresses.
///
/// # Errors
/// An address that is in use or not of this machine, or that is not allowed without a login and
/// encryption.
pub(super) async fn listen(config: &Config) -> anyhow::Result<Vec<TcpListener>> {
    let mut listeners = Vec::new();
    for (host, port) in &config.http.addresses {
        let resolved: Vec<SocketAddr> = tokio::net::lookup_host((host.as_str(), *port))
            .await
            .with_context(|| {
                let tried = format!("cannot resolve '{host}' for the status page");
                Failure::new(FailureKind::Listen, tried, "correct net.http.address or --http")
            })?
            .collect();
        let mut opened = 0;
        for address in resolved {
            check_open(config, address)?;
            match crate::start::open_listener(address) {
                Ok(listener) => listeners.push(listener),
                // `localhost` may resolve to IPv6 on a machine without it.
                Err(_) if address.is_ipv6() && opened > 0 => continue,
                Err(error) => return Err(listen_failed(address, error)),
            }
            opened += 1;
        }
    }
    Ok(listeners)
}

/// Refuses to serve other machines without a login and encryption, unless the configuration allows
/// it.
fn check_open(config: &Config, address: SocketAddr) -> anyhow::Result<()> {
    let is_closed = config.authorization && config.tls.mode != TlsMode::Disabled;
    if address.ip().to_canonical().is_loopback() || is_closed || config.allow_open {
        return Ok(());
    }
    let missing = match (config.authorization, config.tls.mode) {
        (false, TlsMode::Disabled) => "--auth and --tlsMode are",
        (false, _) => "--auth is",
        (true, _) => "--tlsMode is",
    };
    Err(anyhow!(
        "other machines could use it without a login or read it, because {missing} not set"
    ))
    .context(Failure::new(
        FailureKind::Options,
        format!("cannot serve the status page on {address}"),
        "set both, serve it on 127.0.0.1, or add --allowOpen if the network restricts access",
    ))
}

fn listen_failed(address: SocketAddr, error: std::io::Error) -> anyhow::Error {
    let owner = match error.kind() {
        std::io::ErrorKind::AddrInUse => processes::listening_on(address),
        _ => None,
    };
    let reason = owner.map_or_else(|| anyhow!(error), |it| anyhow!("{it}, uses this port"));
    let tried = format!("cannot listen on {address} for the status page");
    reason.context(Failure::new(FailureKind::Listen, tried, "choose another address with --http"))
}

/// Accepts connections until the server stops. The connections end with the future.
pub(super) async fn serve(listener: TcpListener, site: Arc<Site>, places: Arc<Semaphore>) {
    let mut connections = JoinSet::new();
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            Some(_) = connections.join_next() => continue,
            () = site.service.shutdown.begun() => return,
        };
        match accepted {
            Ok((stream, remote)) => {
                // A connection beyond the limit is closed.
                let Ok(place) = places.clone().try_acquire_owned() else { continue };
                let site = site.clone();
                connections.spawn(async move {
                    serve_connection(stream, remote, &site).await;
                    drop(place);
                });
            }
            Err(error) => {
                tracing::warn!(%error, "a connection to the status page could not be accepted");
                tokio::time::sleep(ACCEPT_PAUSE).await;
            }
        }
    }
}

/// The places of all listeners together.
pub(super) fn places() -> Arc<Semaphore> {
    Arc::new(Semaphore::new(MAX_CONNECTIONS))
}

/// Tells a browser that was opened with `http://` to use `https://`.
async fn refuse_plain(mut stream: TcpStream) {
    if stream.write_all(PLAIN_ANSWER.as_bytes()).await.is_err() || stream.shutdown().await.is_err()
    {
        return;
    }
    // Closing a socket with unread data would discard the answer on its way.
    let mut rest = [0; 1024];
    while stream.read(&mut rest).await.is_ok_and(|read| read > 0) {}
}

async fn serve_connection(stream: TcpStream, remote: SocketAddr, site: &Arc<Site>) {
    let Ok(local) = stream.local_addr() else { return };
    let _ = stream.set_nodelay(true);
    peer::keep_alive(&stream);
    let mut peer = Peer::new(&site.service, remote, local);
    // The first byte distinguishes TLS from plain HTTP. The wait for it has a limit.
    let begun = async {
        if site.transport.refuses(&stream).await.ok()? {
            refuse_plain(stream).await;
            return None;
        }
        tls::begin(stream, &site.transport, &site.service, &peer.connection).await
    };
    let Ok(Some(stream)) = tokio::time::timeout(HEAD_PATIENCE, begun).await else { return };
    peer.is_encrypted = stream.version().is_some();
    let routes = TowerToHyperService::new(site.router());
    let service = service_fn(move |mut request: Request<Incoming>| {
        request.extensions_mut().insert(peer.clone());
        let answered = routes.call(request);
        async move { answered.await.map(|response: Response<axum::body::Body>| response) }
    });
    let served = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD_PATIENCE)
        .max_buf_size(MAX_HEAD_BYTES)
        .max_headers(MAX_HEADERS)
        .serve_connection(TokioIo::new(stream), service)
        .await;
    if let Err(error) = served {
        tracing::debug!(remote = %remote, %error, "a connection to the status page ended");
    }
}
