//! Keys and values as they lie in the byte store.
//!
//! ```text
//! record   | collection id, 8 bytes big-endian | record key |
//!          | record key: record number, 8 bytes big-endian; see [`crate::catalog::numbers`]
//!          | (clustered by _id: ordered key of _id) |
//!          | (buckets: ordered key of their start, 8 bytes; see [`crate::timeseries`]) |
//!          | 1 | flags | last-modified ms, 8 bytes little-endian | BSON, exact bytes |
//!
//! index    | index id, 8 bytes | ordered keys of the values | record key |
//!          | type bits |
//! unique   | index id, 8 bytes | ordered keys of the values |
//!          | length of record key, varint | record key | type bits |
//!
//! oplog    | seconds << 32 + increment, 8 bytes big-endian |   | the entry, BSON |
//!
//! session  | session id, 16 bytes | statement id, 4 bytes |
//!          | see [`crate::retry`] |
//!
//! catalog  | 'v' |              | format, store UUID, BSON
//!          | 'n' |              | next id, 8 bytes
//!          | 'o' |              | the timestamp up to which the oplog was cut, 8 bytes big-endian
//!          | 'c' | id |         | collection: namespace, UUID, options, indexes, BSON
//!          | 'm' | index id |   | multikey mask, 4 bytes little-endian
//!          | 'd' | id |         | a dropped object whose range waits for the sweeper
//!          | 'k' | id |         | documents and bytes at the last clean close
//!          | 'r' | id |         | the first record number that was not handed out, 8 bytes big-endian
//! ```

use mayfly_base::{Error, ErrorCode, Result};
use mayfly_kv::{KeyRange, Keyspace, prefix_end};
use mayfly_value::keys::{self, TypeBits};
use mayfly_value::{Collation, RawDoc, RawValue};

use crate::record::Record;

/// Bytes of a record's value before its BSON.
pub(crate) const RECORD_HEADER: usize = 10;
const RECORD_FORMAT: u8 = 1;

/// How a record is named inside its collection, without the collection's prefix: its number, the ordered key of its `_id`
/// where the collection is clustered by that, or the start of a bucket.
pub type RecordKey = Vec<u8>;

/// The ordered key of an `_id`.
pub type IdKey = Vec<u8>;

/// The ordered key of this `_id` in a collection with the simple collation.
pub fn id_key(id: RawValue<'_>) -> IdKey {
    id_key_in(id, None).0
}

/// The ordered key of this `_id`, and what it does not say; strings that the collection's collation does not tell apart share
/// one.
pub(crate) fn id_key_in(id: RawValue<'_>, collation: Option<&Collation>) -> (IdKey, TypeBits) {
    let mut key = Vec::with_capacity(32);
    let mut bits = TypeBits::default();
    keys::append_value_in(&mut key, &mut bits, id, false, collation);
    (key, bits)
}

/// A record's key as clients are shown it: its number where records have numbers, elsewhere its bytes.
pub fn record_id(record_key: &[u8], numbered: bool) -> RawValue<'_> {
    match record_key.try_into().map(u64::from_be_bytes) {
        Ok(number) if numbered => RawValue::Int64(number as i64),
        _ => RawValue::Binary { subtype: 0, bytes: record_key },
    }
}

/// An object's id, followed by the rest of the key.
pub(crate) fn prefixed(id: u64, rest: &[u8]) -> Vec<u8> {
    let mut key = Vec::with_capacity(8 + rest.len());
    key.extend_from_slice(&id.to_be_bytes());
    key.extend_from_slice(rest);
    key
}

/// All keys of one object.
pub(crate) fn object_range(id: u64) -> KeyRange {
    KeyRange { start: id.to_be_bytes().to_vec(), end: (id + 1).to_be_bytes().to_vec() }
}

/// A range given inside an object, as a range of the keyspace. An empty `end` means up to the object's end.
pub(crate) fn object_subrange(id: u64, inner: &KeyRange) -> KeyRange {
    let end =
        if inner.end.is_empty() { prefix_end(&id.to_be_bytes()) } else { prefixed(id, &inner.end) };
    KeyRange { start: prefixed(id, &inner.start), end }
}

/// Writes a record's value into the buffer, replacing what was there.
pub(crate) fn encode_record(out: &mut Vec<u8>, modified_ms: i64, document: RawDoc<'_>) {
    out.clear();
    out.reserve(RECORD_HEADER + document.as_bytes().len());
    out.push(RECORD_FORMAT);
    out.push(0);
    out.extend_from_slice(&modified_ms.to_le_bytes());
    out.extend_from_slice(document.as_bytes());
}

/// A record's value: its document, and when it was written last.
///
/// # Errors
/// 301 DataCorruptionDetected.
pub(crate) fn decode_stored(value: &[u8]) -> Result<Record<'_>> {
    let document = decode_record(value)?;
    // There is a document behind the header.
    let modified = value.get(2..RECORD_HEADER).and_then(|bytes| bytes.try_into().ok());
    Ok(Record { document, modified_ms: modified.map_or(0, i64::from_le_bytes) })
}

/// The document of a record's value.
///
/// # Errors
/// 301 DataCorruptionDetected.
pub(crate) fn decode_record(value: &[u8]) -> Result<RawDoc<'_>> {
    let framed =
        (value.first() == Some(&RECORD_FORMAT)).then(|| value.get(RECORD_HEADER..)).flatten();
    framed.and_then(RawDoc::new).ok_or_else(|| {
        Error::new(
            ErrorCode::DataCorruptionDetected,
            "a stored record has an invalid header or length",
        )
    })
}

/// The value of a unique index's entry.
pub(crate) fn encode_unique_value(out: &mut Vec<u8>, record_key: &[u8], type_bits: &[u8]) {
    out.clear();
    let mut len = record_key.len();
    while len >= 0x80 {
        out.push((len & 0x7F) as u8 | 0x80);
        len >>= 7;
    }
    out.push(len as u8);
    out.extend_from_slice(record_key);
    out.extend_from_slice(type_bits);
}

/// Splits the value of a unique index's entry into record key and type bits.
pub(crate) fn decode_unique_value(value: &[u8]) -> Option<(&[u8], &[u8])> {
    let mut len = 0usize;
    for (at, byte) in value.iter().take(5).enumerate() {
        len |= usize::from(byte & 0x7F) << (7 * at);
        if byte & 0x80 == 0 {
            let rest = &value[at + 1..];
            return (len <= rest.len()).then(|| rest.split_at(len));
        }
    }
    None
}

/// Catalog keys.
pub(crate) mod catalog_key {
    /// Format and store UUID.
    pub(crate) const FORMAT: &[u8] = b"v";
    /// Next id.
    pub(crate) const NEXT_ID: &[u8] = b"n";
    /// The timestamp up to which the oplog was cut.
    pub(crate) const OPLOG_CUT: &[u8] = b"o";
    /// Why expiry is suspended.
    pub(crate) const SUSPENDED: &[u8] = b"w";

    pub(crate) fn collection(id: u64) -> Vec<u8> {
        with_id(b'c', id)
    }

    pub(crate) fn multikey(id: u64) -> Vec<u8> {
        with_id(b'm', id)
    }

    pub(crate) fn dropped(id: u64) -> Vec<u8> {
        with_id(b'd', id)
    }

    pub(crate) fn counts(id: u64) -> Vec<u8> {
        with_id(b'k', id)
    }

    pub(crate) fn numbers(id: u64) -> Vec<u8> {
        with_id(b'r', id)
    }

    fn with_id(kind: u8, id: u64) -> Vec<u8> {
        let mut key = vec![kind];
        key.extend_from_slice(&id.to_be_bytes());
        key
    }

    /// The id at the end of such a key.
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
        let mut value = Vec::new();
        encode_record(&mut value, -5, RawDoc::EMPTY);
        assert_eq!(decode_record(&value).unwrap(), RawDoc::EMPTY);
        assert_eq!(value[2..RECORD_HEADER], (-5i64).to_le_bytes());
        for cut in 0..value.len() {
            assert_eq!(
                decode_record(&value[..cut]).unwrap_err().code(),
                ErrorCode::DataCorruptionDetected
            );
        }
    }
}
