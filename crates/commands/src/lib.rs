//! The command table, dispatch, one file per command.
