//! The rows by subject. The fields of a section of `serverStatus` are in the order of its rows.

mod concerns;
mod counted;
mod engine;
mod policies;
mod process;
mod search;
mod storage;
mod work;

use super::figure::Figure;

/// All figures, subject by subject.
pub fn figures() -> impl Iterator<Item = &'static Figure> {
    [
        work::ROWS,
        storage::ROWS,
        search::ROWS,
        engine::ROWS,
        process::ROWS,
        counted::ROWS,
        concerns::ROWS,
        policies::ROWS,
    ]
    .into_iter()
    .flatten()
}

/// A count as an int64, capped at the largest one.
fn long(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

/// A number of bytes as an int64, capped at the largest one.
fn in_memory(bytes: usize) -> i64 {
    i64::try_from(bytes).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::observe::FigureKind;

    /// Prometheus, "Metric and label naming": an application prefix, base units, and the suffix
    /// `total` for counters.
    #[test]
    fn names_are_those_of_metrics() {
        let mut names: BTreeMap<&str, &Figure> = BTreeMap::new();
        for row in figures() {
            let Figure { place, name, kind, unit, help, .. } = *row;
            assert!(help.len() > 5 && help.ends_with('.'), "{place}: {help}");
            if kind == FigureKind::Expected {
                assert_eq!(name, "", "{place}");
                continue;
            }
            let plain = name.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'_');
            assert!(plain && name.starts_with("mayflydb_"), "{name}");
            assert!(names.insert(name, row).is_none(), "{name} has two rows");
            let without_total = name.strip_suffix("_total");
            assert_eq!(without_total.is_some(), kind == FigureKind::Counter, "{name}");
            let stem = without_total.unwrap_or(name);
            assert!(stem.ends_with(unit.base()), "{name} is in {}", unit.base());
        }
        assert!(names.len() > 80);
    }

    #[test]
    fn each_place_has_one_row() {
        let mut places: Vec<&str> = figures().map(|row| row.place).collect();
        let count = places.len();
        places.sort_unstable();
        places.dedup();
        assert_eq!(places.len(), count);
    }
}
