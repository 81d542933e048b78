//! Data structures for spilling: sorting, merging and storing byte entries that do not fit into
//! memory.
//!
//! * A [`Sorter`] takes entries of a key and a value in any order. Its owner decides when the
//!   entries in memory are written to a sorted run; a [`Merge`] returns all entries in order.
//! * A [`Spool`] returns entries in the order of insertion, any number of times.
//! * A [`Shelf`] returns an entry by its offset.
//! * A [`Table`] returns the values of a key, a [`KeySet`] detects duplicate keys.
//!
//! The owner decides how much memory to use, whether to use files, and what the bytes mean: index
//! builds sort keys, queries sort documents. Files have no names, so nothing is left of them after
//! a crash, and only their owner can read them.

mod arena;
mod bloom;
mod file;
mod key_set;
mod merge;
mod shelf;
mod sorter;
mod spool;
mod table;

pub use file::{ScratchFile, failed as file_failed, open as open_file};
pub use key_set::KeySet;
pub use mayfly_work::spill::Spilled;
pub use merge::Merge;
pub use shelf::{Placed, Shelf};
pub use sorter::{Run, Sorter};
pub use spool::{Spool, SpoolWriter};
pub use table::Table;

/// Called periodically while files are written and merged: an error ends the work.
pub type Check<'c> = dyn Fn() -> mayfly_base::Result<()> + 'c;
