//! The engine over PostgreSQL: the byte-store contract across a network.
//!
//! Each keyspace is a table. The reads of a transaction are a transaction of PostgreSQL, whose
//! BEGIN is sent with the first of them. Its writes are buffered; the commit sends them as another
//! one. Conflicts are detected by the conflict tracker of `mayfly-kv`, as in the embedded engines,
//! because one server owns a store at a time. The README of the crate explains what is sent when,
//! and what happens when a connection is lost.
//!
//! * [`PostgresEngine`]: `engine`; its transactions: `txn`; scans in pages: `cursor`, `ranges`;
//!   reads of many keys: `many`; values that are too large for a page: `large`.
//! * Read-only transactions that are beginning: `opening`.
//! * What a commit sends: `commit`; a commit whose reply was lost: `settle`. Bulk loading:
//!   `ingest`.
//! * Snapshots that outlive a transaction: `held`.
//! * Connections: `pool`; one of them: `connection`; waiting for it: `wait`; TLS: `tls`.
//! * The servers over a store: `members`. One of them writes: `owner`; servers that wait to replace
//!   it: `standby`. The tables: `schema`; the statements: `sql`.
//! * Options, the URL and the password: `options`, `password`; why a store cannot be opened:
//!   [`OpenError`].

mod commit;
mod connection;
mod cursor;
mod engine;
mod failure;
mod figures;
mod held;
mod ingest;
mod inspect;
mod large;
mod many;
mod members;
mod open_error;
mod opening;
mod options;
mod owner;
mod password;
mod pool;
mod ranges;
mod schema;
mod session;
mod settle;
mod sharing;
mod sql;
mod standby;
mod tls;
mod txn;
mod wait;

pub use engine::PostgresEngine;
pub use inspect::{StoreFacts, TableFacts};
pub use open_error::OpenError;
pub use options::PostgresOptions;
pub use schema::FORMAT;
pub use standby::{Waiting, WhenFree};
