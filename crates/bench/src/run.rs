//! The order in which everything runs: all loads once on a new server, then all of them again, so
//! that a machine that becomes slower for a while does not spoil one of them; two servers by turns,
//! A B for one load and B A for the next.

use std::path::Path;

use anyhow::{Context, Result};
use serde_json::Value;

use crate::figures::Measured;
use crate::series::Series;
use crate::server::{Source, Target};
use crate::work::{Plan, Work};
use crate::{compare, table};

/// Whether every load could run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    Complete,
    WithFailures,
}

/// Runs loads on a server and prints the table.
pub(crate) fn table(
    source: &Source,
    works: &[&'static Work],
    plan: &Plan,
    runs: usize,
    json: Option<&Path>,
) -> Result<Outcome> {
    let mut rows: Vec<Series> = works.iter().map(|work| Series::new(work)).collect();
    if runs == 1 {
        table::print_head();
    }
    for run in 1..=runs {
        let target = source.target()?;
        for row in &mut rows {
            if runs > 1 {
                eprintln!("run {run} of {runs}: {}", row.work.title);
            }
            let result = measure(row.work, &target, plan);
            row.add(result);
            if runs == 1 {
                table::print_row(row);
            }
        }
        // What there is so far is worth having when a later run is interrupted.
        write_json(json, &table::json(&rows))?;
    }
    if runs > 1 {
        table::print_head();
        rows.iter().for_each(table::print_row);
    }
    table::print_verdicts(&rows);
    Ok(outcome(rows.iter()))
}

/// Runs loads on two servers by turns and prints how they compare.
pub(crate) fn compare(
    sources: &[Source; 2],
    works: &[&'static Work],
    plan: &Plan,
    runs: usize,
    json: Option<&Path>,
) -> Result<Outcome> {
    let pair = |work: &&'static Work| (Series::new(work), Series::new(work));
    let mut pairs: Vec<(Series, Series)> = works.iter().map(pair).collect();
    for run in 1..=runs {
        let targets = [sources[0].target()?, sources[1].target()?];
        for (number, (a, b)) in pairs.iter_mut().enumerate() {
            eprintln!("run {run} of {runs}: {}", a.work.title);
            let mut turn = |at: usize| {
                let row = if at == 0 { &mut *a } else { &mut *b };
                row.add(measure(row.work, &targets[at], plan));
            };
            let first = (run + 1 + number) % 2;
            turn(first);
            turn(1 - first);
        }
        write_json(json, &compare::json(&pairs))?;
    }
    compare::print_head();
    for (a, b) in &pairs {
        compare::print_row(a, b);
    }
    Ok(outcome(pairs.iter().flat_map(|(a, b)| [a, b])))
}

fn measure(work: &Work, target: &Target, plan: &Plan) -> Result<Measured> {
    let measured = (work.run)(target, plan).with_context(|| work.name);
    target.settle();
    measured
}

fn outcome<'s>(mut rows: impl Iterator<Item = &'s Series>) -> Outcome {
    match rows.all(|row| row.errors.is_empty()) {
        true => Outcome::Complete,
        false => Outcome::WithFailures,
    }
}

fn write_json(path: Option<&Path>, value: &Value) -> Result<()> {
    let Some(path) = path else { return Ok(()) };
    let text = serde_json::to_string_pretty(value)?;
    std::fs::write(path, text).with_context(|| path.display().to_string())
}
