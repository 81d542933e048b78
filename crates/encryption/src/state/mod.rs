//! The state of encrypted fields: how often each value was inserted. It is in two collections of
//! the server, `enxcol_.NAME.esc` (counts) and `enxcol_.NAME.ecoc` (the queue of compaction).
//!
//! Example: a value is inserted three times with the same contention factor. The collection of
//! counts then has three documents, called non-anchors, whose ids are HMACs of 1, 2 and 3. To
//! insert a fourth time, or to find the value, the server looks for the greatest number whose id
//! exists. A compaction inserts an anchor, whose content is the count 3, and deletes the three
//! documents. The next insert makes the non-anchor 4.
//!
//! ```text
//!  id                                content
//!  HMAC(tag token, count)            -                                  non-anchor
//!  HMAC(tag token, 0 || position)    encrypt(value token, 0 || count)   anchor, positions from 1
//!  HMAC(tag token, 0 || 0)           encrypt(value token,               null anchor: what a cleanup
//!                                            position || count)         made of the anchors so far
//! ```
//!
//! All numbers are little-endian and have 64 bits. The tokens are those of libmongocrypt; counts,
//! anchors and their search follow MongoDB's paper "Design and Analysis of a Stateless Document
//! Database Encryption Scheme". No public specification has the bytes of ids and contents. They are
//! meant to be those of the reference, but were not compared with the state of a reference server.
//! Tags, which clients can see, were compared.

mod queue;
mod records;
mod search;

pub use queue::{QueueEntry, QueuedToken, queued_tokens};
pub use records::{EscId, EscRecord, esc_document};
pub(crate) use records::{StateTokens, anchor_document};
pub use search::EscReader;
pub(crate) use search::{Positions, find_positions};
