//! All tests over whole servers in this process: golden scripts, expiry, properties, malformed
//! input.
//!
//! One binary, so that the engines are linked once.

mod allowed_indexes;
mod bad_input;
mod batches;
mod capped;
mod chance;
mod changes_model;
mod collations;
mod declared_arguments;
mod deletion;
mod ends;
mod every_plan;
mod fsync_lock;
mod growth;
mod history;
mod history_commands;
mod holds;
mod idle_streams;
mod index_builds;
mod index_kinds;
mod log_model;
mod lost_store;
mod memory;
mod model;
mod parameters;
mod policies;
mod properties;
mod round_trips;
mod scripting;
mod scripts;
mod series_cursors;
mod series_model;
mod snapshot_reads;
mod split_events;
mod step_down;
mod time_series;
mod transactions;
mod ttl_monitor;
mod ttl_statements;
mod what_was_shown;
