//! Canonical query, planner, executor, pipeline stages, cursors.
