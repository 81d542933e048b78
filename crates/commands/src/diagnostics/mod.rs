//! Commands that tell about the server and the connection.

pub(crate) mod current_op;
mod ping;

use crate::Row;

/// The group's rows.
pub(crate) const ROWS: &[Row] = &[ping::ROW, current_op::ROW, current_op::KILL_OP];
