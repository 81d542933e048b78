//! OP_MSG as bytes: builds requests, and splits received bytes into replies.
//!
//! It does not use the server's codec, so that a mistake there is noticed here, and so that the
//! load generator needs little time itself. It does no IO.
//!
//! ```text
//! length u32 | request u32 | responseTo u32 | 2013 u32 | flags u32 | 0 | document
//! further section: 1 | length u32 | name 0 | documents
//! ```

use anyhow::{Context, Result, bail};
use mayfly_value::{DocBuilder, RawDoc, RawValue};

const OP_MSG: i32 = 2013;
/// Header, flags, section kind.
const PREFIX_BYTES: usize = 16 + 5;
/// Longest accepted reply; the protocol allows 48 MB.
const MAX_REPLY_BYTES: usize = 64 << 20;
const FIRST_BUFFER_BYTES: usize = 4 << 10;

/// Encoded requests to be written to a socket.
#[derive(Default)]
pub(crate) struct Request {
    pub(crate) bytes: Vec<u8>,
    /// The offset of the last one.
    start: usize,
}

impl Request {
    /// Begins another request, with the command as its only section.
    pub(crate) fn command(&mut self, build: impl FnOnce(&mut DocBuilder)) {
        let mut bytes = std::mem::take(&mut self.bytes);
        self.start = bytes.len();
        bytes.resize(self.start + PREFIX_BYTES, 0);
        let mut doc = DocBuilder::in_buffer(bytes);
        build(&mut doc);
        self.bytes = doc.finish_buffer();
    }

    /// Adds documents in a section of their own.
    pub(crate) fn sequence(&mut self, name: &str, documents: &[u8]) {
        self.bytes.push(1);
        let size = 4 + name.len() + 1 + documents.len();
        self.bytes.extend_from_slice(&(size as u32).to_le_bytes());
        self.bytes.extend_from_slice(name.as_bytes());
        self.bytes.push(0);
        self.bytes.extend_from_slice(documents);
    }

    /// Completes the last request.
    pub(crate) fn finish(&mut self, id: i32) {
        let message = &mut self.bytes[self.start..];
        let length = message.len() as u32;
        message[..4].copy_from_slice(&length.to_le_bytes());
        message[4..8].copy_from_slice(&id.to_le_bytes());
        message[12..16].copy_from_slice(&OP_MSG.to_le_bytes());
    }

    /// Removes all requests.
    pub(crate) fn clear(&mut self) {
        self.bytes.clear();
        self.start = 0;
    }
}

/// Received bytes that are not decoded yet.
pub(crate) struct Incoming {
    buffer: Vec<u8>,
    begin: usize,
    end: usize,
}

impl Incoming {
    /// An empty buffer.
    pub(crate) fn new() -> Incoming {
        Incoming { buffer: vec![0; FIRST_BUFFER_BYTES], begin: 0, end: 0 }
    }

    /// The space to read into; never empty.
    pub(crate) fn space(&mut self) -> &mut [u8] {
        if self.begin == self.end {
            (self.begin, self.end) = (0, 0);
        } else if self.begin > 0 {
            self.buffer.copy_within(self.begin..self.end, 0);
            (self.begin, self.end) = (0, self.end - self.begin);
        }
        let size = self.next_length().map_or(0, |length| length.min(MAX_REPLY_BYTES));
        let size = size.max(self.end + 1).max(FIRST_BUFFER_BYTES);
        if self.buffer.len() < size {
            self.buffer.resize(size.next_power_of_two(), 0);
        }
        &mut self.buffer[self.end..]
    }

    /// Records that this many bytes were read.
    pub(crate) fn filled(&mut self, bytes: usize) {
        self.end += bytes;
    }

    /// Whether there is a complete message, or an invalid one.
    pub(crate) fn is_whole(&self) -> bool {
        let length = self.next_length();
        length.is_some_and(|length| length > MAX_REPLY_BYTES || self.end - self.begin >= length)
    }

    /// The next complete message, if there is one: the id of its request, and the reply.
    pub(crate) fn next(&mut self) -> Result<Option<(i32, RawDoc<'_>)>> {
        let Some(length) = self.next_length() else { return Ok(None) };
        if !(PREFIX_BYTES + 5..=MAX_REPLY_BYTES).contains(&length) {
            bail!("a reply of {length} bytes");
        }
        if self.end - self.begin < length {
            return Ok(None);
        }
        let message = &self.buffer[self.begin..self.begin + length];
        self.begin += length;
        let answers = i32::from_le_bytes(message[8..12].try_into()?);
        let reply = RawDoc::new(&message[PREFIX_BYTES..]).context("malformed reply")?;
        Ok(Some((answers, reply)))
    }

    fn next_length(&self) -> Option<usize> {
        let bytes = self.buffer[self.begin..self.end].first_chunk::<4>()?;
        Some(u32::from_le_bytes(*bytes) as usize)
    }
}

/// Fails if the reply reports an error.
pub(crate) fn check(reply: RawDoc<'_>) -> Result<()> {
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

/// The number of documents in a cursor's first batch.
pub(crate) fn first_batch(reply: RawDoc<'_>) -> usize {
    let batch = reply.get("cursor").and_then(RawValue::as_document);
    let batch = batch.and_then(|cursor| cursor.get("firstBatch")?.as_array());
    batch.map_or(0, |batch| batch.iter().count())
}

/// An encoded reply.
#[cfg(test)]
pub(crate) fn reply(answers: i32, fill: impl FnOnce(&mut DocBuilder)) -> Vec<u8> {
    let mut request = Request::default();
    request.command(fill);
    request.finish(1);
    request.bytes[8..12].copy_from_slice(&answers.to_le_bytes());
    request.bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn replies_are_cut_out_of_any_pieces() {
        let mut stream = reply(7, |doc| {
            doc.append("ok", 1.0);
        });
        stream.extend(reply(9, |doc| {
            doc.append("ok", 1.0).append("text", "x".repeat(10_000).as_str());
        }));
        for piece in [1, 3, 100, 20_000] {
            let (mut incoming, mut seen) = (Incoming::new(), Vec::new());
            let mut rest = stream.as_slice();
            while !rest.is_empty() {
                let space = incoming.space();
                let now = piece.min(rest.len()).min(space.len());
                space[..now].copy_from_slice(&rest[..now]);
                rest = &rest[now..];
                incoming.filled(now);
                while let Some((answers, reply)) = incoming.next().unwrap() {
                    check(reply).unwrap();
                    seen.push(answers);
                }
            }
            assert_eq!(seen, [7, 9]);
        }
    }

    #[test]
    fn failures_are_found_and_nonsense_is_refused() {
        let mut incoming = Incoming::new();
        incoming.space()[..4].copy_from_slice(&3u32.to_le_bytes());
        incoming.filled(4);
        assert!(incoming.next().is_err());
        let mut doc = DocBuilder::new();
        doc.append("ok", 0.0).append("errmsg", "no such thing");
        assert_eq!(check(doc.finish().as_doc()).unwrap_err().to_string(), "no such thing");
    }
}
