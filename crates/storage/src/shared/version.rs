//! The version of the definitions: a row that changes with them, so that a store in another process
//! notices.
//!
//! ```text
//! catalog  | 'e' |   8 random bytes
//! ```
//!
//! The transaction that changes a definition writes the row as well. Two snapshots with the same
//! version therefore have the same definitions. Versions have no order, because transactions that
//! write the row at the same time do not conflict.

use mayfly_kv::{Engine, Guard, Keyspace, KvResult, Txn, TxnOptions};

use crate::record::layout::catalog_key;

/// The version of a store without the row.
pub(crate) const NO_VERSION: u64 = 0;

/// Notes that the transaction changes what other stores have in memory.
pub(crate) fn change_version(txn: &mut dyn Txn) -> KvResult<()> {
    let version = rand::random_range(NO_VERSION + 1..=u64::MAX).to_le_bytes();
    txn.put(Keyspace::Catalog, catalog_key::VERSION, &version, Guard::Derived)
}

/// Writes the row of a store that has none, because no definition was changed since rows are
/// written. Without it, secondaries would load the definitions for each snapshot.
///
/// # Errors
/// Errors of the engine.
pub(crate) fn begin_versions(engine: &dyn Engine) -> KvResult<()> {
    let mut txn = engine.begin(TxnOptions::default())?;
    if version(&*txn)? == NO_VERSION {
        change_version(&mut *txn)?;
        txn.commit()?;
    }
    Ok(())
}

/// The version in this transaction.
pub(crate) fn version(txn: &dyn Txn) -> KvResult<u64> {
    let mut version = NO_VERSION;
    txn.get(Keyspace::Catalog, catalog_key::VERSION, &mut |value| {
        version = value.try_into().map_or(NO_VERSION, u64::from_le_bytes);
    })?;
    Ok(version)
}
