//! Keys that values of other keys name: the entry of an index, and its record.

use std::ops::Range;

use crate::{Keyspace, KvResult, Txn};

/// How a value names the key of another one: the key is a prefix, and a part of the value.
#[derive(Clone, Debug)]
pub struct NamedKey<'k> {
    /// The keyspace of the key.
    pub keyspace: Keyspace,
    /// The first bytes of the key.
    pub prefix: &'k [u8],
    /// The part of the value with the other bytes of the key.
    pub part: Range<usize>,
}

/// Bytes that are stored without an allocation if they are as short as the entries of indexes on
/// `_id` and the keys of records.
pub type ShortBytes = smallvec::SmallVec<[u8; 32]>;

impl NamedKey<'_> {
    /// The key that this value names; `None` if the value is too short.
    pub fn of(&self, value: &[u8]) -> Option<ShortBytes> {
        let mut key = ShortBytes::from_slice(self.prefix);
        key.extend_from_slice(value.get(self.part.clone())?);
        Some(key)
    }
}

/// A key and the value that it must have for a read to give a result.
#[derive(Clone, Copy, Debug)]
pub struct Expected<'a> {
    /// The keyspace of the key.
    pub keyspace: Keyspace,
    /// The key without its keyspace.
    pub key: &'a [u8],
    /// The whole value.
    pub value: &'a [u8],
}

impl Expected<'_> {
    /// Whether the key has the value in this transaction.
    ///
    /// # Errors
    /// Errors of the engine.
    pub fn holds_in(&self, txn: &dyn Txn) -> KvResult<bool> {
        let mut holds = false;
        txn.get(self.keyspace, self.key, &mut |value| holds = value == self.value)?;
        Ok(holds)
    }
}
