//! Writes: units over one or several collections, their effects at the commit, and transactions of
//! several statements. `README.md` in this folder describes a commit from end to end.
//!
//! [`Writer`] is the core with the parts that commits need. It does not create or drop collections;
//! it asks [`FindArchives`] for those that policies archive into.

mod archive;
mod capped;
mod change;
mod commit;
mod definition_hook;
mod durability;
mod fsync_lock;
mod load;
mod log_cut;
mod measurements;
mod others;
mod replayed;
mod retry;
mod role;
mod transaction;
mod unit;
mod user_block;
mod within;
mod writer;

pub use archive::{ArchivePlace, ArchiveSink};
pub(crate) use archive::{FindArchives, archive_names};
pub use commit::COMMIT_STATEMENT;
pub use definition_hook::DefinitionChange;
pub(crate) use durability::SyncGate;
pub use fsync_lock::{FsyncLock, WritingCommand};
pub use others::OtherCollection;
pub use replayed::ReplayedChange;
pub(crate) use retry::recorded_at;
#[cfg(test)]
pub(crate) use retry::statement_row;
pub use retry::{ExecutedStatements, Statement};
pub use transaction::{OpenTransaction, TransactionSize};
pub use unit::WriteUnit;
pub(crate) use unit::{covered_keys, duplicate_key, key_error};
pub use within::UnitCollections;
pub use writer::{WriteOptions, Writer};
pub(crate) use writer::{most_tries, wait_for_build};
