//! The client of tests that send messages to a server: OP_MSG over a blocking stream, with one
//! section and no compression.
//!
//! It does not use the server's codec, so that a mistake there is noticed.

use std::io::{Error, ErrorKind, Read, Result, Write};
use std::net::{Shutdown, TcpStream};
use std::time::Duration;

use mayfly_value::bson::{Document, doc};
use mayfly_value::{DocBuf, DocBuilder, RawDoc, RawValue};
use rand::Rng;
use rand::rngs::SmallRng;

const OP_MSG: u32 = 2013;
const OP_QUERY: u32 = 2004;
const HEADER_BYTES: usize = 16;
/// Header, flags, the kind of the section.
const PREFIX_BYTES: usize = 21;
/// Header, flags, cursor, position and count of an OP_REPLY.
const REPLY_PREFIX_BYTES: usize = 36;
const MAX_REPLY_BYTES: usize = 48 << 20;

/// A command, which names its database, as a message.
pub fn message(command: &Document) -> Vec<u8> {
    message_of(DocBuf::from_bson(command).as_doc(), None)
}

fn message_of(command: RawDoc<'_>, db: Option<&str>) -> Vec<u8> {
    let mut doc = DocBuilder::in_buffer(vec![0; PREFIX_BYTES]);
    doc.append_all(command);
    if let Some(db) = db {
        doc.append("$db", db);
    }
    with_header(OP_MSG, doc.finish_buffer())
}

/// The same by OP_QUERY, with the database in the message's own header.
fn legacy_message(db: &str, command: &Document) -> Vec<u8> {
    let mut message = vec![0; HEADER_BYTES + 4];
    message.extend_from_slice(format!("{db}.$cmd\0").as_bytes());
    message.extend_from_slice(&0i32.to_le_bytes());
    message.extend_from_slice(&(-1i32).to_le_bytes());
    message.extend_from_slice(DocBuf::from_bson(command).as_bytes());
    with_header(OP_QUERY, message)
}

fn with_header(opcode: u32, mut message: Vec<u8>) -> Vec<u8> {
    let length = message.len() as u32;
    message[..4].copy_from_slice(&length.to_le_bytes());
    message[4..8].copy_from_slice(&1u32.to_le_bytes());
    message[12..16].copy_from_slice(&opcode.to_le_bytes());
    message
}

/// A connection to a server.
pub struct Connection<S = TcpStream> {
    /// The stream, for tests that send other bytes than commands.
    pub stream: S,
}

impl Connection {
    /// Connects to a server on this machine. `patience` limits each read and write; after that the
    /// server counts as hanging.
    ///
    /// # Errors
    /// Errors of the socket.
    pub fn open(port: u16, patience: Duration) -> Result<Connection> {
        let stream = TcpStream::connect(("127.0.0.1", port))?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(patience))?;
        stream.set_write_timeout(Some(patience))?;
        Ok(Connection { stream })
    }

    /// Sends a command, or a part of it, and closes the connection without reading the reply.
    pub fn cut(mut self, db: &str, command: RawDoc<'_>, random: &mut SmallRng) {
        let message = message_of(command, Some(db));
        let sent = match random.random_bool(0.2) {
            true => random.random_range(0..message.len()),
            false => message.len(),
        };
        let _sent = self.stream.write_all(&message[..sent]);
        if random.random_bool(0.5) {
            std::thread::sleep(Duration::from_micros(random.random_range(0..3_000)));
        }
        let _closed = self.stream.shutdown(Shutdown::Both);
    }

    /// Whether the error is a timeout.
    pub fn is_late(error: &Error) -> bool {
        matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut)
    }
}

impl<S: Read + Write> Connection<S> {
    /// A connection over a stream.
    pub fn over(stream: S) -> Connection<S> {
        Connection { stream }
    }

    /// Sends a command to a database and waits for its reply.
    ///
    /// # Errors
    /// Errors of the stream; [`is_late`](Connection::is_late) distinguishes a timeout from a closed
    /// connection. A reply that is too large or not a document.
    pub fn ask(&mut self, db: &str, command: RawDoc<'_>) -> Result<DocBuf> {
        self.stream.write_all(&message_of(command, Some(db)))?;
        self.receive(PREFIX_BYTES)
    }

    /// The same for a command that names its database.
    ///
    /// # Errors
    /// As [`ask`](Connection::ask).
    pub fn run(&mut self, command: &Document) -> Result<DocBuf> {
        self.stream.write_all(&message(command))?;
        self.receive(PREFIX_BYTES)
    }

    /// The reply to a command that was sent before.
    ///
    /// # Errors
    /// As [`ask`](Connection::ask).
    pub fn read_reply(&mut self) -> Result<DocBuf> {
        self.receive(PREFIX_BYTES)
    }

    /// Runs a command that must succeed.
    ///
    /// # Panics
    /// The command fails.
    #[track_caller]
    pub fn ok(&mut self, command: &Document) -> DocBuf {
        match self.run(command) {
            Ok(reply) if reply.as_doc().get("ok") == Some(RawValue::Double(1.0)) => reply,
            other => panic!("{command}: {other:?}"),
        }
    }

    /// All documents of a command that opens a cursor.
    ///
    /// # Panics
    /// A command fails.
    #[track_caller]
    pub fn all(&mut self, command: &Document) -> Vec<DocBuf> {
        let mut reply = self.ok(command);
        let mut out = Vec::new();
        loop {
            let cursor = reply.as_doc().get("cursor").and_then(RawValue::as_document);
            let cursor = cursor.unwrap_or(RawDoc::EMPTY);
            out.extend(batch(cursor));
            let (Some(RawValue::Int64(id @ 1..)), Some(ns)) = (cursor.get("id"), cursor.get("ns"))
            else {
                return out;
            };
            let (db, collection) =
                ns.as_str().and_then(|ns| ns.split_once('.')).unwrap_or_default();
            reply = self.ok(&doc! { "getMore": id, "collection": collection, "$db": db });
        }
    }

    /// Sends a command by OP_QUERY and returns the document of the OP_REPLY.
    ///
    /// # Errors
    /// As [`ask`](Connection::ask).
    pub fn run_legacy(&mut self, db: &str, command: &Document) -> Result<DocBuf> {
        self.stream.write_all(&legacy_message(db, command))?;
        self.receive(REPLY_PREFIX_BYTES)
    }

    /// The document of the next message, which begins at this offset.
    fn receive(&mut self, prefix: usize) -> Result<DocBuf> {
        let mut length = [0; 4];
        self.stream.read_exact(&mut length)?;
        let size = u32::from_le_bytes(length) as usize;
        if !(prefix + 5..=MAX_REPLY_BYTES).contains(&size) {
            return Err(Error::other(format!("a reply of {size} bytes")));
        }
        let mut rest = vec![0; size - 4];
        self.stream.read_exact(&mut rest)?;
        let document = rest.split_off(prefix - 4);
        DocBuf::from_bytes(document).ok_or_else(|| Error::other("a reply that is no document"))
    }
}

/// The documents of a cursor's batch.
pub fn batch(cursor: RawDoc<'_>) -> Vec<DocBuf> {
    let batch = cursor.get("firstBatch").or(cursor.get("nextBatch"));
    let batch = batch.and_then(RawValue::as_array).unwrap_or(RawDoc::EMPTY);
    batch.iter().filter_map(|it| it.value().as_document().map(RawDoc::to_owned)).collect()
}
