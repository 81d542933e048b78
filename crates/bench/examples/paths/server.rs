//! A server without a network, and the connection loop's work for one message.

use std::sync::Arc;
use std::time::Duration;

use bytes::BytesMut;
use mayfly_auth::UserName;
use mayfly_commands::{Dispatched, DocumentSequence, Incoming, Next, dispatch};
use mayfly_kv_rocksdb::{RocksEngine, RocksOptions};
use mayfly_service::Connection;
use mayfly_testkit::{Fixture, START_MS, dialect};
use mayfly_value::{DocBuf, RawDoc, RawValue};
use mayfly_wire::{Codec, Flags, Outgoing, ReplyBuilder, ReplyFlags};
use tempfile::TempDir;
use tokio_util::codec::{Decoder, Encoder};

/// Initial size of the input buffer, as in the connection loop.
const INPUT_BYTES: usize = 8 * 1024;
/// Bytes of a message before its document: header, flags, section kind.
const BEFORE_DOCUMENT: usize = 16 + 4 + 1;
/// The time for which the other threads must be idle.
const QUIET: Duration = Duration::from_millis(200);

/// The collection that paths work on.
pub(crate) const DB: &str = "bench";
pub(crate) const COLLECTION: &str = "c";

/// A server over RocksDB in a temporary folder, and one connection to it.
pub(crate) struct Server {
    fixture: Fixture,
    connection: Arc<Connection>,
    input: BytesMut,
    output: Vec<u8>,
    /// Declared last, so that it is dropped after the server.
    _folder: TempDir,
}

impl Server {
    /// A new server without data.
    pub(crate) fn new() -> Server {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let path = folder.path().to_owned();
        let fixture = Fixture::new(Box::new(move || {
            RocksEngine::open(&path, RocksOptions::default()).expect("the engine opens")
        }));
        let connection = connect(&fixture);
        let input = BytesMut::with_capacity(INPUT_BYTES);
        Server { fixture, connection, input, output: Vec::new(), _folder: folder }
    }

    /// Runs a command in shell syntax, which must succeed.
    pub(crate) fn ok(&self, command: &str) {
        self.fixture.ok(DB, command);
    }

    /// Creates a user with read and write access, logs it in, and enables authorization.
    pub(crate) fn log_in(&self) {
        let fixture = &self.fixture;
        fixture.ok(
            "admin",
            "{createUser: 'ann', pwd: 'pw', roles: [{role: 'readWrite', db: 'bench'}]}",
        );
        let (access, store) = (&fixture.service.access, &fixture.service.store);
        access.enforce();
        let user = access.find_user(store, &UserName::new("ann", "admin")).expect("it is read");
        let logged_in = access.log_in(store, &self.connection, &user.expect("it was made"));
        assert!(logged_in.expect("it is read"), "the user may log in");
    }

    /// Flushes the loaded data to files, compacts them, and reads them into the cache.
    pub(crate) fn settle(&mut self) {
        self.fixture.restart();
        self.connection = connect(&self.fixture);
        // The engine can only rewrite files that no scan sees: those of the first scan are
        // rewritten after it.
        for _ in 0..2 {
            self.scan();
            wait_for_background();
        }
        self.scan();
    }

    /// Reads every record, and every entry of an index on `k`.
    fn scan(&self) {
        self.ok("{find: 'c', filter: {nothing: 1}}");
        self.ok("{find: 'c', filter: {k: {$gte: 0}, nothing: 1}}");
    }

    /// Decodes a message, runs it, and keeps the bytes of its reply, as `serve` of the connection
    /// loop does.
    pub(crate) fn serve(&mut self, message: &[u8]) {
        self.input.extend_from_slice(message);
        let service = &self.fixture.service;
        let message = Codec.decode(&mut self.input).expect("it is well-formed");
        let message = message.expect("it is complete");
        service.metrics.network.bytes_in.add(message.wire_bytes as u64);
        service.metrics.network.requests.add(1);
        let sequences: Vec<DocumentSequence<'_>> = message
            .sequences
            .iter()
            .map(|s| DocumentSequence { name: &s.name, documents: &s.documents, count: s.count })
            .collect();
        let mut incoming = Incoming::new(message.document());
        incoming.sequences = &sequences;
        incoming.legacy_db = message.legacy_db.as_deref();
        incoming.exhaust_allowed = message.flags.contains(Flags::EXHAUST_ALLOWED);
        let mut output = std::mem::take(&mut self.output);
        output.clear();
        let (reply, doc) = ReplyBuilder::begin(output, message.reply_to(), 1);
        let Dispatched { doc, next, .. } = dispatch(service, &self.connection, &incoming, doc);
        self.output =
            reply.finish(doc, ReplyFlags::default()).expect("it is no longer than may be");
        service.metrics.network.bytes_out.add(self.output.len() as u64);
        let sent = matches!(next, Next::Reply(outcome) if !outcome.failed && !outcome.wait_durable);
        assert!(sent, "a reply is an error, or waits for the disk: {:?}", self.last_reply());
    }

    /// The document of the last reply.
    pub(crate) fn last_reply(&self) -> DocBuf {
        let reply = self.output.get(BEFORE_DOCUMENT..).and_then(RawDoc::new);
        reply.expect("a reply has a document").to_owned()
    }

    /// One pass of the TTL monitor.
    pub(crate) fn ttl_pass(&mut self) {
        self.fixture.ttl_pass();
    }

    /// Panics unless the TTL monitor has deleted this many documents.
    pub(crate) fn expect_expired(&self, documents: u32) {
        let reply = self.fixture.ok("admin", "{serverStatus: 1}");
        let ttl = reply.as_doc().get("metrics").and_then(RawValue::as_document);
        let ttl = ttl.and_then(|metrics| metrics.get("ttl")?.as_document());
        let deleted = ttl.and_then(|ttl| ttl.get("deletedDocuments"));
        assert_eq!(deleted, Some(RawValue::Int64(documents.into())), "documents have expired");
    }
}

/// Waits until no other thread of this process uses a processor.
fn wait_for_background() {
    let mut before = background_ticks();
    loop {
        std::thread::sleep(QUIET);
        let now = background_ticks();
        if now == before {
            return;
        }
        before = now;
    }
}

/// The processor time of all threads but the first, as `/proc` counts it.
fn background_ticks() -> u64 {
    let main = std::process::id().to_string();
    let tasks = std::fs::read_dir("/proc/self/task").expect("Linux shows its threads");
    let others = tasks.filter_map(Result::ok).filter(|task| *task.file_name() != *main);
    let stats = others.filter_map(|task| std::fs::read_to_string(task.path().join("stat")).ok());
    stats.map(|stat| ticks(&stat)).sum()
}

/// User and system time: the twelfth and thirteenth field after the name, which is in parentheses.
fn ticks(stat: &str) -> u64 {
    let words = stat.rsplit(')').next().unwrap_or_default().split_whitespace();
    words.skip(11).take(2).filter_map(|word| word.parse::<u64>().ok()).sum()
}

/// A command as a driver sends it: its documents in a sequence of their own, if it has any.
pub(crate) fn message(command: &DocBuf, documents: Option<(&str, &[u8])>) -> Vec<u8> {
    let mut bytes = BytesMut::new();
    let outgoing = Outgoing {
        request_id: 1,
        response_to: 0,
        flags: Flags::default(),
        body: command.as_bytes(),
        sequences: documents.as_slice(),
        compressor: None,
    };
    Codec.encode(outgoing, &mut bytes).expect("it is no longer than may be");
    bytes.to_vec()
}

/// Panics unless this field of a reply has this number.
pub(crate) fn expect_number(reply: &DocBuf, field: &str, number: i32) {
    let shown = dialect::show(reply.as_doc());
    assert_eq!(reply.as_doc().get(field), Some(RawValue::Int32(number)), "{shown}");
    assert_eq!(reply.as_doc().get("writeErrors"), None, "{shown}");
}

/// Panics unless the first batch has this many documents.
pub(crate) fn expect_batch(reply: &DocBuf, documents: usize) {
    let cursor = reply.as_doc().get("cursor").and_then(RawValue::as_document);
    let batch = cursor.and_then(|cursor| cursor.get("firstBatch")?.as_array());
    let found = batch.map(|batch| batch.iter().count());
    assert_eq!(found, Some(documents), "{}", dialect::show(reply.as_doc()));
}

fn connect(fixture: &Fixture) -> Arc<Connection> {
    let connections = &fixture.service.connections;
    let connection = connections.open("127.0.0.1:2".into(), String::new(), START_MS);
    connection.expect("the second connection has room")
}
