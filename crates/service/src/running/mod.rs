//! The server's own activities: it starts, writes audit events, maintains documents about itself,
//! records visits of the TTL monitor, and ends expired transactions and cursors.

mod audit;
mod definitions;
mod own_documents;
mod start;
mod visits;
mod watch;
