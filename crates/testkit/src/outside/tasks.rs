//! An asynchronous connection to a server in this process that uses the server's own codec: flags,
//! compression, several messages under way.

use std::net::SocketAddr;

use bytes::BytesMut;
use mayfly_value::DocBuf;
use mayfly_value::bson::Document;
use mayfly_wire::{Codec, Compressor, Flags, Message, Outgoing};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio_util::codec::{Decoder, Encoder};

/// A connection for asynchronous tests, which sends and receives single messages.
pub struct TaskConnection {
    /// The socket, for tests that send other bytes than messages.
    pub stream: TcpStream,
    input: BytesMut,
    next_id: i32,
}

impl TaskConnection {
    /// Connects.
    ///
    /// # Panics
    /// Nothing listens.
    pub async fn open(address: SocketAddr) -> TaskConnection {
        match TcpStream::connect(address).await {
            Ok(stream) => TaskConnection { stream, input: BytesMut::new(), next_id: 1 },
            Err(error) => panic!("no connection to {address}: {error}"),
        }
    }

    /// Sends a command, to `admin` if it names no database; returns the id of the request.
    ///
    /// # Panics
    /// The connection is broken.
    pub async fn send(
        &mut self,
        command: Document,
        flags: Flags,
        compressor: Option<Compressor>,
    ) -> i32 {
        let mut command = command;
        command.entry("$db".to_owned()).or_insert_with(|| "admin".into());
        let body = DocBuf::from_bson(&command);
        self.next_id += 1;
        let outgoing = Outgoing {
            request_id: self.next_id,
            response_to: 0,
            flags,
            body: body.as_bytes(),
            sequences: &[],
            compressor,
        };
        let mut bytes = BytesMut::new();
        let encoded = Codec.encode(outgoing, &mut bytes);
        assert!(encoded.is_ok(), "{command}: {encoded:?}");
        assert!(self.stream.write_all(&bytes).await.is_ok(), "the connection is broken");
        self.next_id
    }

    /// The next message; `None` if the server has closed the connection.
    ///
    /// # Panics
    /// It is malformed.
    pub async fn receive(&mut self) -> Option<Message> {
        loop {
            match Codec.decode(&mut self.input) {
                Ok(Some(message)) => return Some(message),
                Ok(None) => {}
                Err(error) => panic!("a malformed message: {error:?}"),
            }
            if self.stream.read_buf(&mut self.input).await.unwrap_or(0) == 0 {
                return None;
            }
        }
    }

    /// Runs a command; returns the reply without the times that every reply has.
    ///
    /// # Panics
    /// There is no reply, or it answers another request.
    pub async fn run(&mut self, command: Document) -> Document {
        let id = self.send(command, Flags::empty(), None).await;
        let Some(reply) = self.receive().await else { panic!("the server closed the connection") };
        assert_eq!(reply.header.response_to, id);
        let mut reply = decode(&reply);
        assert!(reply.remove("$clusterTime").is_some() && reply.remove("operationTime").is_some());
        reply
    }
}

/// The document of a message.
///
/// # Panics
/// It is malformed.
pub fn decode(message: &Message) -> Document {
    match Document::from_reader(message.document().as_bytes()) {
        Ok(document) => document,
        Err(error) => panic!("a malformed document: {error}"),
    }
}
