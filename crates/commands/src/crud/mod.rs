//! Commands that read and write documents.

use crate::Row;

/// The group's rows.
pub(crate) const ROWS: &[Row] = &[];
