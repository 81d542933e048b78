//! Options of a new transaction.

#[cfg(doc)]
use crate::{Caps, KvError};

/// Options of a new transaction.
#[derive(Clone, Copy, Debug, Default)]
pub struct TxnOptions {
    /// Only reads; the engine may skip the preparation for writes.
    pub read_only: bool,
    /// It stays open between operations, as a client's transaction of several statements does. The
    /// caller keeps the number of these within [`Caps::max_open_txns`].
    pub stays_open: bool,
    /// The first read may fail with [`KvError::Changed`]; then the caller begins again without this
    /// option. It saves the engine a round trip.
    pub begins_again: bool,
}

impl TxnOptions {
    /// A transaction that only reads.
    pub const READ_ONLY: TxnOptions =
        TxnOptions { read_only: true, stays_open: false, begins_again: false };
    /// One that only reads, and that the caller begins again.
    pub const READ_AGAIN: TxnOptions = TxnOptions { begins_again: true, ..TxnOptions::READ_ONLY };
    /// A transaction that stays open between operations.
    pub const STAYS_OPEN: TxnOptions =
        TxnOptions { read_only: false, stays_open: true, begins_again: false };
}
