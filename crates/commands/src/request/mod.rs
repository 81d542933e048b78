//! A command before anything is done with it: what its row declares, its generic arguments, its fields and documents.
//!
//! This floor knows no handler and no state of the server but rights and sessions.

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
