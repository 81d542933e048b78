//! The client of a connection: whether it is still connected while one of its commands runs.
//!
//! A connection's task runs commands itself and reads nothing meanwhile, so it would not notice
//! that the client has disconnected. The task unlocks the socket while a command runs
//! ([`lending`]); the watcher thread checks the sockets of operations that have run for a while
//! ([`end_abandoned`]) and kills those whose clients have disconnected. While the task itself waits
//! for an event, it also watches its socket ([`gone`]).
//!
//! The end of the client's stream counts as a disconnect, as in the reference. Unread bytes are
//! further commands and give no information. On an encrypted connection a few bytes may be the
//! final `close_notify`; the system then reports whether the client will send more.

use std::mem::MaybeUninit;
use std::sync::Arc;
use std::time::Duration;

use mayfly_base::ErrorCode;
use mayfly_service::{Connection, Service};
use mayfly_work::LONG;
use parking_lot::lock_api::ArcMutexGuard;
use parking_lot::{Mutex, RawMutex};
use socket2::{SockRef, TcpKeepalive};
use tokio::net::TcpStream;

use crate::tls::Stream;

/// The longest idle time after which the system sends keepalive probes.
const KEEP_ALIVE_IDLE: Duration = Duration::from_secs(300);
/// The longest time between two keepalive probes.
const KEEP_ALIVE_INTERVAL: Duration = Duration::from_secs(1);

/// The socket, locked by its task except while a command runs.
pub(crate) type Lendable = ArcMutexGuard<RawMutex, Stream>;

/// No encrypted request is shorter: headers of the record and of the message, a document and a tag.
const LEAST_ENCRYPTED: usize = 48;
/// The interval at which a client that may have sent `close_notify` is checked.
const LOOK_AGAIN: Duration = Duration::from_millis(250);

/// Makes the connection able to check its socket for a disconnect.
pub(crate) fn attach(stream: Stream, connection: &Connection) -> Lendable {
    let shared = Arc::new(Mutex::new(stream));
    let weak = Arc::downgrade(&shared);
    let is_gone = move || {
        let Some(shared) = weak.upgrade() else { return true };
        // While it is locked, its task uses it and will notice a disconnect itself.
        shared.try_lock().is_some_and(|stream| is_gone(&stream))
    };
    // A connection is served once.
    let _ = connection.is_gone.set(Box::new(is_gone));
    shared.lock_arc()
}

/// Runs a command, which is killed if its client disconnects.
#[inline]
pub(crate) fn lending<T>(stream: &mut Lendable, command: impl FnOnce() -> T) -> T {
    ArcMutexGuard::unlocked(stream, command)
}

/// Kills long-running operations whose clients have disconnected.
pub(crate) fn end_abandoned(service: &Service) {
    let long = i64::try_from(LONG.as_micros()).unwrap_or(i64::MAX);
    for op in service.ops.list() {
        if op.is_killed() || op.elapsed_micros() < long {
            continue;
        }
        let connection = match op.info().connection_id {
            0 => None,
            id => service.connections.get(id),
        };
        if let Some(connection) = connection
            && connection.is_gone.get().is_some_and(|is_gone| is_gone())
        {
            tracing::debug!(
                ctx = &**connection.desc(),
                opId = op.id(),
                "an operation was killed because its client has disconnected"
            );
            op.kill(ErrorCode::ClientDisconnect);
        }
    }
}

/// Whether the client's stream has ended and all of it was read.
fn is_gone(stream: &Stream) -> bool {
    use std::io::ErrorKind::{Interrupted, WouldBlock};
    let mut bytes = [MaybeUninit::uninit(); LEAST_ENCRYPTED];
    match SockRef::from(stream.socket()).peek(&mut bytes) {
        Ok(0) => true,
        Ok(waiting) => are_last_words(stream, waiting),
        Err(error) => !matches!(error.kind(), WouldBlock | Interrupted),
    }
}

/// Waits until the client disconnects. This is undetectable if it has sent further commands.
pub(crate) async fn gone(stream: &Stream) {
    loop {
        match stream.socket().peek(&mut [0; LEAST_ENCRYPTED]).await {
            Ok(0) | Err(_) => return,
            Ok(waiting) if are_last_words(stream, waiting) => return,
            Ok(waiting) => match stream {
                Stream::Tls(_) if waiting < LEAST_ENCRYPTED => tokio::time::sleep(LOOK_AGAIN).await,
                Stream::Plain(_) | Stream::Tls(_) => std::future::pending().await,
            },
        }
    }
}

/// Whether an encrypted connection has too few unread bytes for a request, and the client sends no
/// more.
fn are_last_words(stream: &Stream, waiting: usize) -> bool {
    match stream {
        Stream::Plain(_) => false,
        Stream::Tls(_) => waiting < LEAST_ENCRYPTED && sends_no_more(stream.socket()),
    }
}

#[cfg(target_os = "linux")]
fn sends_no_more(socket: &TcpStream) -> bool {
    use rustix::event::{PollFd, PollFlags, Timespec, poll};
    let ended = PollFlags::RDHUP | PollFlags::HUP | PollFlags::ERR;
    let mut asked = [PollFd::new(socket, PollFlags::RDHUP)];
    let now = Timespec { tv_sec: 0, tv_nsec: 0 };
    poll(&mut asked, Some(&now)).is_ok() && asked[0].revents().intersects(ended)
}

#[cfg(not(target_os = "linux"))]
fn sends_no_more(_: &TcpStream) -> bool {
    false
}

/// Makes the system detect an unreachable client without traffic: as in the reference, or earlier
/// if the system is configured so.
pub(crate) fn keep_alive(stream: &TcpStream) {
    let socket = SockRef::from(stream);
    let idle = socket.tcp_keepalive_time().map_or(KEEP_ALIVE_IDLE, |it| it.min(KEEP_ALIVE_IDLE));
    let interval = socket.tcp_keepalive_interval();
    let interval = interval.map_or(KEEP_ALIVE_INTERVAL, |it| it.min(KEEP_ALIVE_INTERVAL));
    let keepalive = TcpKeepalive::new().with_time(idle).with_interval(interval);
    if let Err(error) = socket.set_tcp_keepalive(&keepalive) {
        tracing::debug!(error = %error, "keepalive cannot be enabled for a connection");
    }
}
