//! Comparison of two servers under the same loads. They run alternately (A B B A).
//!
//! A ratio is computed for each pair of runs, so that a machine that is slower for a while affects
//! both runs of a pair.

use serde_json::{Value, json};

use crate::figures::{P99, RATE, SERVER};
use crate::series::Series;
use crate::statistics::{Range, ratios};
use crate::table::figure;

/// The compared figures.
const COMPARED: &[&str] = &[SERVER, RATE, P99];

/// Prints the heading.
pub(crate) fn print_head() {
    println!(
        "{:41} {:>9} {:>9}  {:25} {:>11} {:>11}  {:25} {:25}",
        "work", "A us", "B us", "server us B/A", "A per s", "B per s", "rate B/A", "p99 B/A"
    );
}

/// Prints a load's line.
pub(crate) fn print_row(a: &Series, b: &Series) {
    let median = |series: &Series, name| series.median(name).map_or("-".to_owned(), figure);
    println!(
        "{:41} {:>9} {:>9}  {:25} {:>11} {:>11}  {:25} {:25}",
        a.work.title,
        median(a, SERVER),
        median(b, SERVER),
        spread(a, b, SERVER),
        median(a, RATE),
        median(b, RATE),
        spread(a, b, RATE),
        spread(a, b, P99),
    );
    for (name, series) in [("A", a), ("B", b)] {
        for error in &series.errors {
            println!("    {name} failed: {error}");
        }
    }
    // Loads without throughput have other figures.
    if a.median(RATE).is_none() {
        for (name, unit) in a.names() {
            let (ratio, left, right) = (spread(a, b, name), median(a, name), median(b, name));
            println!("    {name}: {left} and {right} {unit}, B/A {ratio}");
        }
    }
}

/// All pairs as JSON.
pub(crate) fn json(pairs: &[(Series, Series)]) -> Value {
    let rows = pairs.iter().map(|(a, b)| {
        let ratio = |name: &str| {
            let ratios = ratios(&a.values(name), &b.values(name));
            let range = Range::of(ratios.iter().copied());
            range.map(|range| {
                json!({ "median": range.median, "min": range.min, "max": range.max, "runs": ratios })
            })
        };
        let compared: serde_json::Map<String, Value> =
            COMPARED.iter().map(|name| ((*name).to_owned(), json!(ratio(name)))).collect();
        json!({ "name": a.work.name, "ratios": compared, "a": a.json(), "b": b.json() })
    });
    json!({ "version": env!("CARGO_PKG_VERSION"), "pairs": rows.collect::<Vec<_>>() })
}

fn spread(a: &Series, b: &Series, name: &str) -> String {
    match Range::of(ratios(&a.values(name), &b.values(name))) {
        Some(range) if range.min < range.max => {
            format!("{:.3} ({:.3}..{:.3})", range.median, range.min, range.max)
        }
        Some(range) => format!("{:.3}", range.median),
        None => "-".to_owned(),
    }
}
