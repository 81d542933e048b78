//! The command table, dispatch, one file per command.
//!
//! The story of a command: the connection loop hands an [`Incoming`] to [`dispatch()`]. It finds the [`Row`] in the
//! [`registry`], parses the generic arguments into a [`Request`], registers the operation, runs the handler, which
//! appends its reply to the output buffer, and closes the reply with `ok` or with the error. What has to be
//! awaited (an fsync, data, a topology change) is not awaited here but told to the loop in a [`Next`].
//!
//! To add a command: one file with a handler, one row in its group's `ROWS`. Commands of the reference that have
//! no row of their own are in [`missing`](crate::registry) and answer "not implemented". No opcodes here.

mod access;
mod admin;
mod audit;
mod context;
mod crud;
mod ddl;
mod diagnostics;
mod dispatch;
mod faults;
mod fields;
mod generic;
mod implied;
mod length;
mod missing;
mod primacy;
pub mod registry;
mod request;
mod retry;
mod row;
mod transaction;

pub use access::{Demands, Needs};
pub(crate) use context::DocumentChanges;
pub use context::{CommandContext, DataWait, Exhaust, Wait};
pub use diagnostics::current_op::{CurrentOpOptions, current_ops};
pub use dispatch::{Dispatched, Incoming, Next, Outcome, Repeat, append_failure, dispatch};
pub use fields::Fields;
pub use generic::{Durability, Generic, ReadConcern, ReadLevel, TransactionPart, WriteConcern};
pub use length::announce_waits;
pub use request::{DocumentSequence, Documents, Request};
pub use retry::Retry;
pub use row::{Handler, OpKind, Row, RowFlags, Run};
