//! Full-text and vector search over documents: definitions of indexes, segments in one folder,
//! queries and their hits. The README describes the public interface and the file format.
//!
//! The crate knows documents with a record key and the time of their version. It knows no store, no
//! log and no commands; it reads no clock and starts no thread of its own.

pub mod definition;
mod fault;
mod fields;
mod filter;
mod index;
pub mod limits;
mod query;
mod read;
mod text;
mod vector;
mod watch;

pub use definition::{Definition, IndexKind};
pub use index::{
    Change, Contents, Control, Cursor, Highlight, HighlightText, Hit, Index, IndexError, Page,
    ScoreDetails, Sizes, TextKind, Unlimited,
};
pub use query::Query;
pub use watch::SharedCheck;
