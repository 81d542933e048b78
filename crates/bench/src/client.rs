//! A client of a few lines: OP_MSG over a blocking socket, one request at a time.
//!
//! It builds and reads messages by itself instead of using the server's codec, so that a mistake there does not
//! cancel out here, and costs so little that the load generator does not measure itself.

use std::io::{Read, Write};
use std::net::TcpStream;

use anyhow::{Context, Result, bail};
use mayfly_value::{DocBuf, DocBuilder, RawDoc, RawValue};

const HEADER_BYTES: usize = 16;
const OP_MSG: i32 = 2013;
/// Header, flags, section kind.
const PREFIX_BYTES: usize = HEADER_BYTES + 5;

/// One connection.
pub(crate) struct Client {
    stream: TcpStream,
    request: Vec<u8>,
    reply: Vec<u8>,
    next_id: i32,
}

impl Client {
    /// Connects to `host:port`.
    pub(crate) fn connect(address: &str) -> Result<Client> {
        let stream = TcpStream::connect(address).with_context(|| address.to_owned())?;
        stream.set_nodelay(true)?;
        Ok(Client { stream, request: Vec::new(), reply: vec![0; 64 * 1024], next_id: 1 })
    }

    /// Sends a command and gives the reply; an error reply is an error.
    pub(crate) fn run(&mut self, command: impl FnOnce(&mut DocBuilder)) -> Result<RawDoc<'_>> {
        self.run_with(command, None)
    }

    /// The same with documents in a section of their own.
    pub(crate) fn run_with(
        &mut self,
        command: impl FnOnce(&mut DocBuilder),
        sequence: Option<(&str, &[u8])>,
    ) -> Result<RawDoc<'_>> {
        let mut request = std::mem::take(&mut self.request);
        request.clear();
        request.resize(PREFIX_BYTES, 0);
        let mut doc = DocBuilder::in_buffer(request);
        command(&mut doc);
        let mut request = doc.finish_buffer();
        if let Some((name, documents)) = sequence {
            request.push(1);
            let size = 4 + name.len() + 1 + documents.len();
            request.extend_from_slice(&(size as u32).to_le_bytes());
            request.extend_from_slice(name.as_bytes());
            request.push(0);
            request.extend_from_slice(documents);
        }
        let length = request.len() as u32;
        request[..4].copy_from_slice(&length.to_le_bytes());
        request[4..8].copy_from_slice(&self.next_id.to_le_bytes());
        request[12..16].copy_from_slice(&OP_MSG.to_le_bytes());
        self.next_id = self.next_id.wrapping_add(1);
        self.stream.write_all(&request)?;
        self.request = request;
        let length = self.receive()?;
        let reply = RawDoc::new(&self.reply[PREFIX_BYTES..length]).context("malformed reply")?;
        check(reply)?;
        Ok(reply)
    }

    /// Reads a whole message; gives its length.
    fn receive(&mut self) -> Result<usize> {
        let mut filled = 0;
        loop {
            if filled >= 4 {
                let length = i32::from_le_bytes(self.reply[..4].try_into()?) as usize;
                if filled >= length {
                    return Ok(length);
                }
                if self.reply.len() < length {
                    self.reply.resize(length, 0);
                }
            }
            match self.stream.read(&mut self.reply[filled..])? {
                0 => bail!("the server closed the connection"),
                read => filled += read,
            }
        }
    }

    /// An owned reply.
    pub(crate) fn ask(&mut self, command: impl FnOnce(&mut DocBuilder)) -> Result<DocBuf> {
        self.run(command).map(RawDoc::to_owned)
    }
}

/// Whether the reply says that all went well.
fn check(reply: RawDoc<'_>) -> Result<()> {
    let failed = !matches!(reply.get("ok"), Some(RawValue::Double(ok)) if ok == 1.0);
    if failed || reply.get("writeErrors").is_some() {
        let text = |doc: RawDoc<'_>| doc.get("errmsg").and_then(|v| v.as_str().map(str::to_owned));
        let first = reply.get("writeErrors").and_then(RawValue::as_array);
        let first = first.and_then(|list| list.iter().next()?.value().as_document());
        bail!("{}", text(reply).or_else(|| text(first?)).unwrap_or_else(|| "failed".to_owned()));
    }
    Ok(())
}

/// A number at a path of a document, whatever its numeric type.
pub(crate) fn number_at(doc: RawDoc<'_>, path: &[&str]) -> Option<f64> {
    let (first, rest) = path.split_first()?;
    match (doc.get(first)?, rest.is_empty()) {
        (RawValue::Document(inner), false) => number_at(inner, rest),
        (RawValue::Int32(number), true) => Some(f64::from(number)),
        (RawValue::Int64(number), true) => Some(number as f64),
        (RawValue::Double(number), true) => Some(number),
        _ => None,
    }
}
