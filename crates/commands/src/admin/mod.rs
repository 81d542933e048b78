//! Commands that administer the server: parameters, sessions, replication, shutdown.

mod api_tests;
mod apply_ops;
mod audit_config;
mod backup;
mod balancer;
mod cluster_parameters;
mod compatibility;
mod concerns;
mod copy_store;
mod drop_connections;
mod fail_point;
mod fsync;
mod get_parameter;
mod index_filters;
mod log_rotate;
mod member_state;
mod metadata_consistency;
mod oplog_note;
mod plan_cache;
pub(crate) mod query_settings;
mod reconfig;
pub(crate) mod replication;
mod resize_oplog;
mod session_cache;
mod session_patterns;
mod sessions;
mod set_parameter;
mod sharding;
mod shutdown;
mod transactions;
mod ttl_resume;
mod write_block;

use crate::context::Command;

/// The group's rows.
pub(crate) const ROWS: &[Command] = &[
    api_tests::DEPRECATION,
    api_tests::REMOVAL,
    api_tests::VERSION_2,
    api_tests::VERSIONS_1_AND_2,
    apply_ops::ROW,
    audit_config::GET,
    audit_config::MESSAGE,
    audit_config::SET,
    backup::ROW,
    backup::STATUS,
    balancer::STATUS,
    cluster_parameters::GET,
    cluster_parameters::SET,
    compatibility::ROW,
    concerns::GET,
    concerns::SET,
    copy_store::COPY,
    copy_store::MOVE,
    drop_connections::ROW,
    fail_point::CONFIGURE,
    fail_point::WAIT,
    fsync::ROW,
    fsync::UNLOCK,
    get_parameter::ROW,
    log_rotate::ROW,
    plan_cache::CLEAR,
    index_filters::CLEAR,
    index_filters::LIST,
    index_filters::SET,
    member_state::GET_RBID,
    member_state::MAINTENANCE,
    member_state::STEP_UP,
    metadata_consistency::ROW,
    oplog_note::ROW,
    query_settings::REMOVE,
    query_settings::SET,
    reconfig::ROW,
    replication::FREEZE,
    replication::GET_CONFIG,
    replication::GET_STATUS,
    replication::INITIATE,
    replication::STEP_DOWN,
    resize_oplog::ROW,
    session_cache::REAP,
    session_cache::REFRESH,
    session_patterns::ROW,
    sessions::END,
    sessions::KILL,
    sessions::KILL_ALL,
    sessions::REFRESH,
    sessions::START,
    set_parameter::ROW,
    sharding::ENABLE,
    sharding::LIST,
    sharding::MAP,
    sharding::SHARD_COLLECTION,
    sharding::START,
    sharding::STOP,
    shutdown::ROW,
    transactions::ABORT,
    transactions::COMMIT,
    transactions::COORDINATE,
    transactions::PREPARE,
    ttl_resume::ROW,
    write_block::ROW,
];
