//! Bits that any store sets and none clears.
//!
//! ```text
//! catalog  | key of the bits |   4 bytes, little-endian
//! ```

use mayfly_kv::{Guard, Keyspace, KvError, KvResult, Txn};

use super::change_version;

/// Sets bits in a row, under its lock, and returns all that are set. Another store may have set
/// further ones.
pub(crate) fn set_bits(txn: &mut dyn Txn, key: &[u8], bits: u32) -> KvResult<u32> {
    let mut stored = Ok(0);
    txn.get_locked(Keyspace::Catalog, key, &mut |value| {
        stored = value
            .try_into()
            .map(u32::from_le_bytes)
            .map_err(|_| KvError::Corrupt("a row of bits in the catalog cannot be read".into()));
    })?;
    let stored = stored?;
    let all = stored | bits;
    if all != stored {
        txn.put(Keyspace::Catalog, key, &all.to_le_bytes(), Guard::Derived)?;
        change_version(txn)?;
    }
    Ok(all)
}
