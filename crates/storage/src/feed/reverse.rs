//! The row that says which entries a document has in a log-fed index.
//!
//! The log names documents by `_id`, and has neither the record key of a deleted document nor its
//! content. A step therefore finds the entries that it must remove in this row:
//!
//! ```text
//! key    | index id, 8 bytes | ordered key of _id |                                in the keyspace of records
//! value  | 1 | length, varint | record key |
//!        | for each entry: length, varint | values | length, varint | type bits |
//! ```
//!
//! Example: the document `{ _id: 1, a: "red pen" }` is record 42, and has two entries:
//!
//! ```text
//! index   9 | "pen" | 42       index   9 | "red" | 42       row   9 | 1    1 | 42 | "pen" | "red"
//! ```

use crate::index::keygen::KeySet;
use crate::record::layout::{append_counted, split_counted};

const FORMAT: u8 = 1;

/// The entries of one document.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Entries {
    /// The key of the record.
    pub(super) record_key: Vec<u8>,
    /// Values and type bits.
    pub(super) list: Vec<(Vec<u8>, Vec<u8>)>,
}

impl Entries {
    /// The entries of a record with these keys.
    pub(super) fn new(record_key: Vec<u8>, keys: &KeySet) -> Entries {
        let list = keys.iter().map(|(values, bits)| (values.to_vec(), bits.to_vec())).collect();
        Entries { record_key, list }
    }

    /// Encodes the row's value.
    pub(super) fn encode(&self) -> Vec<u8> {
        let mut out = vec![FORMAT];
        append_counted(&mut out, &self.record_key);
        for (values, bits) in &self.list {
            append_counted(&mut out, values);
            append_counted(&mut out, bits);
        }
        out
    }

    /// Decodes a row's value; `None` for a damaged one.
    pub(super) fn decode(value: &[u8]) -> Option<Entries> {
        let (record_key, mut rest) = split_counted(value.strip_prefix(&[FORMAT])?)?;
        let mut entries = Entries { record_key: record_key.to_vec(), list: Vec::new() };
        while !rest.is_empty() {
            let (values, after) = split_counted(rest)?;
            let (bits, after) = split_counted(after)?;
            entries.list.push((values.to_vec(), bits.to_vec()));
            rest = after;
        }
        Some(entries)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_round_trip_and_damaged_ones_are_noticed() {
        let list = vec![(vec![1; 300], vec![]), (vec![], vec![2, 3])];
        for entries in [Entries::default(), Entries { record_key: vec![7; 8], list }] {
            let value = entries.encode();
            assert_eq!(Entries::decode(&value).as_ref(), Some(&entries));
            for cut in 0..value.len() {
                assert_ne!(Entries::decode(&value[..cut]).as_ref(), Some(&entries));
            }
        }
        assert_eq!(Entries::decode(&[2, 0]), None);
        assert_eq!(Entries::decode(&[1, 5, 0]), None);
        assert_eq!(Entries::decode(&[1, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0]), None);
    }
}
