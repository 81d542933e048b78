//! BSON as borrowed bytes: documents, elements and values that point into the buffer they were read
//! from.
//!
//! A document is validated once, where it enters ([`crate::validate()`]); afterwards access is
//! plain slicing. Access never panics on bytes that were not validated: a malformed element ends
//! the iteration, and a malformed string reads as empty.

mod doc;
mod element;
mod finder;
mod length;
mod name;
mod owned;
#[cfg(test)]
mod tests;
mod types;
mod value;

pub use doc::{EMPTY_DOC, RawDoc, RawIter};
pub use element::RawElement;
pub use finder::Finder;
pub(crate) use name::{find_zero, zero_in};
pub use owned::{DocBuf, ValueBuf};
pub use types::{ty, type_name};
pub use value::RawValue;
