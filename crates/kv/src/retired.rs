//! Retired records.

use crate::Keyspace;
#[cfg(doc)]
use crate::Txn;

/// The bit that an engine sets in the first byte of a value to retire it: [`Txn::retire`].
pub const RETIRED: u8 = 0x80;

/// Whether this stored value is retired.
#[inline]
pub fn is_retired(keyspace: Keyspace, value: &[u8]) -> bool {
    keyspace == Keyspace::Record && value.first().is_some_and(|first| first & RETIRED != 0)
}
