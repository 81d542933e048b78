//! The order of runs. All loads run once on a new server, then all of them again, so that a machine
//! that is slower for a while does not affect all runs of one load. Two servers run alternately: A
//! B for one load, B A for the next.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use serde_json::Value;

use crate::figures::Measured;
use crate::plot;
use crate::series::Series;
use crate::server::{Source, Target};
use crate::work::{Plan, Work};
use crate::{compare, table};

/// The files to write.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Output<'p> {
    pub(crate) json: Option<&'p Path>,
    pub(crate) plot: Option<&'p Path>,
}

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
    output: Output<'_>,
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
            if let (Some(path), Ok(measured)) = (output.plot, &result) {
                draw(path, row.work, works.len(), measured)?;
            }
            row.add(result);
            if runs == 1 {
                table::print_row(row);
            }
        }
        // Written after each run, in case a later one is interrupted.
        write_json(output.json, &table::json(&rows))?;
    }
    if runs > 1 {
        table::print_head();
        rows.iter().for_each(table::print_row);
    }
    table::print_verdicts(&rows);
    Ok(outcome(rows.iter()))
}

/// Runs loads on two servers alternately and prints their ratios.
pub(crate) fn compare(
    sources: &[Source; 2],
    works: &[&'static Work],
    plan: &Plan,
    runs: usize,
    output: Output<'_>,
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
        write_json(output.json, &compare::json(&pairs))?;
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

fn draw(path: &Path, work: &Work, works: usize, measured: &Measured) -> Result<()> {
    let Some(timeline) = &measured.timeline else { return Ok(()) };
    let path = plot_path(path, (works > 1).then_some(work.name));
    let svg = plot::svg(work.title, timeline)?;
    std::fs::write(&path, svg).with_context(|| path.display().to_string())
}

/// The path of the drawing of one load; with a name if there are several.
fn plot_path(path: &Path, name: Option<&str>) -> PathBuf {
    let Some(name) = name else { return path.to_owned() };
    let stem = path.file_stem().unwrap_or_default().to_string_lossy();
    path.with_file_name(format!("{stem}-{name}.svg"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn several_loads_have_a_file_each() {
        let path = Path::new("/tmp/a.svg");
        assert_eq!(plot_path(path, None), path);
        assert_eq!(plot_path(path, Some("find")), Path::new("/tmp/a-find.svg"));
    }
}
