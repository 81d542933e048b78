//! The server's own activities: it starts, writes audit events, maintains documents about itself,
//! records visits of the TTL monitor, ends expired transactions and cursors, and compacts.

mod audit;
mod auto_compact;
mod definitions;
mod members;
mod own_documents;
mod start;
mod stored_functions;
mod visits;
mod watch;
