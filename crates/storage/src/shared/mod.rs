//! What several stores over one engine must agree on.
//!
//! Each store keeps copies in memory. What is decided here is decided by rows of the engine, so
//! that stores in other processes decide the same.

mod back_off;
mod bits;
mod sequence;
mod version;

pub(crate) use back_off::back_off;
pub(crate) use bits::set_bits;
pub(crate) use sequence::Sequence;
pub(crate) use version::{NO_VERSION, begin_versions, change_version, version};
