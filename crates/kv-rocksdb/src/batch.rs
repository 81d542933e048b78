//! A commit's writes as RocksDB takes them in one batch, laid out here: handing over each of them costs several times what laying
//! it out does.
//!
//! ```text
//! batch    | sequence number, 8 bytes, 0 | operations, 4 bytes little-endian | operation ... |
//! put      | what, and which family | length, varint | key | length, varint | value |
//! delete   | what, and which family | length, varint | key |
//! ```
//!
//! RocksDB keeps its write-ahead log in this form and reads that of older versions, so it does not change. What operations begin with
//! is taken from batches that RocksDB has laid out itself.

use mayfly_kv::Keyspace;
use mayfly_kv::write_buffer::{OwnWrite, WriteBuffer};
use rocksdb::{ColumnFamily, WriteBatch};

/// Sequence number and count.
const HEADER: usize = 12;
/// What an operation needs besides key and value, at most.
const PER_OP: usize = 16;

/// What the operations of each keyspace begin with.
pub(crate) struct Heads([Head; Keyspace::ALL.len()]);

struct Head {
    put: Vec<u8>,
    delete: Vec<u8>,
}

impl Head {
    fn of(family: &ColumnFamily) -> Head {
        let (mut put, mut delete) = (WriteBatch::default(), WriteBatch::default());
        put.put_cf(family, [], []);
        delete.delete_cf(family, []);
        let head = |batch: &WriteBatch, lengths: usize| {
            let operation = batch.data().get(HEADER..).unwrap_or_default();
            operation[..operation.len().saturating_sub(lengths)].to_vec()
        };
        Head { put: head(&put, 2), delete: head(&delete, 1) }
    }
}

impl Heads {
    /// Those of these families, by keyspace.
    pub(crate) fn of(families: &[&ColumnFamily; Keyspace::ALL.len()]) -> Heads {
        Heads(families.map(Head::of))
    }

    /// The batch of a transaction.
    pub(crate) fn batch(&self, buffer: &WriteBuffer) -> WriteBatch {
        let (bytes, ops) = buffer.size();
        let mut out = Vec::with_capacity(HEADER + bytes + ops * PER_OP);
        out.extend_from_slice(&[0; 8]);
        // The buffer is far smaller than 4 GB.
        out.extend_from_slice(&u32::try_from(ops).unwrap_or(u32::MAX).to_le_bytes());
        for (keyspace, key, write) in buffer.ops_by_key() {
            let head = &self.0[keyspace as usize];
            match write {
                OwnWrite::Put(value) => {
                    out.extend_from_slice(&head.put);
                    append(&mut out, key);
                    append(&mut out, value);
                }
                OwnWrite::Deleted => {
                    out.extend_from_slice(&head.delete);
                    append(&mut out, key);
                }
            }
        }
        WriteBatch::from_data(&out)
    }
}

/// Appends bytes behind their length.
fn append(out: &mut Vec<u8>, bytes: &[u8]) {
    let mut length = bytes.len();
    while length >= 0x80 {
        out.push(length as u8 | 0x80);
        length >>= 7;
    }
    out.push(length as u8);
    out.extend_from_slice(bytes);
}

#[cfg(test)]
mod tests {
    use rocksdb::{ColumnFamilyDescriptor, DB, Options};

    use super::*;

    #[test]
    fn batches_are_as_rocksdb_lays_them_out() {
        let folder = tempfile::tempdir().unwrap();
        let mut options = Options::default();
        options.create_if_missing(true);
        options.create_missing_column_families(true);
        let families = Keyspace::ALL
            .map(|keyspace| ColumnFamilyDescriptor::new(keyspace.name(), Options::default()));
        let db = DB::open_cf_descriptors(&options, folder.path(), families).unwrap();
        let families = Keyspace::ALL.map(|keyspace| db.cf_handle(keyspace.name()).unwrap());
        let heads = Heads::of(&families);
        let lengths = [0, 1, 127, 128, 16_383, 16_384, 2_097_151, 2_097_152];
        let (mut buffer, mut own) = (WriteBuffer::new(), WriteBatch::default());
        assert_eq!(heads.batch(&buffer).data(), own.data());
        for keyspace in Keyspace::ALL {
            let family = families[keyspace as usize];
            for (at, length) in (0u8..).zip(lengths) {
                let (key, value) = (vec![at; length], vec![at; lengths[7 - usize::from(at)]]);
                buffer.put(keyspace, &key, &value);
                own.put_cf(family, &key, &value);
                buffer.delete(keyspace, &key);
                own.delete_cf(family, &key);
            }
        }
        let batch = heads.batch(&buffer);
        assert!(batch.data() == own.data());
        assert_eq!(batch.len(), 2 * lengths.len() * Keyspace::ALL.len());
        db.write(batch).unwrap();
        assert_eq!(db.get_cf(families[3], []).unwrap(), None);
    }
}
