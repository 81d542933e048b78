//! All commands: the groups' rows, then the missing ones. The first row with a name wins, so that a
//! missing command is implemented by adding a row.

mod missing;

use std::sync::OnceLock;

use crate::access;
use crate::admin;
use crate::context::{Command, Entry, Table};
use crate::crud;
use crate::ddl;
use crate::diagnostics;
use crate::request::Row;

/// The groups in order of precedence.
const GROUPS: &[&[Command]] =
    &[crud::ROWS, ddl::ROWS, diagnostics::ROWS, access::ROWS, admin::ROWS, missing::ROWS];

/// The table of all commands.
pub fn table() -> &'static Table {
    static TABLE: OnceLock<Table> = OnceLock::new();
    TABLE.get_or_init(|| Table::new(GROUPS))
}

/// Finds a command by its name or an alias.
pub fn find(name: &str) -> Option<Entry> {
    table().find(name)
}

/// Finds the row of a command by its name or an alias.
pub(crate) fn row(name: &str) -> Option<&'static Row> {
    find(name).map(|entry| &entry.command.row)
}

/// All commands, without repetitions for aliases.
pub fn commands() -> &'static [&'static Command] {
    table().commands()
}

#[cfg(test)]
mod tests;
