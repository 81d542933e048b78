//! The command table, dispatch, one file per command.
//!
//! The story of a command: the connection loop hands an [`Incoming`] to [`dispatch()`]. It finds the command in the
//! [`registry`], parses the generic arguments into a [`Request`], registers the operation, runs the handler, which
//! appends its reply to the output buffer, and closes the reply with `ok` or with the error. What has to be
//! awaited (an fsync, data, a topology change) is not awaited here: [`Next`] names it to the loop.
//!
//! To add a command: one file with a handler and a row, one line in its group's `ROWS`. Commands of the reference that have
//! no row of their own are in [`missing`](crate::registry) and answer "not implemented". No opcodes here.

mod access;
mod admin;
mod context;
mod crud;
mod ddl;
mod diagnostics;
mod dispatch;
pub mod registry;
mod request;
mod rules;

pub use context::{
    Command, CommandContext, DataWait, Effects, Entry, Exhaust, Explained, Handler, Retry, Run,
    Table, Wait,
};
pub use diagnostics::current_op::{CurrentOpOptions, current_ops};
pub use dispatch::{Dispatched, Incoming, Next, Outcome, Repeat, append_failure, dispatch};
pub use request::{
    Demands, DocumentSequence, Documents, Durability, Fields, Generic, Needs, OpKind, ReadConcern,
    ReadLevel, Request, Row, RowFlags, TransactionPart, WriteConcern,
};
pub use rules::length::announce_waits;
