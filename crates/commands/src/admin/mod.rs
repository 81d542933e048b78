//! Commands that change how the server runs: parameters, sessions, replication posture, shutdown.

mod apply_ops;
mod fsync;
mod get_parameter;
mod log_rotate;
pub(crate) mod replication;
mod sessions;
mod set_parameter;
mod shutdown;

use crate::Row;

/// The group's rows.
pub(crate) const ROWS: &[Row] = &[
    apply_ops::ROW,
    fsync::ROW,
    fsync::UNLOCK,
    get_parameter::ROW,
    log_rotate::ROW,
    replication::FREEZE,
    replication::GET_CONFIG,
    replication::GET_STATUS,
    replication::INITIATE,
    replication::STEP_DOWN,
    sessions::END,
    sessions::KILL,
    sessions::KILL_ALL,
    sessions::LOGOUT,
    sessions::REFRESH,
    sessions::START,
    set_parameter::ROW,
    shutdown::ROW,
];
