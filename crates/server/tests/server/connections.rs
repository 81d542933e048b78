//! A whole server inside this process, over the memory engine, spoken to in bytes.

use std::sync::Arc;

use bytes::BytesMut;
use mayfly_base::ManualClock;
use mayfly_server::{Running, StartOptions, start};
use mayfly_value::DocBuf;
use mayfly_value::bson::{Document, doc};
use mayfly_wire::{Codec, Compressor, Flags, Message, Outgoing};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio_util::codec::{Decoder, Encoder};

pub(crate) async fn server() -> Running {
    let clock = Arc::new(ManualClock::at_ms(1_700_000_000_000));
    start(StartOptions::for_tests(clock).unwrap()).await.unwrap()
}

pub(crate) struct Client {
    stream: TcpStream,
    input: BytesMut,
    next_id: i32,
}

impl Client {
    pub(crate) async fn connect(server: &Running) -> Client {
        let stream = TcpStream::connect(server.address()).await.unwrap();
        Client { stream, input: BytesMut::new(), next_id: 1 }
    }

    async fn send(&mut self, command: Document, flags: u32, compressor: Option<Compressor>) -> i32 {
        let mut command = command;
        command.insert("$db", "admin");
        let body = DocBuf::from_bson(&command);
        self.next_id += 1;
        let outgoing = Outgoing {
            request_id: self.next_id,
            response_to: 0,
            flags: Flags(flags),
            body: body.as_bytes(),
            sequences: &[],
            compressor,
        };
        let mut bytes = BytesMut::new();
        Codec.encode(outgoing, &mut bytes).unwrap();
        self.stream.write_all(&bytes).await.unwrap();
        self.next_id
    }

    /// The next message, nothing when the server closed.
    async fn receive(&mut self) -> Option<Message> {
        loop {
            if let Some(message) = Codec.decode(&mut self.input).unwrap() {
                return Some(message);
            }
            if self.stream.read_buf(&mut self.input).await.unwrap_or(0) == 0 {
                return None;
            }
        }
    }

    /// Runs a command on `admin`.
    pub(crate) async fn run(&mut self, command: Document) -> Document {
        let id = self.send(command, 0, None).await;
        let reply = self.receive().await.unwrap();
        assert_eq!(reply.header.response_to, id);
        let mut reply = decode(&reply);
        // Every reply has them.
        assert!(reply.remove("$clusterTime").is_some() && reply.remove("operationTime").is_some());
        reply
    }
}

fn decode(message: &Message) -> Document {
    Document::from_reader(message.document().as_bytes()).unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn commands_are_answered_in_kind() {
    let server = server().await;
    let mut client = Client::connect(&server).await;
    assert_eq!(client.run(doc! {"ping": 1}).await, doc! {"ok": 1.0});
    for compressor in [Compressor::Snappy, Compressor::Zlib, Compressor::Zstd] {
        client.send(doc! {"ping": 1}, Flags::CHECKSUM_PRESENT, Some(compressor)).await;
        let reply = client.receive().await.unwrap();
        assert_eq!(reply.compressor, Some(compressor));
        assert!(reply.flags.has(Flags::CHECKSUM_PRESENT));
    }
    // Nobody answers a request that says more is to come; the next one is answered.
    client.send(doc! {"nonsense": 1}, Flags::MORE_TO_COME, None).await;
    assert_eq!(client.run(doc! {"nonsense": 1}).await.get_i32("code").unwrap(), 59);
    let status = client.run(doc! {"serverStatus": 1}).await;
    let network = status.get_document("network").unwrap();
    assert_eq!(network.get_i64("numRequests").unwrap(), 7);
    server.stop().await.unwrap();
    assert!(client.receive().await.is_none());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn malformed_content_is_answered_and_malformed_frames_close() {
    let server = server().await;
    let mut client = Client::connect(&server).await;
    // A section of an unknown kind in a sound frame.
    let mut bytes = vec![21, 0, 0, 0, 9, 0, 0, 0, 0, 0, 0, 0];
    bytes.extend_from_slice(&2013i32.to_le_bytes());
    bytes.extend_from_slice(&[0, 0, 0, 0, 7]);
    client.stream.write_all(&bytes).await.unwrap();
    let reply = client.receive().await.unwrap();
    assert_eq!(reply.header.response_to, 9);
    assert_eq!(decode(&reply).get_i32("code").unwrap(), 40432);
    for name in ["$clusterTime", "operationTime"] {
        assert!(reply.document().get(name).is_some(), "{name}");
    }
    assert_eq!(client.run(doc! {"ping": 1}).await, doc! {"ok": 1.0});
    client.stream.write_all(&[1, 0, 0, 0]).await.unwrap();
    assert!(client.receive().await.is_none());
    server.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn waiting_hellos_stream_and_end_with_the_server() {
    let server = server().await;
    let mut client = Client::connect(&server).await;
    let hello = client.run(doc! {"hello": 1}).await;
    let version = hello.get_document("topologyVersion").unwrap().clone();
    let awaiting = doc! {"hello": 1, "topologyVersion": version, "maxAwaitTimeMS": 600_000};
    let id = client.send(awaiting, Flags::EXHAUST_ALLOWED, None).await;
    // Topology changes before the server waits would be missed by nobody: the counter tells.
    server.service.topology.changed();
    let first = client.receive().await.unwrap();
    assert_eq!(first.header.response_to, id);
    assert!(first.flags.has(Flags::MORE_TO_COME));
    server.service.topology.changed();
    let second = client.receive().await.unwrap();
    assert_eq!(second.header.response_to, first.header.request_id);
    let stopped = tokio::spawn(server.stop());
    let last = client.receive().await.unwrap();
    assert!(!last.flags.has(Flags::MORE_TO_COME));
    assert_eq!(decode(&last).get_i32("code").unwrap(), 91);
    assert!(client.receive().await.is_none());
    stopped.await.unwrap().unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_port_in_use_is_named() {
    let server = server().await;
    let clock = Arc::new(ManualClock::at_ms(0));
    let mut options = StartOptions::for_tests(clock).unwrap();
    options.config.port = server.address().port();
    let why = start(options).await.err().unwrap();
    assert!(why.to_string().contains(&server.address().to_string()), "{why:#}");
    server.stop().await.unwrap();
}
