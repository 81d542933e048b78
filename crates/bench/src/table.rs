//! The table on the terminal: a line per load, its ranges and further figures below it, and the
//! verdicts at the end.
//!
//! This does not use `comfy-table`: a line is printed as soon as its load is over, and the library
//! needs all rows to lay out a table.

use serde_json::{Value, json};

use crate::budget::Verdict;
use crate::figures::{
    CLIENT, DISK, LATER, MAX, P50, P95, P99, P999, PER_CORE, RATE, RESIDENT, SERVER, WRITTEN,
};
use crate::series::Series;
use crate::statistics::Range;

/// If the load generator uses more than this per operation, it affects the measurement.
const CLIENT_LIMIT_MICROS: f64 = 10.0;

/// Longest line of further figures, which are indented.
const LINE_COLUMNS: usize = 150;

/// The columns: figure, heading, width.
const COLUMNS: &[(&str, &str, usize)] = &[
    (RATE, "per second", 10),
    (P50, "p50 ms", 8),
    (P95, "p95 ms", 8),
    (P99, "p99 ms", 8),
    (P999, "p99.9", 8),
    (MAX, "max ms", 8),
    (SERVER, "server us", 9),
    (LATER, "later us", 8),
    (CLIENT, "client us", 10),
    (RESIDENT, "RSS MB", 7),
    (WRITTEN, "wr/byte", 7),
    (DISK, "disk MB", 7),
];

/// Figures that are in the JSON and in lines of budgets, but have no line of their own.
const QUIET: &[&str] = &["operations", "seconds", "corrected p99", PER_CORE];

/// Prints the heading.
pub(crate) fn print_head() {
    let mut line = format!("{:41}", "work");
    for (_, heading, width) in COLUMNS {
        line += &format!(" {heading:>width$}");
    }
    println!("{line}");
}

/// Prints a load's lines.
pub(crate) fn print_row(series: &Series) {
    let mut line = format!("{:41}", series.work.title);
    for (name, _, width) in COLUMNS {
        let mut text = series.median(name).map_or("-".to_owned(), figure);
        if *name == CLIENT && series.median(name).is_some_and(|us| us > CLIENT_LIMIT_MICROS) {
            text.push('*');
        }
        line += &format!(" {text:>width$}");
    }
    if let Some(verdict) = series.verdict() {
        line += &format!("  {verdict}");
    }
    println!("{}", line.trim_end());
    for budget in series.work.budgets {
        let value = series.range(budget.figure);
        println!(
            "    {}: {} {}, budget {} {}: {}",
            budget.figure,
            value.map_or("-".to_owned(), range),
            budget.unit,
            budget.sign(),
            figure(budget.limit),
            budget.verdict(value.map(|range| range.median)),
        );
    }
    let shown = |name: &str| COLUMNS.iter().any(|column| column.0 == name) || QUIET.contains(&name);
    let budgeted = |name: &str| series.work.budgets.iter().any(|budget| budget.figure == name);
    let ranges = [RATE, SERVER, P99].into_iter().filter(|name| !budgeted(name));
    let spread: Vec<String> = ranges
        .filter_map(|name| {
            let range = series.range(name).filter(|range| range.min < range.max)?;
            Some(format!("{name} {}..{}", figure(range.min), figure(range.max)))
        })
        .collect();
    if !spread.is_empty() {
        println!("    {}", spread.join("  "));
    }
    let further = series.names().into_iter().filter(|(name, _)| !shown(name) && !budgeted(name));
    let further = further.filter_map(|(name, unit)| {
        let text = range(series.range(name)?);
        Some(format!("{name} {text} {unit}").trim_end().to_owned())
    });
    for line in lines(further, LINE_COLUMNS) {
        println!("    {line}");
    }
    for error in &series.errors {
        println!("    failed: {error}");
    }
}

/// Prints the number of budgets that are met.
pub(crate) fn print_verdicts(rows: &[Series]) {
    let of = |verdict: Verdict| rows.iter().filter(|row| row.verdict() == Some(verdict)).count();
    if rows.iter().any(|row| row.verdict().is_some()) {
        println!(
            "budgets: {} met, {} not met, {} unknown",
            of(Verdict::Met),
            of(Verdict::NotMet),
            of(Verdict::Unknown)
        );
        for row in rows.iter().filter(|row| row.verdict() == Some(Verdict::NotMet)) {
            println!("    not met: {}", row.work.title);
        }
    }
    let above = |row: &&Series| row.median(CLIENT).is_some_and(|us| us > CLIENT_LIMIT_MICROS);
    if rows.iter().any(|row| above(&row)) {
        println!("* the load generator itself needs more than {CLIENT_LIMIT_MICROS} us");
    }
}

/// Joins pieces to lines of at most this many columns, unless a piece is longer.
fn lines(pieces: impl Iterator<Item = String>, columns: usize) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for piece in pieces {
        match lines.last_mut() {
            Some(line) if line.len() + 2 + piece.len() <= columns => {
                line.push_str("; ");
                line.push_str(&piece);
            }
            _ => lines.push(piece),
        }
    }
    lines
}

/// All loads as JSON.
pub(crate) fn json(rows: &[Series]) -> Value {
    let rows: Vec<Value> = rows.iter().map(Series::json).collect();
    json!({ "version": env!("CARGO_PKG_VERSION"), "rows": rows })
}

/// The median, with the extremes if they differ from it.
fn range(range: Range) -> String {
    if range.min < range.max {
        format!("{} ({}..{})", figure(range.median), figure(range.min), figure(range.max))
    } else {
        figure(range.median)
    }
}

/// A number with three significant digits, and groups of thousands.
pub(crate) fn figure(value: f64) -> String {
    let size = value.abs();
    if size >= 10_000.0 {
        grouped(value)
    } else if size >= 100.0 || value == value.trunc() {
        format!("{value:.0}")
    } else if size >= 10.0 {
        format!("{value:.1}")
    } else if size >= 1.0 {
        format!("{value:.2}")
    } else {
        format!("{value:.3}")
    }
}

/// A whole number in groups of three digits.
fn grouped(value: f64) -> String {
    let digits = format!("{:.0}", value.abs());
    let mut text = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at) % 3 == 0 {
            text.push(',');
        }
        text.push(digit);
    }
    if value < 0.0 { format!("-{text}") } else { text }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_legible() {
        let texts = [0.1234, 1.0, 1.234, 12.34, 123.4, 1234.5, 12345.0, -1234567.0].map(figure);
        let expected = ["0.123", "1", "1.23", "12.3", "123", "1234", "12,345", "-1,234,567"];
        assert_eq!(texts, expected);
        let all = Range { median: 2.0, min: 1.5, max: 3.0 };
        assert_eq!(range(all), "2 (1.50..3)");
    }

    #[test]
    fn further_figures_share_lines() {
        let pieces = || ["aaaa", "bbbb", "cccc"].into_iter().map(str::to_owned);
        assert_eq!(lines(pieces(), 10), ["aaaa; bbbb", "cccc"]);
        assert_eq!(lines(pieces(), 3).len(), 3);
    }

    #[test]
    fn the_table_fits_160_columns() {
        let width: usize = COLUMNS.iter().map(|column| column.2 + 1).sum();
        assert!(41 + width + 2 + "NOT MET".len() <= 160, "{width}");
        assert!(crate::work::ALL.iter().all(|work| work.title.len() <= 41));
    }
}
