//! Commands that define databases, collections and indexes.

mod coll_mod;
mod create;
mod create_indexes;
mod drop;
mod drop_indexes;
mod encrypted_fields;
mod encrypted_state;
mod id_options;
mod list_collections;
mod list_databases;
mod list_indexes;
mod options;
mod rename;
mod search_indexes;
mod time_series;
mod to_capped;
mod upkeep;
mod view;

use crate::context::Command;

/// The group's rows.
pub(crate) const ROWS: &[Command] = &[
    create::ROW,
    drop::ROW,
    drop::DATABASE,
    list_databases::ROW,
    list_collections::ROW,
    create_indexes::ROW,
    list_indexes::ROW,
    drop_indexes::ROW,
    coll_mod::ROW,
    encrypted_state::CLEANUP,
    encrypted_state::COMPACT,
    rename::ROW,
    search_indexes::CREATE,
    search_indexes::UPDATE,
    search_indexes::DROP,
    search_indexes::LIST,
    to_capped::CONVERT,
    to_capped::CLONE,
    upkeep::AUTO_COMPACT,
    upkeep::COMMIT_QUORUM,
    upkeep::COMPACT,
    upkeep::RE_INDEX,
];
