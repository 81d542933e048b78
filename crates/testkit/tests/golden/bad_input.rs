//! Malformed input over the wire gets an error with its code, or the connection is closed. Other
//! connections continue.

use std::sync::Arc;

use bytes::BytesMut;
use mayfly_base::ManualClock;
use mayfly_server::{Running, StartOptions, start};
use mayfly_testkit::outside::{TaskConnection, decode};
use mayfly_testkit::{Env, dialect};
use mayfly_value::bson::Document;
use mayfly_value::{DocBuilder, RawValue};
use mayfly_wire::{Codec, Flags, Outgoing};
use tokio::io::AsyncWriteExt;
use tokio_util::codec::Encoder;

const OP_MSG: i32 = 2013;

async fn server() -> Running {
    let clock = Arc::new(ManualClock::at_ms(1_800_000_000_000));
    start(StartOptions::for_tests(clock).unwrap()).await.unwrap()
}

struct Client(TaskConnection);

impl Client {
    async fn connect(server: &Running) -> Client {
        Client(TaskConnection::open(server.address()).await)
    }

    /// Sends bytes unchanged. The server may close the connection before it has read all of them.
    async fn send(&mut self, bytes: &[u8]) {
        let _ = self.0.stream.write_all(bytes).await;
    }

    /// The next message; `None` if the server has closed the connection.
    async fn receive(&mut self) -> Option<Document> {
        self.0.receive().await.map(|message| decode(&message))
    }

    async fn answer(&mut self, bytes: &[u8]) -> Document {
        self.send(bytes).await;
        self.receive().await.expect("an answer")
    }

    async fn fails(&mut self, bytes: &[u8], code: i32, text: &str) {
        let reply = self.answer(bytes).await;
        assert_eq!(reply.get_f64("ok").unwrap(), 0.0, "{reply}");
        assert_eq!(reply.get_i32("code").unwrap(), code, "{reply}");
        assert!(reply.get_str("errmsg").unwrap().contains(text), "{reply}");
        // The connection continues.
        let reply = self.answer(&command("{ping: 1}")).await;
        assert_eq!(reply.get_f64("ok").unwrap(), 1.0);
    }

    async fn is_closed(&mut self) -> bool {
        self.receive().await.is_none()
    }
}

fn frame(opcode: i32, body: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(16 + body.len());
    bytes.extend_from_slice(&((16 + body.len()) as i32).to_le_bytes());
    for word in [7, 0, opcode] {
        bytes.extend_from_slice(&i32::to_le_bytes(word));
    }
    bytes.extend_from_slice(body);
    bytes
}

/// An OP_MSG whose only section is this document.
fn message(document: &[u8]) -> Vec<u8> {
    let mut body = vec![0, 0, 0, 0, 0];
    body.extend_from_slice(document);
    frame(OP_MSG, &body)
}

fn document(text: &str) -> Vec<u8> {
    let mut builder = DocBuilder::new();
    builder.append_all(dialect::document(text, &Env::default()).unwrap().as_doc());
    builder.append("$db", "test");
    builder.finish().into_bytes()
}

fn command(text: &str) -> Vec<u8> {
    message(&document(text))
}

/// `{insert: 'c', documents: [<document>], $db: 'test'}` with unchecked bytes as the document.
fn insert_of(inner: &[u8]) -> Vec<u8> {
    let mut array = vec![3, b'0', 0];
    array.extend_from_slice(inner);
    let array = framed(&array);
    let mut fields = b"\x02insert\0\x02\0\0\0c\0\x04documents\0".to_vec();
    fields.extend_from_slice(&array);
    fields.extend_from_slice(b"\x02$db\0\x05\0\0\0test\0");
    message(&framed(&fields))
}

/// A document with these encoded fields.
fn framed(fields: &[u8]) -> Vec<u8> {
    let mut bytes = ((fields.len() + 5) as i32).to_le_bytes().to_vec();
    bytes.extend_from_slice(fields);
    bytes.push(0);
    bytes
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn broken_frames_close_their_connection_only() {
    let server = server().await;
    let mut other = Client::connect(&server).await;
    let lengths: [i32; 6] = [-1, 0, 1, 15, 48_000_001, i32::MAX];
    for length in lengths {
        let mut client = Client::connect(&server).await;
        let mut bytes = command("{ping: 1}");
        bytes[..4].copy_from_slice(&length.to_le_bytes());
        client.send(&bytes).await;
        assert!(client.is_closed().await, "length {length}");
        assert_eq!(other.answer(&command("{ping: 1}")).await.get_f64("ok").unwrap(), 1.0);
    }
    // An incomplete message, after which the client disconnects.
    let bytes = command("{ping: 1}");
    for cut in [1, 4, 15, 16, 20, bytes.len() - 1] {
        let mut client = Client::connect(&server).await;
        client.send(&bytes[..cut]).await;
        client.0.stream.shutdown().await.unwrap();
        assert!(client.is_closed().await, "cut at {cut}");
    }
    assert_eq!(other.answer(&command("{ping: 1}")).await.get_f64("ok").unwrap(), 1.0);
    server.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn unknown_opcodes_and_checksums() {
    let server = server().await;
    let mut other = Client::connect(&server).await;
    for opcode in [0, 1, 2001, 2002, 2005, 2014, -7] {
        let mut client = Client::connect(&server).await;
        client.send(&frame(opcode, &document("{ping: 1}"))).await;
        let reply = client.receive().await;
        assert!(reply.is_none_or(|reply| reply.get_f64("ok").unwrap() == 0.0), "opcode {opcode}");
        assert_eq!(other.answer(&command("{ping: 1}")).await.get_f64("ok").unwrap(), 1.0);
    }
    let body = document("{ping: 1}");
    let outgoing = Outgoing {
        request_id: 9,
        response_to: 0,
        flags: Flags::CHECKSUM_PRESENT,
        body: &body,
        sequences: &[],
        compressor: None,
    };
    let mut bytes = BytesMut::new();
    Codec.encode(outgoing, &mut bytes).unwrap();
    let reply = other.answer(&bytes).await;
    assert_eq!(reply.get_f64("ok").unwrap(), 1.0);
    let last = bytes.len() - 1;
    bytes[last] ^= 1;
    let mut client = Client::connect(&server).await;
    client.send(&bytes).await;
    let reply = client.receive().await;
    assert!(reply.is_none_or(|reply| reply.get_f64("ok").unwrap() == 0.0), "a wrong checksum");
    assert_eq!(other.answer(&command("{ping: 1}")).await.get_f64("ok").unwrap(), 1.0);
    server.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn malformed_bson_is_named_and_stores_nothing() {
    let server = server().await;
    let mut client = Client::connect(&server).await;
    // A string that is not UTF-8, an element that reaches beyond its document, an unknown type, a
    // missing end.
    let bad: [&[u8]; 4] = [
        &framed(b"\x10_id\0\x01\0\0\0\x02s\0\x03\0\0\0\xFF\xFE\0"),
        &framed(b"\x10_id\0\x01\0\0\0\x02s\0\x40\0\0\0a\0"),
        &framed(b"\x10_id\0\x01\0\0\0\x55s\0"),
        &[&framed(b"\x10_id\0\x01\0\0\0")[..13], &[7]].concat(),
    ];
    for inner in bad {
        let reply = client.answer(&insert_of(inner)).await;
        assert_eq!(reply.get_f64("ok").unwrap(), 0.0, "{reply}");
        assert_eq!(reply.get_i32("code").unwrap(), 22, "{reply}");
        assert_eq!(reply.get_str("codeName").unwrap(), "InvalidBSON", "{reply}");
    }
    let reply = client.answer(&command("{count: 'c'}")).await;
    assert_eq!(reply.get_i32("n").unwrap(), 0);
    server.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_pattern_that_is_not_utf8_deletes_nothing() {
    let server = server().await;
    let mut client = Client::connect(&server).await;
    client.answer(&insert_of(&framed(b"\x10_id\0\x01\0\0\0"))).await;
    // Patterns with their options.
    for pattern in [&b"\xFF\0\0"[..], b"a\0\xFF\0", b"\xC3\0\0"] {
        // deletes: [{q: {f: {$not: /pattern/}}, limit: 0}]
        let not = [&b"\x03f\0"[..], &framed(&[b"\x0B$not\0", pattern].concat())].concat();
        let one = framed(&[b"\x03q\0", framed(&not).as_slice(), b"\x10limit\0\0\0\0\0"].concat());
        let list = framed(&[b"\x030\0", one.as_slice()].concat());
        let body = [b"\x02delete\0\x02\0\0\0c\0\x04deletes\0", list.as_slice()].concat();
        let body = framed(&[body.as_slice(), b"\x02$db\0\x05\0\0\0test\0"].concat());
        client.fails(&message(&body), 22, "invalid BSON").await;
    }
    let reply = client.answer(&command("{count: 'c'}")).await;
    assert_eq!(reply.get_i32("n").unwrap(), 1);
    server.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn deep_documents_are_refused() {
    let server = server().await;
    let mut client = Client::connect(&server).await;
    let nested = |depth: usize| {
        let mut inner = framed(b"");
        for _ in 1..depth {
            inner = framed(&[b"\x03a\0", inner.as_slice()].concat());
        }
        insert_of(&framed(&[b"\x10_id\0\x01\0\0\0\x03a\0", inner.as_slice()].concat()))
    };
    for depth in [200, 1_000, 100_000] {
        let reply = client.answer(&nested(depth)).await;
        let failed = reply.get_f64("ok").unwrap() == 0.0 || reply.contains_key("writeErrors");
        assert!(failed, "{depth}: {reply}");
    }
    let reply = client.answer(&nested(100)).await;
    assert_eq!(reply.get_i32("n").unwrap(), 1, "{reply}");
    // A filter with that nesting is refused, too.
    let filter = format!("{{a: {}{{$gt: 1}}{}}}", "{$not: ".repeat(150), "}".repeat(150));
    let reply = client.answer(&command(&format!("{{find: 'c', filter: {filter}}}"))).await;
    assert_eq!(reply.get_f64("ok").unwrap(), 0.0, "{reply}");
    assert_eq!(client.answer(&command("{ping: 1}")).await.get_f64("ok").unwrap(), 1.0);
    server.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn documents_over_16_mib_are_refused() {
    const MOST: usize = 16 * 1024 * 1024;
    let server = server().await;
    let mut client = Client::connect(&server).await;
    let of_size = |id: i32, size: usize| {
        let mut builder = DocBuilder::new();
        builder.append("_id", id);
        let text = "x".repeat(size - 5 - 9 - 8);
        builder.append("s", RawValue::String(&text));
        let document = builder.finish().into_bytes();
        assert_eq!(document.len(), size);
        insert_of(&document)
    };
    let reply = client.answer(&of_size(1, MOST)).await;
    assert_eq!(reply.get_i32("n").unwrap(), 1);
    let reply = client.answer(&of_size(2, MOST + 1)).await;
    let error = reply.get_array("writeErrors").unwrap()[0].as_document().unwrap();
    assert_eq!(error.get_i32("code").unwrap(), 10_334, "{error}");
    assert!(error.get_str("errmsg").unwrap().contains("object to insert too large"), "{error}");
    // An update that would make a document too large.
    let push = "{q: {_id: 1}, u: {$set: {t: 'one field more'}}}";
    let reply = client.answer(&command(&format!("{{update: 'c', updates: [{push}]}}"))).await;
    let error = reply.get_array("writeErrors").unwrap()[0].as_document().unwrap();
    assert_eq!(error.get_i32("code").unwrap(), 10334, "{error}");
    // A reply has at least one document.
    let reply = client.answer(&command("{find: 'c'}")).await;
    let batch = reply.get_document("cursor").unwrap().get_array("firstBatch").unwrap();
    assert_eq!(batch.len(), 1);
    server.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn wrong_commands_are_answered_with_their_codes() {
    let server = server().await;
    let mut client = Client::connect(&server).await;
    client.answer(&command("{insert: 'c', documents: [{_id: 1}]}")).await;
    let cases = [
        ("{nonsense: 1}", 59, "no such command: 'nonsense'"),
        ("{}", 59, "no such command"),
        ("{find: 'c', foo: 1}", 40415, "unknown field"),
        ("{find: 'c', filter: 'x'}", 14, "wrong type"),
        ("{find: 'c', limit: {}}", 14, "wrong type"),
        ("{find: {a: 1}}", 73, "collection name has invalid type"),
        ("{insert: 'c', documents: 'x'}", 14, "wrong type"),
        ("{getMore: NumberLong(1), collection: 'c'}", 43, "cursor id 1 not found"),
        (
            "{aggregate: 'c', pipeline: [{$foo: 1}], cursor: {}}",
            40324,
            "Unrecognized pipeline stage",
        ),
        ("{getShardVersion: 1}", 238, "not implemented"),
    ];
    for (text, code, message) in cases {
        client.fails(&command(text), code, message).await;
    }
    let reply = client.answer(&command("{insert: 'c', documents: [{_id: 1.0}]}")).await;
    let error = reply.get_array("writeErrors").unwrap()[0].as_document().unwrap();
    assert_eq!(error.get_i32("code").unwrap(), 11000);
    let twice = insert_of(&framed(b"\x10_id\0\x05\0\0\0\x10_id\0\x06\0\0\0"));
    let reply = client.answer(&twice).await;
    let error = reply.get_array("writeErrors").unwrap()[0].as_document().unwrap();
    assert_eq!(error.get_i32("code").unwrap(), 2);
    // A command without $db.
    let bare = dialect::document("{ping: 1}", &Env::default()).unwrap();
    client.fails(&message(bare.as_bytes()), 40571, "OP_MSG requests require a $db argument").await;
    server.stop().await.unwrap();
}
