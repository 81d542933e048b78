//! What does not fit into memory, as bytes: sorting, merging, and keeping them in files.
//!
//! * A [`Sorter`] takes entries of a key and a value in any order, in one arena. What is in memory goes into a sorted run when its
//!   owner says so, and a [`Merge`] gives everything in order.
//! * A [`Spool`] gives entries again in the order in which they came, as often as needed.
//! * A [`Shelf`] gives each entry once, by its place.
//!
//! How much memory there is, whether files may be used, and what the bytes mean is known to the owner only: index builds sort keys,
//! queries sort documents. Files have no names, so that nothing is left of them after a crash, and only their owner can read them.

mod arena;
mod file;
mod merge;
mod shelf;
mod sorter;
mod spool;

pub use merge::Merge;
pub use shelf::{Placed, Shelf};
pub use sorter::{Run, Sorter};
pub use spool::{Spool, SpoolWriter};

/// Asked now and then while files are written and merged: an error ends the work.
pub type Check<'c> = dyn Fn() -> mayfly_base::Result<()> + 'c;

/// What was written into files because memory did not suffice. What merging rewrites does not count again.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Spilled {
    /// How often memory was emptied into a file.
    pub spills: u64,
    /// Entries that were written.
    pub records: u64,
    /// Bytes of their keys and values.
    pub bytes: u64,
    /// Bytes of the files.
    pub file_bytes: u64,
}

impl Spilled {
    /// Adds what was written elsewhere.
    pub fn add(&mut self, other: Spilled) {
        self.spills += other.spills;
        self.records += other.records;
        self.bytes += other.bytes;
        self.file_bytes += other.file_bytes;
    }
}
