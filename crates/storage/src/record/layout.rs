//! Layout of keys and values in the byte store.
//!
//! ```text
//! record   | collection id, 8 bytes big-endian | record key |
//!          | record key: record number, 8 bytes big-endian; see [`crate::catalog::numbers`]
//!          | (clustered by _id: ordered key of _id) |
//!          | (buckets: ordered key of their start, 8 bytes; see [`crate::timeseries`]) |
//!          | 2 | flags | last-modified ms, 8 bytes little-endian |
//!          | LOGGED: timestamp of the log's entry that refers to it, 8 bytes little-endian | BSON, exact bytes |
//!
//! index    | index id, 8 bytes | ordered keys of the values | record key |
//!          | type bits |
//! unique   | index id, 8 bytes | ordered keys of the values |
//!          | length of record key, varint | record key | type bits |
//!
//! log-fed  | index id, 8 bytes | ordered keys of the values | record key |
//!          | type bits; written by the follower, see [`crate::feed`] |
//!  record  | index id, 8 bytes | ordered key of _id |
//!          | the entries of the document with this _id; in the keyspace of records |
//!
//! oplog    | seconds << 32 + increment, 8 bytes big-endian |
//!          | the entry; see [`crate::oplog`] |
//!
//! kept     | timestamp of the log's entry, 8 bytes big-endian | collection id, 8 bytes | record key |
//!          | the document as it was when the entry was written, BSON; several, and retired records:
//!          | [`crate::record::kept`] |
//!
//! session  | session id, 16 bytes | statement id, 4 bytes |
//!          | see [`crate::retry`] |
//!
//! catalog  | 'v' |              | format, BSON
//!          | 'i' |              | identity and timelines of the store, BSON: [`crate::oplog::identity`]
//!          | 'x' |              | nothing, while a restore is not complete: [`crate::backup`]
//!          | 'b' |              | the latest backups, BSON: [`crate::backup`]
//!          | 'n' |              | next id, 8 bytes
//!          | 'o' |              | the timestamp up to which the oplog was cut, 8 bytes big-endian
//!          | 'l' | timestamp |  | a segment of the oplog that ends there: bytes and entries, 8 bytes each
//!          | 'c' | id |         | collection: namespace, UUID, options, indexes, BSON
//!          | 'm' | index id |   | multikey mask, 4 bytes little-endian
//!          | 'p' | index id |   | position of a log-fed index: timestamp, 8 bytes big-endian; 1 once it is filled
//!          | 'd' | id |         | a dropped object whose range waits for the sweeper; 1 once what the log refers to is kept
//!          | 'k' | id |         | documents and bytes at the last clean close
//!          | 'r' | id |         | the first record number that was not handed out, 8 bytes big-endian
//! ```

use std::ops::Deref;

use mayfly_base::{Error, ErrorCode, Result};
use mayfly_kv::{KeyRange, Keyspace, RETIRED, prefix_end};
use mayfly_value::keys::{self, TypeBits};
use mayfly_value::{Collation, RawDoc, RawValue, SortOrder};

use crate::record::Record;

/// The length of a record's header before its BSON, or before the timestamp of the log's entry.
pub(crate) const RECORD_HEADER: usize = 10;
const RECORD_FORMAT: u8 = 2;
/// Flag: an entry of the log refers to this version.
const LOGGED: u8 = 1;
/// The offset of that entry's timestamp in a record's value, eight bytes.
pub(crate) const LOGGED_AT: usize = RECORD_HEADER;

/// The key of a record inside its collection, without the collection's prefix: its number, the
/// ordered key of its `_id` if the collection is clustered by `_id`, or the start of a bucket.
pub type RecordKey = Vec<u8>;

/// The ordered key of an `_id`.
pub type IdKey = Vec<u8>;

/// The ordered key of this `_id` in a collection with the simple collation.
pub fn id_key(id: RawValue<'_>) -> IdKey {
    id_key_in(id, None).0
}

/// The ordered key of this `_id`, with its type bits. Strings that are equal under the collation
/// share a key.
pub(crate) fn id_key_in(id: RawValue<'_>, collation: Option<&Collation>) -> (IdKey, TypeBits) {
    let mut key = Vec::with_capacity(32);
    let mut bits = TypeBits::default();
    keys::append_value_in(&mut key, &mut bits, id, SortOrder::Ascending, collation);
    (key, bits)
}

/// The key of a record as clients see it: an integer if records are numbered, otherwise its bytes.
pub fn record_id(record_key: &[u8], numbered: bool) -> RawValue<'_> {
    match record_key.try_into().map(u64::from_be_bytes) {
        Ok(number) if numbered => RawValue::Int64(number as i64),
        _ => RawValue::Binary { subtype: 0, bytes: record_key },
    }
}

/// Prefixes a key with an object's id.
pub(crate) fn prefixed(id: u64, rest: &[u8]) -> Vec<u8> {
    let mut key = Vec::with_capacity(8 + rest.len());
    key.extend_from_slice(&id.to_be_bytes());
    key.extend_from_slice(rest);
    key
}

/// Bytes of a key that [`ObjectKey`] keeps without an allocation: an object's id, and a number or a
/// short `_id`.
const SHORT_KEY: usize = 48;

/// A key of an object with the object's id, for one look-up or one write.
pub(crate) struct ObjectKey {
    short: [u8; SHORT_KEY],
    len: usize,
    /// The whole key, if it is longer.
    long: Vec<u8>,
}

impl ObjectKey {
    /// As [`prefixed`].
    pub(crate) fn new(id: u64, rest: &[u8]) -> ObjectKey {
        let (mut short, len) = ([0; SHORT_KEY], 8 + rest.len());
        let long = match short.get_mut(8..len) {
            Some(place) => {
                place.copy_from_slice(rest);
                short[..8].copy_from_slice(&id.to_be_bytes());
                Vec::new()
            }
            None => prefixed(id, rest),
        };
        ObjectKey { short, len, long }
    }
}

impl Deref for ObjectKey {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        self.short.get(..self.len).unwrap_or(&self.long)
    }
}

/// The range of all keys of an object.
pub(crate) fn object_range(id: u64) -> KeyRange {
    KeyRange { start: id.to_be_bytes().to_vec(), end: (id + 1).to_be_bytes().to_vec() }
}

/// Converts a range inside an object into a range of the keyspace. An empty `end` means the
/// object's end.
pub(crate) fn object_subrange(id: u64, inner: &KeyRange) -> KeyRange {
    let end =
        if inner.end.is_empty() { prefix_end(&id.to_be_bytes()) } else { prefixed(id, &inner.end) };
    KeyRange { start: prefixed(id, &inner.start), end }
}

/// Whether the log contains the document of a record, or refers to the record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum InLog {
    /// The entry contains what it needs, or there is none.
    Apart,
    /// The entry refers to the record; its timestamp is filled in at [`LOGGED_AT`].
    Refers,
}

/// Replaces the buffer's content by a record's value.
pub(crate) fn encode_record(
    out: &mut Vec<u8>,
    modified_ms: i64,
    in_log: InLog,
    document: RawDoc<'_>,
) {
    out.clear();
    out.reserve(RECORD_HEADER + 8 + document.as_bytes().len());
    out.push(RECORD_FORMAT);
    out.push(if in_log == InLog::Refers { LOGGED } else { 0 });
    out.extend_from_slice(&modified_ms.to_le_bytes());
    if in_log == InLog::Refers {
        out.extend_from_slice(&[0; 8]);
    }
    out.extend_from_slice(document.as_bytes());
}

/// Decodes a record's value: document, time of the last write, and timestamp of the log's entry.
///
/// # Errors
/// 301 DataCorruptionDetected.
pub(crate) fn decode_stored(value: &[u8]) -> Result<Record<'_>> {
    match value {
        [RECORD_FORMAT, rest @ ..] => decode_parts(rest),
        _ => Err(damaged()),
    }
}

/// Decodes what follows the first byte.
#[inline]
fn decode_parts(rest: &[u8]) -> Result<Record<'_>> {
    let document = document_of(rest)?;
    // The document follows the header and, if there is one, the timestamp.
    let number = |from: usize| rest.get(from..from + 8).and_then(|bytes| bytes.try_into().ok());
    let logged_at = if rest.first() == Some(&LOGGED) { number(LOGGED_AT - 1) } else { None };
    Ok(Record {
        document,
        modified_ms: number(1).map_or(0, i64::from_le_bytes),
        logged_at: logged_at.map(u64::from_le_bytes),
    })
}

#[inline]
fn document_of(rest: &[u8]) -> Result<RawDoc<'_>> {
    let framed = match rest {
        [0, ..] => rest.get(RECORD_HEADER - 1..),
        [LOGGED, ..] => rest.get(RECORD_HEADER + 7..),
        _ => None,
    };
    framed.and_then(RawDoc::new).ok_or_else(damaged)
}

fn damaged() -> Error {
    Error::new(ErrorCode::DataCorruptionDetected, "a stored record has an invalid header or length")
}

/// Decodes a record's value that may be retired, as [`decode_stored`]; the bytes are those of
/// [`Txn::scan_retired`](mayfly_kv::Txn::scan_retired).
///
/// # Errors
/// 301 DataCorruptionDetected.
pub(crate) fn decode_retired(value: &[u8]) -> Result<Record<'_>> {
    match value.split_first() {
        Some((first, rest)) if first & !RETIRED == RECORD_FORMAT => decode_parts(rest),
        _ => Err(damaged()),
    }
}

/// The document of a record's value.
///
/// # Errors
/// 301 DataCorruptionDetected.
pub(crate) fn decode_record(value: &[u8]) -> Result<RawDoc<'_>> {
    match value {
        [RECORD_FORMAT, rest @ ..] => document_of(rest),
        _ => Err(damaged()),
    }
}

/// Encodes the value of a unique index's entry.
pub(crate) fn encode_unique_value(out: &mut Vec<u8>, record_key: &[u8], type_bits: &[u8]) {
    out.clear();
    append_counted(out, record_key);
    out.extend_from_slice(type_bits);
}

/// The part of the value of a unique index's entry with the number of a record.
pub(crate) const ENTRY_NUMBER: std::ops::Range<usize> = 1..9;

/// Splits the value of a unique index's entry into record key and type bits.
pub(crate) fn decode_unique_value(value: &[u8]) -> Option<(&[u8], &[u8])> {
    split_counted(value)
}

/// Appends the length of the bytes, as a varint, and the bytes.
pub(crate) fn append_counted(out: &mut Vec<u8>, bytes: &[u8]) {
    let mut len = bytes.len();
    while len >= 0x80 {
        out.push((len & 0x7F) as u8 | 0x80);
        len >>= 7;
    }
    out.push(len as u8);
    out.extend_from_slice(bytes);
}

/// Splits a value after its first bytes of [`append_counted`]; `None` if it is too short.
pub(crate) fn split_counted(value: &[u8]) -> Option<(&[u8], &[u8])> {
    let mut len = 0usize;
    for (at, byte) in value.iter().take(5).enumerate() {
        len |= usize::from(byte & 0x7F) << (7 * at);
        if byte & 0x80 == 0 {
            return value[at + 1..].split_at_checked(len);
        }
    }
    None
}

/// Catalog keys.
pub(crate) mod catalog_key {
    /// The format.
    pub(crate) const FORMAT: &[u8] = b"v";
    /// Next id.
    pub(crate) const NEXT_ID: &[u8] = b"n";
    /// The timestamp up to which the oplog was cut.
    pub(crate) const OPLOG_CUT: &[u8] = b"o";
    /// The configured size of the oplog when it was resized, and its size since; 8 bytes each,
    /// big-endian.
    pub(crate) const OPLOG_SIZE: &[u8] = b"z";
    /// The position of a replay of an archived log, while it is not complete: a timestamp, 8 bytes
    /// big-endian.
    pub(crate) const REPLAYED: &[u8] = b"y";
    /// The reason why expiry is suspended ([`crate::policy::watch::Mark`]).
    pub(crate) const SUSPENDED: &[u8] = b"w";

    /// Exists while entries of a backup or of a copied store are being written
    /// ([`crate::backup`]); its value is empty, or the state of the copy.
    pub(crate) const UNFINISHED: &[u8] = b"x";
    /// Exists in a store that was moved to another place; its value is the id of the copy.
    pub(crate) const MOVED: &[u8] = b"q";
    /// The id of a copy whose base is being read from this store without a server. A server that
    /// opens the store removes it.
    pub(crate) const COPYING: &[u8] = b"j";
    /// The identity of the store and the timelines of its log.
    pub(crate) const IDENTITY: &[u8] = b"i";
    /// The version of the definitions ([`crate::shared`]).
    pub(crate) const VERSION: &[u8] = b"e";
    /// The timestamp up to which the log is complete, for stores that read this one: 8 bytes,
    /// big-endian.
    pub(crate) const SETTLED: &[u8] = b"t";
    /// The latest backups.
    pub(crate) const BACKUPS: &[u8] = b"b";

    pub(crate) fn collection(id: u64) -> Vec<u8> {
        with_id(b'c', id)
    }

    pub(crate) fn multikey(id: u64) -> Vec<u8> {
        with_id(b'm', id)
    }

    /// The position of a log-fed index.
    pub(crate) fn feed(id: u64) -> Vec<u8> {
        with_id(b'p', id)
    }

    /// The search indexes of a collection.
    pub(crate) fn search(id: u64) -> Vec<u8> {
        with_id(b's', id)
    }

    pub(crate) fn dropped(id: u64) -> Vec<u8> {
        with_id(b'd', id)
    }

    pub(crate) fn counts(id: u64) -> Vec<u8> {
        with_id(b'k', id)
    }

    /// The counts of a collection that secondaries show.
    pub(crate) fn shown_counts(id: u64) -> Vec<u8> {
        with_id(b'u', id)
    }

    pub(crate) fn numbers(id: u64) -> Vec<u8> {
        with_id(b'r', id)
    }

    /// A segment of the oplog that ends at this timestamp.
    pub(crate) fn segment(end: u64) -> Vec<u8> {
        with_id(b'l', end)
    }

    fn with_id(kind: u8, id: u64) -> Vec<u8> {
        let mut key = vec![kind];
        key.extend_from_slice(&id.to_be_bytes());
        key
    }

    /// The id in a key of [`with_id`].
    pub(crate) fn id_of(key: &[u8]) -> Option<u64> {
        key.get(1..9).and_then(|b| b.try_into().ok()).map(u64::from_be_bytes)
    }
}

/// The keyspaces that can hold an object's keys.
pub(crate) const OBJECT_KEYSPACES: [Keyspace; 2] = [Keyspace::Record, Keyspace::Index];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unique_values_round_trip() {
        for len in [0, 1, 127, 128, 300, 20_000] {
            let key = vec![7u8; len];
            let mut value = Vec::new();
            encode_unique_value(&mut value, &key, &[1, 2]);
            assert_eq!(decode_unique_value(&value), Some((key.as_slice(), [1u8, 2].as_slice())));
            assert!(
                decode_unique_value(&value[..len.min(1)]).is_none_or(|(k, _)| k.len() < len.max(1))
            );
        }
        assert_eq!(decode_unique_value(&[]), None);
        assert_eq!(decode_unique_value(&[0xFF; 8]), None);
    }

    #[test]
    fn records_round_trip() {
        for (in_log, logged_at) in [(InLog::Apart, None), (InLog::Refers, Some(7u64))] {
            let mut value = Vec::new();
            encode_record(&mut value, -5, in_log, RawDoc::EMPTY);
            if in_log == InLog::Refers {
                assert_eq!(decode_stored(&value).unwrap().logged_at, Some(0));
                value[LOGGED_AT..LOGGED_AT + 8].copy_from_slice(&7u64.to_le_bytes());
            }
            let stored = decode_stored(&value).unwrap();
            assert_eq!((stored.document, stored.modified_ms), (RawDoc::EMPTY, -5));
            assert_eq!(stored.logged_at, logged_at);
            for cut in 0..value.len() {
                assert_eq!(
                    decode_record(&value[..cut]).unwrap_err().code(),
                    ErrorCode::DataCorruptionDetected
                );
            }
            for (at, wrong) in [(0, 1), (0, 3), (1, 2), (1, 3)] {
                let mut value = value.clone();
                value[at] = wrong;
                assert!(decode_stored(&value).is_err(), "an invalid header");
            }
        }
    }
}
