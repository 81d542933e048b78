//! Commands that return information about the server and the connection.

pub(crate) mod build_info;
pub(crate) mod catalog;
pub(crate) mod cluster_catalog;
pub(crate) mod coll_stats;
mod connection;
pub(crate) mod current_op;
mod data_size;
mod db_hash;
mod db_stats;
mod diagnostic_data;
mod get_log;
mod hello;
mod host_info;
pub(crate) mod index_stats;
mod list_commands;
pub(crate) mod local_sessions;
pub(crate) mod member;
pub(crate) mod open_cursors;
mod ping;
mod pools;
mod process;
mod profile;
pub(crate) mod query_stats;
pub(crate) mod scale;
pub(crate) mod search_indexes;
mod server_status;
mod top;
mod ttl_status;
mod validate;
mod validate_metadata;

use crate::context::Command;

/// The group's rows.
pub(crate) const ROWS: &[Command] = &[
    build_info::ROW,
    coll_stats::ROW,
    connection::CMD_LINE_OPTS,
    connection::CONNECTION_STATUS,
    connection::FEATURES,
    connection::IS_DB_GRID,
    connection::IS_SELF,
    connection::WHATS_MY_URI,
    current_op::KILL_OP,
    current_op::ROW,
    data_size::ROW,
    db_hash::ROW,
    db_stats::ROW,
    diagnostic_data::ROW,
    get_log::ROW,
    hello::HELLO,
    hello::IS_MASTER,
    host_info::ROW,
    list_commands::ROW,
    ping::ROW,
    pools::CONN_POOL_STATS,
    pools::LOCK_INFO,
    profile::GLOBAL_FILTER,
    profile::ROW,
    server_status::ROW,
    top::ROW,
    ttl_status::ROW,
    validate::ROW,
    validate_metadata::ROW,
];
