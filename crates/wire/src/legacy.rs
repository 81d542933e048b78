//! OP_QUERY, which drivers send before they know the server's version, and OP_REPLY, which answers
//! it.
//!
//! Drivers up to 2021 use OP_QUERY for the whole login, and Java 3.x for `buildInfo` before it. All
//! other commands must use OP_MSG.
//!
//! ```text
//! OP_QUERY: | header | flags i32 | collection cstring | skip i32 | return i32 | document | projection? |
//! OP_REPLY: | header | flags i32 | cursor i64 | from i32 | count i32 | document... |
//! ```

use bytes::Bytes;
use mayfly_base::{Error, ErrorCode, Result};
use mayfly_value::RawDoc;

use crate::header::HEADER_BYTES;
use crate::msg::document_at;

/// Bytes between the header of an OP_REPLY and its first document.
pub(crate) const REPLY_PREFIX_BYTES: usize = 20;
/// The commands that the reference accepts in OP_QUERY.
const ALLOWED: [&str; 9] = [
    "isMaster",
    "ismaster",
    "hello",
    "_isSelf",
    "buildInfo",
    "buildinfo",
    "saslStart",
    "saslContinue",
    "authenticate",
];

/// Decodes an OP_QUERY: the database and the command.
pub(crate) fn query(frame: &Bytes) -> Result<(String, Bytes)> {
    let malformed = || Error::new(ErrorCode::InvalidBSON, "malformed OP_QUERY");
    let name_at = HEADER_BYTES + 4;
    let rest = frame.get(name_at..).ok_or_else(malformed)?;
    let name_len = rest.iter().position(|byte| *byte == 0).ok_or_else(malformed)?;
    let name = std::str::from_utf8(&rest[..name_len]).map_err(|_| malformed())?;
    let Some(db) = name.strip_suffix(".$cmd") else {
        let text = "OP_QUERY is no longer supported. The client driver may require an upgrade.";
        return Err(Error::new(ErrorCode(5739101), text));
    };
    let at = name_at + name_len + 1 + 8;
    if at >= frame.len() {
        return Err(malformed());
    }
    let whole = document_at(frame, at, frame.len())?;
    let body = unwrap_query(&whole);
    let command = RawDoc::new(&body).and_then(|doc| doc.iter().next()).map_or("", |e| e.name());
    if !ALLOWED.contains(&command) {
        let text = format!(
            "Unsupported OP_QUERY command: {command}. The client driver may require an upgrade."
        );
        return Err(Error::new(ErrorCode::UnsupportedOpQueryCommand, text));
    }
    Ok((db.to_owned(), body))
}

/// Unwraps a command in `$query`, which some drivers send together with a read preference.
fn unwrap_query(whole: &Bytes) -> Bytes {
    let inner = RawDoc::new(whole).and_then(|document| {
        let first = document.iter().next()?;
        matches!(first.name(), "$query" | "query").then(|| first.value().as_document()).flatten()
    });
    match inner {
        Some(inner) => whole.slice_ref(inner.as_bytes()),
        None => whole.clone(),
    }
}

/// The first document of an OP_REPLY, for clients.
pub(crate) fn reply(frame: &Bytes) -> Result<Bytes> {
    let at = HEADER_BYTES + REPLY_PREFIX_BYTES;
    if at >= frame.len() {
        return Err(Error::new(ErrorCode::InvalidBSON, "OP_REPLY without a document"));
    }
    document_at(frame, at, frame.len())
}
