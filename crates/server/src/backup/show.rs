//! Texts for people: times, sizes, and the list of backups.

use mayfly_repository::{BackupSummary, ListedBackup, RestoreRange};

/// A size with a unit, such as `1.5 GB`.
pub(crate) fn size(bytes: u64) -> String {
    const UNITS: [&str; 5] = ["bytes", "kB", "MB", "GB", "TB"];
    let (mut value, mut unit) = (bytes as f64, 0);
    while value >= 999.5 && unit + 1 < UNITS.len() {
        (value, unit) = (value / 1000.0, unit + 1);
    }
    match unit {
        0 => format!("{bytes} bytes"),
        _ if value < 9.95 => format!("{value:.1} {}", UNITS[unit]),
        _ => format!("{value:.0} {}", UNITS[unit]),
    }
}

/// The list of backups, the newest last.
pub(crate) fn backups(backups: &[ListedBackup]) -> String {
    if backups.is_empty() {
        return "The repository has no complete backup.\n".to_owned();
    }
    let mut text =
        format!("{:<28} {:<20} {:>9} {:>7}  parent\n", "backup", "contains up to", "size", "files");
    for ListedBackup { id, summary } in backups {
        let id = id.to_string();
        match summary {
            Ok(summary) => {
                let BackupSummary { time, parent, files, bytes, .. } = summary;
                let parent = parent.as_ref().map_or("-", |id| id.as_str());
                let (time, size) = (time.rfc3339(), size(*bytes));
                text += &format!("{id:<28} {time:<20} {size:>9} {files:>7}  {parent}\n");
            }
            Err(error) => text += &format!("{id:<28} cannot be read: {error}\n"),
        }
    }
    text
}

/// The times to which a restore is possible.
pub(crate) fn ranges(ranges: &[RestoreRange]) -> String {
    let text = |range: &RestoreRange| match range.from == range.to {
        true => range.from.rfc3339(),
        false => format!("{} to {}", range.from.rfc3339(), range.to.rfc3339()),
    };
    ranges.iter().map(text).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_have_two_digits() {
        let shown =
            [0, 999, 1000, 1_540_000, 99_400_000, 999_600_000, 12_000_000_000_000].map(size);
        let expected = ["0 bytes", "999 bytes", "1.0 kB", "1.5 MB", "99 MB", "1.0 GB", "12 TB"];
        assert_eq!(shown, expected);
    }
}
