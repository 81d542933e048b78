//! Commands that define databases, collections and indexes.

use crate::Row;

/// The group's rows.
pub(crate) const ROWS: &[Row] = &[];
