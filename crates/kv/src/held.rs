//! Snapshots that are held, and the end of a sweep: what calls of an [`Engine`] return.

#[cfg(doc)]
use crate::Engine;
use crate::{KvResult, Txn};

/// A snapshot that outlives the transaction it was taken in, for any number of readers.
///
/// It prevents the engine from reclaiming the versions it can see and keeps files open: drop it
/// soon, and before the engine is closed. Ranges that are swept ([`Engine::sweep_range`]) may
/// disappear from it.
pub trait HeldSnapshot: Send + Sync {
    /// Begins a read-only transaction over this snapshot.
    fn begin(&self) -> KvResult<Box<dyn Txn>>;
}

/// The result of one call of [`Engine::sweep_range`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SweepEnd {
    /// The range is empty now.
    Done,
    /// There may be more; call it again.
    More,
}
