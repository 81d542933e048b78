//! Commands that change how the server runs: parameters, sessions, shutdown.

use crate::Row;

/// The group's rows.
pub(crate) const ROWS: &[Row] = &[];
