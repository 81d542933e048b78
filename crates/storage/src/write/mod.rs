//! Writing: units over one collection and several, what follows from them at the commit, and transactions of several statements.
//!
//! [`Writer`] is the core with what commits need. It knows nothing of how collections come and go; where a policy archives into one,
//! it asks ([`FindArchives`]).

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
mod retry;
mod role;
mod transaction;
mod unit;
mod user_block;
mod within;
mod writer;

pub(crate) use archive::{ArchiveCollection, FindArchives, archive_names};
pub use archive::{ArchivePlace, ArchiveSink};
pub use commit::COMMIT_STATEMENT;
pub use definition_hook::DefinitionChange;
pub(crate) use durability::SyncGate;
pub use fsync_lock::{FsyncLock, Writing};
pub(crate) use retry::recorded_at;
pub use retry::{Executed, Statement};
pub use transaction::{OpenTransaction, TransactionSize};
pub use unit::WriteUnit;
pub(crate) use unit::{covered_keys, duplicate_key};
pub use within::Together;
pub use writer::{WriteOptions, Writer};
pub(crate) use writer::{back_off, most_tries, wait_for_build};
