//! The client at the other end of a connection: whether it is still there while one of its commands runs.
//!
//! A connection's task runs commands itself and reads nothing meanwhile, so that it would not notice that the client is gone. The
//! task lends the socket while a command runs ([`lending`]); the watch over operations looks at the sockets of those that have run
//! for a while ([`end_abandoned`]), and kills what nobody waits for. While the task itself waits for something to happen, it
//! watches its socket, too ([`gone`]).
//!
//! The end of the client's bytes counts as its going, as in the reference: a client that sends no more has no more questions.
//! Bytes that are there are further commands, and say nothing. Of an encrypted connection a few bytes may be its last words
//! (`close_notify`): there the system is asked whether the client will send more.

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

/// Longest time without traffic until the system asks whether the client's machine is still there.
const KEEP_ALIVE_IDLE: Duration = Duration::from_secs(300);
/// Longest time between two such questions.
const KEEP_ALIVE_INTERVAL: Duration = Duration::from_secs(1);

/// The socket, locked by its task but while a command runs.
pub(crate) type Lendable = ArcMutexGuard<RawMutex, Stream>;

/// No request is shorter in an encrypted record: headers of the record and of the message, a document and a tag.
const LEAST_ENCRYPTED: usize = 48;
/// How often a client is looked at that may have said its last words.
const LOOK_AGAIN: Duration = Duration::from_millis(250);

/// Takes the socket of a connection, which can say from now on whether its client is gone.
pub(crate) fn attach(stream: Stream, connection: &Connection) -> Lendable {
    let shared = Arc::new(Mutex::new(stream));
    let weak = Arc::downgrade(&shared);
    let is_gone = move || {
        let Some(shared) = weak.upgrade() else { return true };
        // Locked, it is in the hands of its task, which will notice by itself.
        shared.try_lock().is_some_and(|stream| is_gone(&stream))
    };
    // A connection is served once.
    let _ = connection.is_gone.set(Box::new(is_gone));
    shared.lock_arc()
}

/// Runs a command that ends when its client is gone.
#[inline]
pub(crate) fn lending<T>(stream: &mut Lendable, command: impl FnOnce() -> T) -> T {
    ArcMutexGuard::unlocked(stream, command)
}

/// Ends the operations that have run for long and whose clients are gone.
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
            tracing::debug!(ctx = &**connection.desc(), opId = op.id(), "its client is gone");
            op.kill(ErrorCode::ClientDisconnect);
        }
    }
}

/// Whether nothing more will come from the client and everything that came was read.
fn is_gone(stream: &Stream) -> bool {
    use std::io::ErrorKind::{Interrupted, WouldBlock};
    let mut bytes = [MaybeUninit::uninit(); LEAST_ENCRYPTED];
    match SockRef::from(stream.socket()).peek(&mut bytes) {
        Ok(0) => true,
        Ok(waiting) => are_last_words(stream, waiting),
        Err(error) => !matches!(error.kind(), WouldBlock | Interrupted),
    }
}

/// Waits until the client is gone. When it has sent further commands, nobody can tell.
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

/// Whether so few bytes wait on an encrypted connection that they are no request, and the client sends no more.
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

/// Makes the system notice when the client's machine is gone, without traffic: as the reference, sooner where the system is set so.
pub(crate) fn keep_alive(stream: &TcpStream) {
    let socket = SockRef::from(stream);
    let idle = socket.tcp_keepalive_time().map_or(KEEP_ALIVE_IDLE, |it| it.min(KEEP_ALIVE_IDLE));
    let interval = socket.tcp_keepalive_interval();
    let interval = interval.map_or(KEEP_ALIVE_INTERVAL, |it| it.min(KEEP_ALIVE_INTERVAL));
    let wanted = TcpKeepalive::new().with_time(idle).with_interval(interval);
    if let Err(error) = socket.set_tcp_keepalive(&wanted) {
        tracing::debug!(error = %error, "a socket without keepalive");
    }
}
