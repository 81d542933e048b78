//! The command table, dispatch, and one file per command.
//!
//! The connection's loop passes an [`Incoming`] to [`dispatch()`]. It finds the command in the
//! [`registry`], parses the generic arguments into a [`Request`], registers the operation, runs the
//! handler, which appends its reply to the output buffer, and closes the reply with `ok` or with
//! the error. Dispatch does not wait for an fsync, for data, or for a topology change: it returns
//! [`Next`], on which the loop acts.
//!
//! To add a command: one file with a handler and a row, and one line in its group's `ROWS`.
//! Commands of the reference without an implementation are in [`missing`](crate::registry) and
//! answer "not implemented". This crate does not know opcodes.

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
    Command, CommandContext, DataWait, Effects, Entry, Exhaust, Handler, Retry, Run, Table, Wait,
};
pub use diagnostics::build_info::VERSION;
pub use diagnostics::current_op::{CurrentOpOptions, current_ops};
pub use dispatch::{Dispatched, Incoming, Next, Outcome, Repeat, append_failure, dispatch};
pub use request::{
    Demands, DocumentSequence, Documents, Durability, Fields, Generic, Names, Needs, OpKind,
    ReadConcern, ReadLevel, Request, Row, RowFlags, TransactionPart, WriteConcern,
};
pub use rules::length::announce_waits;
