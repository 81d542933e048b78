//! Secondaries: stores that read what the store of another process writes.
//!
//! The *owner* of the byte store writes. A secondary opens the same byte store, over a network, and
//! only reads. It has no memory in common with the owner, so the rows tell it what has changed:
//!
//! * **Definitions** are exact. Each snapshot of a secondary contains the version of the
//!   definitions ([`crate::shared`]). If it is not the version that the secondary has in memory,
//!   the snapshot's definitions are loaded before anything is read from it
//!   ([`FollowingEngine`], [`refresh`]). A dropped index or a cut log is therefore noticed before
//!   its range is found empty: the owner clears a range later than it writes the version. To look
//!   at the version first would cost a round trip. The first batch of a query therefore looks at
//!   it together with its first read ([`Engine::begin_if`](mayfly_kv::Engine::begin_if)), which
//!   fails if the version is another one; the batch then begins again, and loads the definitions.
//! * **The log** is read up to the row `settled` ([`settled`]), which the owner writes and
//!   announces after a commit, at most every 5 ms. Until then a secondary shows the newest
//!   documents, but its cluster time is older. A read that waits for a later cluster time waits
//!   for the row.
//! * **Documents** are those of the snapshot.
//! * **Search indexes** are in files of the server, which follow the log (`search`).
//!
//! Apart from these files a secondary executes no background work. It counts the documents of a
//! collection when it is asked, or shows the number of a large one that the owner has written a
//! moment ago ([`counts`]). It has no snapshots of the past, and refuses writes (10107
//! NotWritablePrimary).
//!
//! ### Example: an index is dropped while a secondary reads
//!
//! | owner | secondary |
//! |---|---|
//! | | A query chooses the index `a_1`. |
//! | drops `a_1`: the catalog and the version change in one transaction | |
//! | removes the entries of `a_1` | |
//! | | The first batch takes a snapshot, whose version is new. The catalog is loaded, `a_1` is marked as dropped, and the query ends with 175 QueryPlanKilled, as it does on the owner. |
//!
//! If the snapshot had been taken before the drop, it would contain the entries.

mod counts;
mod engine;
mod refresh;
mod search;
mod settled;
#[cfg(test)]
mod tests;

pub(crate) use engine::FollowingEngine;
pub(crate) use settled::{SettledThread, read_settled};
