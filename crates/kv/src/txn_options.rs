//! Options of a new transaction.

#[cfg(doc)]
use crate::Caps;

/// Options of a new transaction.
#[derive(Clone, Copy, Debug, Default)]
pub struct TxnOptions {
    /// Only reads; the engine may skip the preparation for writes.
    pub read_only: bool,
    /// It stays open between operations, as a client's transaction of several statements does. The
    /// caller keeps the number of these within [`Caps::max_open_txns`].
    pub stays_open: bool,
}

impl TxnOptions {
    /// A transaction that only reads.
    pub const READ_ONLY: TxnOptions = TxnOptions { read_only: true, stays_open: false };
    /// A transaction that stays open between operations.
    pub const STAYS_OPEN: TxnOptions = TxnOptions { read_only: false, stays_open: true };
}
