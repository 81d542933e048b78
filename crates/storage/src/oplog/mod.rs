//! The operation log: an entry for each write unit, written in the unit's transaction.
//!
//! A unit with one operation writes it as the entry; a unit with several writes one `applyOps`
//! entry. Entries have the reference's field names. Timestamps are strictly ascending and are
//! assigned shortly before the commit. If change streams of a collection show documents before and
//! after a change, its entries contain them as `preImage` and `postImage`.
//!
//! A document in a record is not written a second time: the entry refers to the record by its key
//! and its version (`stored`), and readers get the content of the record (`entry`, `resolve`). A
//! unit that overwrites a record whose entry is still in the log copies the document to
//! [`Keyspace::Versions`](mayfly_kv::Keyspace::Versions) in the same transaction, and one that
//! deletes it retires the record; trimming the log clears both. Consecutive deletions are stored as
//! a list of their `_id`s (`runs`, `ids`), and readers get an operation for each. The log's limit
//! counts entries with their documents (`window`). `README.md` in this folder has an example.

mod apply;
mod archive;
mod batch;
mod clock;
mod diff;
mod entry;
mod follow;
mod gaps;
pub(crate) mod identity;
mod ids;
mod log;
mod operation;
mod read;
mod resolve;
mod runs;
mod stored;
mod transactions;
mod varint;
mod watch;
mod window;

pub(crate) use apply::apply_delta;
pub(crate) use batch::OplogBatch;
pub(crate) use clock::{OplogClock, Stamp};
pub(crate) use diff::delta;
pub(crate) use entry::DEFINITION;
pub use entry::{LogEntry, LogObject, LogOperation, OperationVisitor};
pub use identity::{LostTimes, StoreIdentity};
pub use log::Oplog;
pub(crate) use log::visit_all;
pub use operation::UpdateStyle;
pub(crate) use operation::{ExpiredBy, LoggedCommand, LoggedObject, LoggedUpdate, RecordInLog};
pub use read::{EntryVisitor, LogEnd, LogRange, LogSizes, OPLOG};
pub(crate) use stored::{StoredEntry, decode, records_of};
pub(crate) use watch::Concerned;
pub use watch::{ChangeScope, SYSTEM_VIEWS, Watch};
pub use window::LogLimits;
pub(crate) use window::SegmentsToStore;
