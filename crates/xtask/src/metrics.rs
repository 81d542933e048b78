//! `docs/metrics.md`: the table of figures as a page.

use std::fmt::Write;

use mayfly_service::observe::{Figure, FigureKind, Unit, figures};

const HEAD: &str = "\
# Metrics

The metrics of the server. The page is generated from a table in the code (`crates/service/src/observe/rows`) by
`cargo run -p mayfly-xtask -- pages`; a test fails when it is out of date.

`db.serverStatus()` contains each metric, in the field of the last column. A name in braces is a label:
`opcounters.{kind}` are the fields `opcounters.insert`, `opcounters.query` and so on. The names in the first column
follow the conventions of Prometheus, for which [`/metrics`](status-page.md#metrics) serves them. Their units are bytes
and seconds, also if `serverStatus` has mebibytes, milliseconds or microseconds. Counters begin at zero when the server
starts. Places that begin with `ttlStatus` are in the reply of that command, and not in `serverStatus`.

";

/// The page.
pub(crate) fn page() -> String {
    let mut out = HEAD.to_owned();
    let mut rows: Vec<&Figure> = figures().filter(|row| !row.name.is_empty()).collect();
    rows.sort_by_key(|row| row.name);
    out.push_str("| name | labels | kind | unit | meaning | in `serverStatus` |\n");
    out.push_str("|---|---|---|---|---|---|\n");
    for row in rows {
        let labels: Vec<String> = row.labels().map(|label| format!("`{label}`")).collect();
        let (labels, Figure { name, place, help, .. }) = (labels.join(", "), row);
        let (kind, unit) = (kind(row), unit(row));
        let _ = writeln!(out, "| `{name}` | {labels} | {kind} | {unit} | {help} | `{place}` |");
    }
    out.push_str("\n## Fields that are no metrics\n\n");
    out.push_str(
        "`serverStatus` has these fields only because clients of MongoDB expect them.\n\n",
    );
    out.push_str("| in `serverStatus` | why |\n|---|---|\n");
    let mut rows: Vec<&Figure> = figures().filter(|row| row.name.is_empty()).collect();
    rows.sort_by_key(|row| row.place);
    for Figure { place, help, .. } in rows {
        let _ = writeln!(out, "| `{place}` | {help} |");
    }
    out
}

fn kind(row: &Figure) -> &'static str {
    match row.kind {
        FigureKind::Counter => "counter",
        FigureKind::Gauge => "gauge",
        FigureKind::Expected => "",
    }
}

fn unit(row: &Figure) -> &'static str {
    match row.unit {
        Unit::Flag => "0 or 1",
        Unit::Count | Unit::Bytes | Unit::Micros | Unit::Millis => row.unit.base(),
    }
}
