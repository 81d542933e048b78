//! What does not fit into memory, as bytes: sorting, merging, and keeping them in files.
//!
//! * A [`Sorter`] takes entries of a key and a value in any order, in one arena. What is in memory goes into a sorted run when its
//!   owner says so, and a [`Merge`] gives everything in order.
//! * A [`Spool`] gives entries again in the order in which they came, as often as needed.
//! * A [`Shelf`] gives an entry by its place.
//! * A [`Table`] gives what is under a key, a [`KeySet`] says which keys were seen.
//!
//! How much memory there is, whether files may be used, and what the bytes mean is known to the owner only: index builds sort keys,
//! queries sort documents. Files have no names, so that nothing is left of them after a crash, and only their owner can read them.

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

/// Asked now and then while files are written and merged: an error ends the work.
pub type Check<'c> = dyn Fn() -> mayfly_base::Result<()> + 'c;
