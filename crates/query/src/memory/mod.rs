//! Memory of an operation, and spills of documents to the files of [`mayfly_runs`].

mod budget;
mod seen;
mod sorter;
mod spill;
mod spool;

pub use budget::{Budget, MemoryLimits, MemoryStats, Room};
pub(crate) use budget::{Share, no_disk_use};
pub(crate) use seen::SeenRecords;
pub use sorter::SortStats;
pub(crate) use sorter::{Sorted, Sorter};
pub(crate) use spill::{as_document, into_document};
pub(crate) use spool::{Spool, SpoolWriter};
