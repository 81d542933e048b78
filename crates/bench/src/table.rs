//! The report: a line per load with its budget, and the same as JSON.

use serde_json::{Value, json};

use crate::load::Measured;
use crate::work::Work;

/// Prints the heading.
pub(crate) fn print_head() {
    println!(
        "{:44} {:>12} {:>8} {:>8} {:>9} {:>9} {:>9}  budget",
        "work", "per second", "p50 ms", "p99 ms", "server us", "later us", "client us"
    );
}

/// Prints a load's line, and its further figures below it.
pub(crate) fn print_row(work: &Work, measured: &Measured) {
    let figure = |value: Option<f64>| value.map_or("-".to_owned(), |value| format!("{value:.2}"));
    if measured.count > 0 {
        let rate = measured.count as f64 / measured.seconds;
        println!(
            "{:44} {:>12.0} {:>8.3} {:>8.3} {:>9} {:>9} {:>9}  {}",
            work.title,
            rate,
            measured.p50_ms,
            measured.p99_ms,
            figure(measured.server_us),
            figure(measured.later_us),
            figure(measured.client_us),
            work.budget
        );
    } else {
        println!("{:44} {:70}{}", work.title, "", work.budget);
    }
    for (name, value, unit) in &measured.extra {
        println!("    {name}: {value:.2} {unit}");
    }
}

/// All lines as JSON.
pub(crate) fn json(rows: &[(&Work, Measured)]) -> Value {
    let rows = rows.iter().map(|(work, measured)| {
        let extra: serde_json::Map<String, Value> = measured
            .extra
            .iter()
            .map(|(name, value, unit)| (format!("{name} ({unit})"), json!(value)))
            .collect();
        json!({
            "name": work.name,
            "work": work.title,
            "budget": work.budget,
            "count": measured.count,
            "seconds": measured.seconds,
            "p50Millis": measured.p50_ms,
            "p99Millis": measured.p99_ms,
            "serverMicros": measured.server_us,
            "laterMicros": measured.later_us,
            "clientMicros": measured.client_us,
            "extra": extra,
        })
    });
    json!({ "version": env!("CARGO_PKG_VERSION"), "rows": rows.collect::<Vec<_>>() })
}
