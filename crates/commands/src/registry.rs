//! All commands: the groups' rows, then the missing ones. The first row with a name wins, so that a command
//! stops being missing by getting a row.

use std::sync::OnceLock;

use foldhash::{HashMap, HashMapExt};

use crate::{Row, access, admin, crud, ddl, diagnostics, missing};

/// The groups in order of precedence.
const GROUPS: &[&[Row]] =
    &[crud::ROWS, ddl::ROWS, diagnostics::ROWS, access::ROWS, admin::ROWS, missing::ROWS];

/// A row and its place in the table, which is its counter's place in the metrics.
#[derive(Clone, Copy)]
pub struct Entry {
    /// The place.
    pub index: usize,
    /// The row.
    pub row: &'static Row,
}

struct Table {
    rows: Vec<&'static Row>,
    by_name: HashMap<&'static str, Entry>,
}

fn table() -> &'static Table {
    static TABLE: OnceLock<Table> = OnceLock::new();
    TABLE.get_or_init(|| {
        let mut table = Table { rows: Vec::new(), by_name: HashMap::new() };
        for row in GROUPS.iter().copied().flatten() {
            if table.by_name.contains_key(row.name) {
                continue;
            }
            let entry = Entry { index: table.rows.len(), row };
            table.rows.push(row);
            table.by_name.insert(row.name, entry);
            for alias in row.aliases {
                table.by_name.insert(alias, entry);
            }
        }
        table
    })
}

/// The command with this name or alias.
pub fn find(name: &str) -> Option<Entry> {
    table().by_name.get(name).copied()
}

/// All rows, each once.
pub fn rows() -> &'static [&'static Row] {
    &table().rows
}

#[cfg(test)]
mod tests {
    use super::*;
    use mayfly_service::metrics::MAX_COMMANDS;

    #[test]
    fn names_are_found_and_fit_the_counters() {
        assert!(rows().len() <= MAX_COMMANDS);
        for row in rows() {
            assert!(std::ptr::eq(find(row.name).unwrap().row, *row), "{}", row.name);
            assert!(row.aliases.iter().all(|alias| find(alias).unwrap().row.name == row.name));
        }
        assert!(find("atlasVersion").is_none());
        assert_eq!(find("ismaster").unwrap().row.name, "isMaster");
    }

    #[test]
    fn no_two_groups_implement_the_same_name() {
        let implemented = || GROUPS[..GROUPS.len() - 1].iter().copied().flatten();
        for row in implemented() {
            assert_eq!(
                implemented().filter(|other| other.name == row.name).count(),
                1,
                "{}",
                row.name
            );
        }
    }
}
