//! The engine over PostgreSQL: the byte-store contract across a network.
//!
//! Each keyspace is a table. A transaction of the contract is a transaction of PostgreSQL: its
//! BEGIN is sent with its first read, its writes are sent with COMMIT. Conflicts between the
//! transactions of this server are detected by the conflict tracker of `mayfly-kv`, as in the
//! embedded engines; PostgreSQL's own check is a second one. The README of the crate tells what is
//! sent when, and what happens when a connection is lost.
//!
//! * [`PostgresEngine`]: `engine`; its transactions: `txn`; scans in pages: `cursor`, `ranges`;
//!   reads of many keys: `many`; values that are too large for a page: `large`.
//! * Read-only transactions that are beginning: `opening`.
//! * What a commit sends: `commit`; a commit whose reply was lost: `settle`.
//! * Snapshots that outlive a transaction: `held`.
//! * Connections: `pool`; one of them: `connection`; waiting for it: `wait`; TLS: `tls`.
//! * One server for each store: `owner`. The tables: `schema`; the statements: `sql`.
//! * Options, the URL and the password: `options`, `password`; why a store cannot be opened:
//!   [`OpenError`].

mod commit;
mod connection;
mod cursor;
mod engine;
mod failure;
mod held;
mod large;
mod many;
mod open_error;
mod opening;
mod options;
mod owner;
mod password;
mod pool;
mod ranges;
mod schema;
mod settle;
mod sql;
mod tls;
mod txn;
mod wait;

pub use engine::PostgresEngine;
pub use open_error::OpenError;
pub use options::PostgresOptions;
pub use schema::FORMAT;
