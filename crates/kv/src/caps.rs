//! The limits and properties of an engine, and the check of a write against them, with the same
//! messages for every engine.

#[cfg(doc)]
use crate::{InsertCheck, TxnOptions};
use crate::{KvError, KvResult};

/// The limits and properties of an engine.
#[derive(Clone, Copy, Debug)]
pub struct Caps {
    /// Largest key, in bytes.
    pub max_key_bytes: usize,
    /// Largest value, in bytes.
    pub max_value_bytes: usize,
    /// Largest transaction, in bytes written.
    pub max_txn_bytes: usize,
    /// Most keys written in one transaction.
    pub max_txn_keys: usize,
    /// Longest life of a transaction, in milliseconds.
    pub max_txn_age_ms: u64,
    /// Most transactions that stay open between operations ([`TxnOptions::stays_open`]).
    pub max_open_txns: usize,
    /// Whether data survives the end of the process.
    pub durable: bool,
    /// Whether the records of all new collections are stored in the order of `_id`, as those of
    /// clustered collections are. No engine wants that; tests set it to run everything over such
    /// records.
    pub clusters_records: bool,
    /// Whether each call that reads is a round trip over a network.
    pub is_remote: bool,
    /// Whether an insert of a present key may be refused only by the commit
    /// ([`InsertCheck::AtCommit`]): true where looking the key up is a network round trip.
    pub late_inserts: bool,
}

impl Caps {
    /// Checks that a key is greater than the one that an [`Ingest`](crate::Ingest) added last.
    pub fn check_ascending(&self, last: Option<&[u8]>, key: &[u8]) -> KvResult<()> {
        match last {
            Some(last) if last >= key => Err(KvError::Invalid("a key out of order".into())),
            _ => Ok(()),
        }
    }

    /// Checks that one more write fits into a transaction of this size
    /// ([`Txn::size`](crate::Txn::size)).
    pub fn check_write(&self, key: &[u8], value: &[u8], size: (usize, usize)) -> KvResult<()> {
        let checks = [
            ("a key", key.len(), self.max_key_bytes, "bytes"),
            ("a value", value.len(), self.max_value_bytes, "bytes"),
            ("a transaction", size.0 + key.len() + value.len(), self.max_txn_bytes, "bytes"),
            ("a transaction", size.1 + 1, self.max_txn_keys, "keys"),
        ];
        for (what, is, max, unit) in checks {
            if is > max {
                let text = format!("{what} of {is} {unit}; the engine takes {max}");
                return Err(KvError::TooLarge(text));
            }
        }
        Ok(())
    }
}
