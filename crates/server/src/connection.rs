//! One connection: reads bytes, decodes messages, runs commands, writes replies.
//!
//! Requests are answered in order; nothing is read while one runs. Where possible a request costs
//! one read and its reply one write: the input buffer holds whole messages, and the reply is built
//! in the output buffer.

mod waits;

use std::io::{Read, Seek, Write};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicI32, Ordering};
use std::time::Duration;

use bytes::BytesMut;
use mayfly_base::Error;
use mayfly_commands::{
    Dispatched, DocumentSequence, Incoming, Next, Outcome, Repeat, append_failure, dispatch,
};
use mayfly_runs::{ScratchFile, file_failed};
use mayfly_service::{Connection, LARGE_BYTES, Service, UnderWay};
use mayfly_value::DocBuilder;
use mayfly_wire::{Codec, Flags, Message, ReplyBuilder, ReplyFlags, ReplyTo, WireError};
use mayfly_work::{FirstTurn, LONG_BYTES, memory};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::Instant;
use tokio_util::codec::Decoder;

use crate::durability;
use crate::peer;
use crate::tls::{self, Stream, Transport};

/// The initial capacity of the input buffer.
const INPUT_BYTES: usize = 8 * 1024;
/// Larger buffers are released after use.
const KEPT_BYTES: usize = 256 * 1024;

/// The longest time between two steps of a client that must log in and has not.
const PATIENCE: Duration = Duration::from_secs(10);
/// The largest message of a client that must log in and has not.
const MAX_UNAUTHENTICATED_BYTES: usize = 64 * 1024;
/// The timeout for the end of an encrypted connection.
const FAREWELL: Duration = Duration::from_secs(1);
/// The time after which the unsent part of a large reply may be written to a file.
const TAKEN_AT_ONCE: Duration = Duration::from_millis(50);

/// Whether a connection continues or ends.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Flow {
    Continue,
    Close,
}

/// The client has disconnected.
struct Disconnected;

/// Serves a connection until it ends.
pub(crate) async fn serve(
    stream: TcpStream,
    transport: &Transport,
    service: &Arc<Service>,
    connection: &Arc<Connection>,
) {
    // Without it small replies wait for the client's acknowledgements; an error is harmless.
    let _ = stream.set_nodelay(true);
    let Some(stream) = tls::begin(stream, transport, service, connection).await else { return };
    let stream = peer::attach(stream, connection);
    let mut served =
        Served { stream, service, connection, output: Vec::new(), is_pipelined: false };
    let ended = served.run().await;
    if let Stream::Tls(stream) = &mut *served.stream {
        // `close_notify` lets the client detect truncation; an unresponsive client is not waited
        // for.
        let _ = tokio::time::timeout(FAREWELL, stream.shutdown()).await;
    }
    if let Err(error) = ended {
        match error {
            WireError::Io(error) => {
                tracing::debug!(ctx = &**connection.desc(), error = %error, "connection was lost");
            }
            WireError::Fatal(why) => tracing::warn!(
                ctx = &**connection.desc(),
                remote = &*connection.client,
                why,
                "closing a connection that sent a malformed message"
            ),
            WireError::Recoverable { error, .. } => {
                tracing::warn!(ctx = &**connection.desc(), error = %error, "closing a connection");
            }
        }
    }
}

struct Served<'s> {
    stream: peer::Lendable,
    service: &'s Arc<Service>,
    connection: &'s Arc<Connection>,
    output: Vec<u8>,
    /// Whether bytes after the present request were read with it.
    is_pipelined: bool,
}

/// The state of the request that a client is about to send.
#[derive(Default)]
struct NextRequest<'s> {
    /// The reserved memory for its bytes, if it is large.
    room: Option<UnderWay<'s>>,
    /// Whether the client has sent a request before.
    spoke: bool,
    /// The deadline of a client without a login for its present step.
    deadline: Option<Instant>,
}

impl<'s> Served<'s> {
    /// Reads and answers requests until the connection ends.
    async fn run(&mut self) -> Result<(), WireError> {
        let (service, connection) = (self.service, self.connection);
        let ending = async {
            tokio::select! {
                () = service.shutdown.begun() => {}
                () = connection.close.requested() => {}
            }
        };
        let mut ending = pin!(ending);
        let mut input = BytesMut::with_capacity(INPUT_BYTES);
        let mut next = NextRequest::default();
        loop {
            match apart(input.len(), || Codec.decode(&mut input)) {
                Ok(Some(message)) => {
                    let network = &service.metrics.network;
                    network.bytes_in.add(message.wire_bytes as u64);
                    network.requests.add(1);
                    if connection.close.is_requested() {
                        return Ok(());
                    }
                    (next.spoke, next.deadline) = (true, None);
                    self.is_pipelined = !input.is_empty() || self.stream.holds_bytes();
                    if self.answer(&message).await? == Flow::Close {
                        return Ok(());
                    }
                    let wire_bytes = message.wire_bytes;
                    drop(message);
                    if wire_bytes > KEPT_BYTES {
                        let mut rest = BytesMut::with_capacity(INPUT_BYTES.max(input.len()));
                        rest.extend_from_slice(&input);
                        input = rest;
                    }
                    next.room = None;
                }
                Ok(None) => {
                    if self.read(&mut input, &mut next, &mut ending).await? == Flow::Close {
                        return Ok(());
                    }
                }
                Err(WireError::Recoverable { reply_to, error }) => {
                    service.metrics.network.requests.add(1);
                    service.metrics.asserts.user.add(1);
                    if reply_to.is_expected {
                        self.reply_error(reply_to, &error)?;
                        self.send().await?;
                    }
                }
                Err(fatal) => return Err(fatal),
            }
        }
    }

    /// Reads more of a request, and closes the connection if the client is too slow.
    async fn read(
        &mut self,
        input: &mut BytesMut,
        next: &mut NextRequest<'s>,
        ending: &mut Pin<&mut impl Future<Output = ()>>,
    ) -> Result<Flow, WireError> {
        let is_unauthenticated = self.serves_unauthenticated();
        let announced = Codec::announced(input);
        if is_unauthenticated && announced > Some(MAX_UNAUTHENTICATED_BYTES) {
            self.note_refused("its request is too large for a client that has not logged in");
            return Ok(Flow::Close);
        }
        let hurries = is_unauthenticated
            && (!next.spoke || !input.is_empty() || self.connection.access.is_logging_in());
        let deadline = next.deadline;
        next.deadline = hurries.then(|| deadline.unwrap_or_else(|| Instant::now() + PATIENCE));
        if next.room.is_none()
            && let Some(announced) = announced
            && announced > LARGE_BYTES
        {
            next.room = tokio::select! {
                room = self.service.buffers.request(announced) => Some(room),
                () = ended(ending) => return Ok(Flow::Close),
            };
        }
        // Biased to the read: requests that were sent before the end are still answered.
        let read = tokio::select! {
            biased;
            read = self.stream.read_buf(input) => read?,
            () = ended(ending) => return Ok(Flow::Close),
            () = reached(next.deadline) => {
                self.note_refused("its login takes too long");
                return Ok(Flow::Close);
            }
            () = overdue(next.room.as_ref()) => {
                self.note_slow("its large request arrives too slowly, and others wait for memory");
                return Ok(Flow::Close);
            }
        };
        Ok(if read == 0 { Flow::Close } else { Flow::Continue })
    }

    /// Whether the client must log in and has not.
    fn serves_unauthenticated(&self) -> bool {
        self.service.access.is_enforced() && !self.connection.access.is_known()
    }

    /// Runs a request, more than once if it waits or streams.
    async fn answer(&mut self, message: &Message) -> Result<Flow, WireError> {
        let sequences: Vec<DocumentSequence<'_>> = message
            .sequences
            .iter()
            .map(|s| DocumentSequence { name: &s.name, documents: &s.documents, count: s.count })
            .collect();
        let mut to = message.reply_to();
        let mut incoming = Incoming::new(message.document());
        incoming.sequences = &sequences;
        incoming.legacy_db = message.legacy_db.as_deref();
        incoming.exhaust_allowed = message.flags.contains(Flags::EXHAUST_ALLOWED);
        let Ok(first_turn) = self.admit(&incoming).await else { return Ok(Flow::Close) };
        incoming.first_turn = first_turn.as_ref();
        let mut waiting = None;
        loop {
            let request_id = next_request_id();
            let output = std::mem::take(&mut self.output);
            let (reply, doc) = ReplyBuilder::begin(output, to, request_id);
            let (service, connection) = (self.service, self.connection);
            let again = incoming.again(waiting.as_ref());
            let command = || dispatch(service, connection, &again, doc);
            // A command is not interrupted when the client disconnects if it wants no reply, or if
            // further commands were sent after it.
            let Dispatched { doc, next, mut trace } = match to.is_expected && !self.is_pipelined {
                true => peer::lending(&mut self.stream, command),
                false => command(),
            };
            if service.store.engine().sharing().is_taken_over() {
                // The process is about to end. A reply would make the client try again here.
                return std::future::pending().await;
            }
            let outcome = match next {
                Next::Reply(outcome) => outcome,
                Next::Wait(wait, op) => {
                    incoming.first_turn.inspect(|turn| turn.give_back());
                    self.take_back(doc.finish_buffer());
                    waiting = op;
                    let waited = self.wait(&wait, waiting.as_ref()).await;
                    let Ok(waited) = waited else { return Ok(Flow::Close) };
                    incoming.repeat.waited = true;
                    incoming.repeat.waited_for += waited;
                    continue;
                }
                Next::HangUp => return Ok(Flow::Close),
            };
            let now = if outcome.close { Flow::Close } else { Flow::Continue };
            if !outcome.pause.is_zero() {
                self.pause(outcome.pause).await;
            }
            if !to.is_expected {
                self.take_back(doc.finish_buffer());
            } else {
                let durable = durability::wait(service, &outcome, trace.as_deref_mut()).await;
                self.reply(to, &outcome, durable, (reply, doc)).await?;
            }
            if let Some(trace) = trace {
                service.traces.finish(trace);
            }
            if !to.is_expected {
                return Ok(now);
            }
            if !outcome.more_to_come {
                return Ok(now);
            }
            // The next reply of a stream answers the previous one.
            to = ReplyTo { request_id, ..to };
            incoming.repeat = Repeat { last_counter: outcome.counter, ..Repeat::default() };
            waiting = None;
        }
    }

    /// Waits for memory for the reply, and for a turn if the command is long. Returns the turn.
    async fn admit(&self, incoming: &Incoming<'_>) -> Result<Option<FirstTurn>, Disconnected> {
        if memory::is_short() {
            self.service.relieve_memory();
        }
        if self.service.buffers.is_crowded() && incoming.may_answer_much() {
            tokio::select! {
                () = self.service.buffers.room_for_reply() => {}
                () = self.service.shutdown.begun() => {}
                () = self.connection.close.requested() => {}
            }
        }
        // Commands of unauthenticated clients are refused at once.
        if !incoming.starts_long(self.service) || self.serves_unauthenticated() {
            return Ok(None);
        }
        tokio::select! {
            biased;
            turn = mayfly_work::first_turn() => Ok(Some(turn)),
            () = self.service.shutdown.begun() => Ok(None),
            () = self.connection.close.requested() => Ok(None),
            () = peer::gone(&self.stream), if !self.is_pipelined => Err(Disconnected),
        }
    }

    /// Sends a reply; or an error, if the data that it contains or acknowledges is not durable.
    async fn reply(
        &mut self,
        to: ReplyTo,
        outcome: &Outcome,
        durable: mayfly_base::Result<()>,
        (reply, doc): (ReplyBuilder, DocBuilder),
    ) -> Result<(), WireError> {
        let flags = ReplyFlags { more_to_come: outcome.more_to_come };
        let finished = durable.and_then(|()| apart(doc.len(), || reply.finish(doc, flags)));
        match finished {
            Ok(output) => self.output = output,
            Err(error) => self.reply_error(to, &error)?,
        }
        self.send().await
    }

    /// Sends a large reply. If replies occupy much memory, the unsent part is written to a file.
    async fn send_large(&mut self) -> Result<(), WireError> {
        let buffers = &self.service.buffers;
        let under_way = buffers.reply(self.output.len());
        let mut sent = 0;
        while sent < self.output.len() {
            tokio::select! {
                biased;
                written = self.stream.write(&self.output[sent..]) => match written? {
                    0 => return Err(std::io::Error::from(std::io::ErrorKind::WriteZero).into()),
                    more => sent += more,
                },
                () = tokio::time::sleep(TAKEN_AT_ONCE) => {
                    if buffers.is_crowded() {
                        break;
                    }
                }
            }
        }
        if sent == self.output.len() {
            return Ok(());
        }
        let output = std::mem::take(&mut self.output);
        let file = {
            let _filing = buffers.filing().await;
            tokio::task::block_in_place(|| {
                let file = self.set_aside(&output[sent..]);
                // Returning tens of megabytes to the system takes a while as well.
                drop(output);
                file
            })
        };
        drop(under_way);
        let mut file = match file {
            Ok(file) => file,
            Err(error) => {
                self.note_slow(error.message());
                return Err(std::io::Error::from(std::io::ErrorKind::TimedOut).into());
            }
        };
        let mut piece = vec![0; LARGE_BYTES];
        loop {
            match tokio::task::block_in_place(|| file.read(&mut piece))? {
                0 => return Ok(()),
                read => self.stream.write_all(&piece[..read]).await?,
            }
        }
    }

    /// Writes the unsent part of a reply to a file.
    fn set_aside(&self, bytes: &[u8]) -> mayfly_base::Result<ScratchFile> {
        let failed = |error: std::io::Error| file_failed("write", &error);
        self.service.store.room_for_files(bytes.len() as u64)?;
        let mut file = mayfly_runs::open_file(&self.service.spill_folder())?;
        file.write_all(bytes).and_then(|()| file.rewind()).map_err(failed)?;
        Ok(file)
    }

    /// Logs that the connection of an unauthenticated client is closed.
    fn note_refused(&self, why: &str) {
        let remote = &*self.connection.client;
        tracing::info!(
            ctx = &**self.connection.desc(),
            remote,
            why,
            "closing a connection without a login"
        );
    }

    /// Logs that a slow connection is closed because others need its memory.
    fn note_slow(&self, why: &str) {
        self.service.buffers.note_closed();
        let remote = &*self.connection.client;
        tracing::warn!(remote, why, "closing a slow connection");
    }

    fn reply_error(&mut self, to: ReplyTo, error: &Error) -> Result<(), WireError> {
        let (reply, mut doc) = ReplyBuilder::begin(Vec::new(), to, next_request_id());
        append_failure(self.service, error, &mut doc);
        let finished = reply.finish(doc, ReplyFlags::default());
        self.output = finished.map_err(|error| WireError::Fatal(error.message().to_owned()))?;
        Ok(())
    }

    async fn send(&mut self) -> Result<(), WireError> {
        let length = self.output.len();
        match length > LARGE_BYTES {
            false => self.stream.write_all(&self.output).await?,
            true => self.send_large().await?,
        }
        self.stream.flush().await?;
        self.service.metrics.network.bytes_out.add(length as u64);
        let output = std::mem::take(&mut self.output);
        self.take_back(output);
        Ok(())
    }

    /// Keeps the buffer for the next reply, unless it has become large.
    fn take_back(&mut self, mut output: Vec<u8>) {
        if output.capacity() <= KEPT_BYTES {
            output.clear();
            self.output = output;
        }
    }
}

/// Processes a message of this size. Large messages are checked, compressed and decompressed while
/// other tasks have the thread of the runtime: with 200 clients that send or request 45 MB each, a
/// short command would otherwise wait for seconds.
fn apart<T>(bytes: usize, work: impl FnOnce() -> T) -> T {
    match bytes > LONG_BYTES {
        true => tokio::task::block_in_place(work),
        false => work(),
    }
}

/// Waits until a deadline; for ever without one.
async fn reached(deadline: Option<Instant>) {
    match deadline {
        Some(deadline) => tokio::time::sleep_until(deadline).await,
        None => std::future::pending().await,
    }
}

/// Waits until a request with reserved memory is overdue.
async fn overdue(room: Option<&UnderWay<'_>>) {
    match room {
        Some(room) => room.overdue().await,
        None => std::future::pending().await,
    }
}

async fn ended(ending: &mut Pin<&mut impl Future<Output = ()>>) {
    ending.as_mut().await;
}

fn next_request_id() -> i32 {
    static NEXT: AtomicI32 = AtomicI32::new(1);
    NEXT.fetch_add(1, Ordering::Relaxed)
}
