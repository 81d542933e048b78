//! A minimal client: OP_MSG over a blocking socket, one request at a time.

use std::io::{Read, Write};
use std::net::TcpStream;

use anyhow::{Context, Result, bail};
use mayfly_value::{DocBuf, DocBuilder, RawDoc};

use crate::wire::{Incoming, Request, check};

/// One connection.
pub(crate) struct Client {
    stream: TcpStream,
    request: Request,
    incoming: Incoming,
    next_id: i32,
}

impl Client {
    /// Connects to `host:port`.
    pub(crate) fn connect(address: &str) -> Result<Client> {
        let stream = TcpStream::connect(address).with_context(|| address.to_owned())?;
        stream.set_nodelay(true)?;
        Ok(Client { stream, request: Request::default(), incoming: Incoming::new(), next_id: 1 })
    }

    /// Sends a command and returns the reply. Fails if the reply reports an error.
    pub(crate) fn run(&mut self, command: impl FnOnce(&mut DocBuilder)) -> Result<RawDoc<'_>> {
        self.prepare(|request| request.command(command));
        self.send()?;
        self.receive()
    }

    /// Sends a command and returns an owned reply.
    pub(crate) fn ask(&mut self, command: impl FnOnce(&mut DocBuilder)) -> Result<DocBuf> {
        self.run(command).map(RawDoc::to_owned)
    }

    /// Builds a request without sending it.
    pub(crate) fn prepare(&mut self, build: impl FnOnce(&mut Request)) {
        self.request.clear();
        build(&mut self.request);
        self.request.finish(self.next_id);
        self.next_id = self.next_id.wrapping_add(1);
    }

    /// Sends the request.
    pub(crate) fn send(&mut self) -> Result<()> {
        Ok(self.stream.write_all(&self.request.bytes)?)
    }

    /// Waits for the reply.
    pub(crate) fn receive(&mut self) -> Result<RawDoc<'_>> {
        while !self.incoming.is_whole() {
            match self.stream.read(self.incoming.space())? {
                0 => bail!("the server closed the connection"),
                read => self.incoming.filled(read),
            }
        }
        let (_, reply) = self.incoming.next()?.context("an incomplete reply")?;
        check(reply)?;
        Ok(reply)
    }

    /// The socket, for callers that do not wait.
    pub(crate) fn into_stream(self) -> TcpStream {
        self.stream
    }
}
