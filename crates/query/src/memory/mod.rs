//! The memory of an operation, and where its operators go on when it is used up: documents in the files of [`mayfly_runs`].

mod budget;
mod sorter;
mod spill;
mod spool;

pub(crate) use budget::Memory;
pub(crate) use sorter::{Sorted, Sorter};
pub(crate) use spill::{as_document, into_document};
pub(crate) use spool::{Spool, SpoolWriter};
