//! A parsed command before it runs: the properties in its row, its generic arguments, its fields
//! and documents.
//!
//! This floor knows no handlers; of the server's state it only knows rights and sessions.

pub(crate) mod arguments;
pub(crate) mod generic;
mod message;
pub(crate) mod needs;
pub(crate) mod row;

pub(crate) use generic::Unmet;
pub use generic::{Durability, Generic, ReadConcern, ReadLevel, TransactionPart, WriteConcern};
pub use mayfly_value::arguments::Fields;
pub(crate) use message::no_such_command;
pub use message::{DocumentSequence, Documents, Request};
pub use needs::{Demands, Needs};
pub use row::{Names, OpKind, Row, RowFlags};
