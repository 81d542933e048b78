//! Compaction and cleanup: commands that shrink the collection of counts. A client sends the tokens
//! of all fields, with which the server reads the queue.
//!
//! 1. Read entries of the queue ([`QueueEntry`](crate::QueueEntry)) and decrypt them
//!    ([`queued_tokens`](crate::queued_tokens)).
//! 2. Plan the change of each token ([`plan_compaction`], [`plan_cleanup`]).
//! 3. In the same transaction, apply the change and delete the entries of the queue.
//!
//! The reference renames the queue first and works through the renamed collection, because its
//! transactions are too short for all tokens. Here each transaction handles some tokens and their
//! entries, and the queue stays in place: entries that are appended meanwhile belong to the next
//! run. Two runs on one collection must not overlap.
//!
//! A token whose entries a compaction has deleted is not in the queue until its value is inserted
//! again, so a cleanup replaces only anchors of values that were inserted since the last
//! compaction. The reference works in the same way.

mod plan;
mod tokens;

pub use plan::{StateChange, plan_cleanup, plan_compaction, plan_padding, plan_padding_cleanup};
pub use tokens::{FieldToken, check_tokens, parse_tokens};
