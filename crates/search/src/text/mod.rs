//! Words: analyzers ([`analyze`]), and the postings of a segment, which tantivy writes and reads.
//!
//! The postings of a segment are a tantivy index with one segment and the same ordinals. Its files
//! are sections of the segment's own file ([`directory`]).

pub(crate) mod analyze;
pub(crate) mod directory;
pub(crate) mod encoded;
pub(crate) mod fuzzy;
pub(crate) mod glob;
mod language;
pub(crate) mod phrase;
pub(crate) mod postings;
pub(crate) mod regex;
mod sloppy;
#[cfg(test)]
mod tests;
pub(crate) mod weight;
mod words;

pub(crate) use postings::Postings;
pub(crate) use words::lower_case;
