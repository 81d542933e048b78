//! What a running server does by itself: it starts, writes its events into the audit log, keeps documents about itself, records
//! visits of the TTL monitor, and ends transactions and cursors whose time is over.

mod audit;
mod definitions;
mod own_documents;
mod start;
mod visits;
mod watch;
