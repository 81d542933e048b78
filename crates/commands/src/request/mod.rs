//! A parsed command before it runs: the properties in its row, its generic arguments, its fields
//! and documents.
//!
//! This floor knows no handlers; of the server's state it only knows rights and sessions.

pub(crate) mod fields;
pub(crate) mod generic;
mod message;
pub(crate) mod needs;
pub(crate) mod row;

pub use fields::Fields;
pub use generic::{Durability, Generic, ReadConcern, ReadLevel, TransactionPart, WriteConcern};
pub use message::{DocumentSequence, Documents, Request};
pub use needs::{Demands, Needs};
pub use row::{OpKind, Row, RowFlags};
