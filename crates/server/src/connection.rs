//! One connection: bytes in, messages, commands, bytes out.
//!
//! Requests are answered in their order; while one runs, nothing is read. Where possible a request costs one read
//! and its reply one write: the input buffer takes whole messages, and the reply is built in the output buffer.

use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicI32, Ordering};
use std::time::Duration;

use bytes::BytesMut;
use mayfly_base::Error;
use mayfly_commands::{
    DataWait, Dispatched, DocumentSequence, Incoming, Repeat, append_error, dispatch,
};
use mayfly_service::{Connection, Service};
use mayfly_wire::{Codec, Flags, Message, ReplyBuilder, ReplyFlags, ReplyTo, WireError};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio_util::codec::Decoder;

/// Room for input at the beginning.
const INPUT_BYTES: usize = 8 * 1024;
/// An output buffer that grew beyond this is given back.
const KEPT_OUTPUT_BYTES: usize = 256 * 1024;

/// Why a connection goes on or ends.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Next {
    GoOn,
    Close,
}

/// Serves a connection until it ends.
pub(crate) async fn serve(stream: TcpStream, service: &Arc<Service>, connection: &Arc<Connection>) {
    // Without it small replies wait for the client's acknowledgements; the connection works all the same.
    let _ = stream.set_nodelay(true);
    let mut served = Served { stream, service, connection, output: Vec::new() };
    if let Err(error) = served.run().await {
        match error {
            WireError::Io(error) => {
                tracing::debug!(ctx = &**connection.desc(), error = %error, "connection broke");
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
    stream: TcpStream,
    service: &'s Arc<Service>,
    connection: &'s Arc<Connection>,
    output: Vec<u8>,
}

impl Served<'_> {
    async fn run(&mut self) -> Result<(), WireError> {
        let (service, connection) = (self.service, self.connection);
        let ending = async {
            tokio::select! {
                () = service.shutdown.requested() => {}
                () = connection.close.requested() => {}
            }
        };
        let mut ending = pin!(ending);
        let mut input = BytesMut::with_capacity(INPUT_BYTES);
        loop {
            match Codec.decode(&mut input) {
                Ok(Some(message)) => {
                    let network = &service.metrics.network;
                    network.bytes_in.add(message.wire_bytes as u64);
                    network.requests.add(1);
                    if self.answer(&message).await? == Next::Close {
                        return Ok(());
                    }
                }
                Ok(None) => {
                    // The read comes first: what a client has sent before the end is still answered.
                    let read = tokio::select! {
                        biased;
                        read = self.stream.read_buf(&mut input) => read?,
                        () = ended(&mut ending) => return Ok(()),
                    };
                    if read == 0 {
                        return Ok(());
                    }
                }
                Err(WireError::Recoverable { reply_to, error }) => {
                    service.metrics.network.requests.add(1);
                    service.metrics.asserts.user.add(1);
                    if reply_to.wanted {
                        self.reply_error(reply_to, &error)?;
                        self.send().await?;
                    }
                }
                Err(fatal) => return Err(fatal),
            }
        }
    }

    /// Runs one request, several times when it waits or streams.
    async fn answer(&mut self, message: &Message) -> Result<Next, WireError> {
        let sequences: Vec<DocumentSequence<'_>> = message
            .sequences
            .iter()
            .map(|s| DocumentSequence { name: &s.name, documents: &s.documents, count: s.count })
            .collect();
        let mut to = message.reply_to();
        let mut incoming = Incoming {
            body: message.document(),
            sequences: &sequences,
            legacy_db: message.legacy_db.as_deref(),
            exhaust_allowed: message.flags.has(Flags::EXHAUST_ALLOWED),
            repeat: Repeat::default(),
        };
        loop {
            let request_id = next_request_id();
            let output = std::mem::take(&mut self.output);
            let (reply, doc) = ReplyBuilder::begin(output, to, request_id);
            // Read before the command runs, so that no change between its answer and the wait is missed.
            let topology_seen = self.service.topology.counter();
            let Dispatched { doc, outcome, data_wait } =
                dispatch(self.service, self.connection, &incoming, doc);
            if outcome.hang_up {
                return Ok(Next::Close);
            }
            if let Some(wait) = data_wait {
                self.take_back(doc.finish_buffer());
                let clock = &self.service.clock;
                let began = clock.monotonic_micros();
                self.wait_for_data(&wait).await;
                incoming.repeat.waited = true;
                // A short wait counts as well, so that the command comes to an end among many that write something else.
                let waited = (clock.monotonic_micros() - began).max(1000);
                incoming.repeat.waited_for += Duration::from_micros(waited.unsigned_abs());
                continue;
            }
            if let Some(wait_ms) = outcome.wait_ms {
                self.take_back(doc.finish_buffer());
                self.wait(topology_seen, wait_ms).await;
                incoming.repeat.waited = true;
                continue;
            }
            let next = if outcome.close { Next::Close } else { Next::GoOn };
            if !to.wanted {
                self.take_back(doc.finish_buffer());
                return Ok(next);
            }
            let durable = match outcome.wait_durable {
                true => self.service.store.wait_durable().await,
                false => Ok(()),
            };
            let flags = ReplyFlags { more_to_come: outcome.more_to_come };
            match durable.and_then(|()| reply.finish(doc, flags)) {
                Ok(output) => self.output = output,
                Err(error) => self.reply_error(to, &error)?,
            }
            self.send().await?;
            if !outcome.more_to_come {
                return Ok(next);
            }
            // The next reply of a stream answers the reply before it.
            to = ReplyTo { request_id, ..to };
            incoming.repeat = Repeat { last_counter: outcome.counter, ..Repeat::default() };
        }
    }

    /// Waits for a topology change, the time, or the end of the server.
    async fn wait(&self, topology_seen: i64, wait_ms: u64) {
        tokio::select! {
            () = self.service.topology.changed_from(topology_seen) => {}
            () = self.service.shutdown.requested() => {}
            () = self.connection.close.requested() => {}
            () = tokio::time::sleep(Duration::from_millis(wait_ms)) => {}
        }
    }

    /// Waits for data, the time, or the end of the server.
    async fn wait_for_data(&self, wait: &DataWait) {
        tokio::select! {
            () = wait.awaited.beyond(&self.service.store, wait.seen) => {}
            () = self.service.shutdown.requested() => {}
            () = self.connection.close.requested() => {}
            () = tokio::time::sleep(wait.longest) => {}
        }
    }

    fn reply_error(&mut self, to: ReplyTo, error: &Error) -> Result<(), WireError> {
        let (reply, mut doc) = ReplyBuilder::begin(Vec::new(), to, next_request_id());
        append_error(&mut doc, error);
        let finished = reply.finish(doc, ReplyFlags::default());
        self.output = finished.map_err(|error| WireError::Fatal(error.message().to_owned()))?;
        Ok(())
    }

    async fn send(&mut self) -> Result<(), WireError> {
        self.stream.write_all(&self.output).await?;
        self.service.metrics.network.bytes_out.add(self.output.len() as u64);
        let output = std::mem::take(&mut self.output);
        self.take_back(output);
        Ok(())
    }

    /// Keeps the buffer for the next reply, unless it has become large.
    fn take_back(&mut self, mut output: Vec<u8>) {
        if output.capacity() <= KEPT_OUTPUT_BYTES {
            output.clear();
            self.output = output;
        }
    }
}

async fn ended(ending: &mut Pin<&mut impl Future<Output = ()>>) {
    ending.as_mut().await;
}

fn next_request_id() -> i32 {
    static NEXT: AtomicI32 = AtomicI32::new(1);
    NEXT.fetch_add(1, Ordering::Relaxed)
}
