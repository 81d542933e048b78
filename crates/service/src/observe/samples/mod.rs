//! Samples: the history of the figures, for plots.
//!
//! A server that shows plots calls [`Samples::record`] every [`STEP_MICROS`]. Each call adds a
//! point to the series of every figure: for a gauge its value, for a counter its increase per
//! second. There are two axes of time:
//!
//! ```text
//! axis     step    keeps    a point is
//! fine     2 s     1 hour   the value, or the rate since the previous point
//! coarse   5 min   1 week   the mean of the fine values, or the rate since the previous point
//! ```
//!
//! In addition to the rows of the table, there are quantiles of latencies
//! ([`LATENCY_QUANTILES`]), computed from the operations since the previous point.
//!
//! Memory is limited: a series takes 15 KB, and there are at most [`MAX_SERIES`], less than 8 MB
//! together. A row with labels has at most [`MAX_SERIES_OF_A_ROW`] series, those that it reads
//! first. A new series replaces one of its row that has had no value for a minute.
//!
//! The axes are in monotonic time, so that a changed wall clock does not reorder points.
//! [`Samples::series`] converts their times by the wall clock of the latest point.

mod axis;
mod row;

#[cfg(test)]
mod tests;

use parking_lot::Mutex;

use super::figure::{Figure, FigureKind};
use super::reading::Reading;
use super::rows::figures;
use crate::counters::LatencyHistogram;
use axis::Axis;
use row::Row;

/// The time between two calls of [`Samples::record`].
pub const STEP_MICROS: i64 = 2_000_000;
/// The largest number of series.
pub const MAX_SERIES: usize = 500;
/// The largest number of series of one row.
pub const MAX_SERIES_OF_A_ROW: usize = 64;

/// The name of the quantiles of latencies, in seconds. Labels: `kind` is `reads`, `writes` or
/// `commands`, `quantile` is `0.5`, `0.99` or `0.999`. There is no point for a step without
/// operations.
pub const LATENCY_QUANTILES: &str = "mayflydb_operation_latency_seconds";

const QUANTILES: [(&str, f64); 3] = [("0.5", 0.5), ("0.99", 0.99), ("0.999", 0.999)];
/// The step of the coarse axis.
const COARSE_MICROS: i64 = 300_000_000;
/// The points of the fine axis: one hour.
const FINE_POINTS: usize = 1800;
/// The points of the coarse axis: one week.
const COARSE_POINTS: usize = 2016;
/// The span of the fine axis.
const FINE_MS: i64 = 3_600_000;

/// The history of all figures of a server.
pub struct Samples(Mutex<State>);

/// Series over a span of time.
#[derive(Clone, Debug, Default)]
pub struct Window {
    /// The usual time between two points, in milliseconds.
    pub step_ms: i64,
    /// The times of the points in milliseconds since 1970, ascending.
    pub times: Vec<i64>,
    /// The series by name in the order of the rows, and those of one name ascending by labels.
    pub series: Vec<Series>,
}

/// One series of a [`Window`].
#[derive(Clone, Debug)]
pub struct Series {
    /// The name of the figure as a metric.
    pub name: &'static str,
    /// The names of its labels and their values.
    pub labels: Vec<(&'static str, String)>,
    /// For a counter, the values are increases per second.
    pub kind: FigureKind,
    /// Values in base units (bytes, seconds), one for each time of the window; NaN for no value.
    pub values: Vec<f32>,
}

struct State {
    fine: Axis,
    coarse: Axis,
    /// The rows of the table that have a history, then that of the quantiles.
    rows: Vec<Row>,
    quantiles: Row,
    /// Latencies by kind at the previous point of the fine and of the coarse axis.
    latencies: [[LatencyHistogram; 3]; 2],
    /// The wall clock at the latest point, in milliseconds since 1970.
    wall_ms: i64,
}

impl Default for Samples {
    fn default() -> Samples {
        let quantiles = Row::new(LATENCY_QUANTILES, vec!["kind", "quantile"], FigureKind::Gauge);
        Samples(Mutex::new(State {
            fine: Axis::new(FINE_POINTS),
            coarse: Axis::new(COARSE_POINTS),
            rows: sampled().map(Row::of).collect(),
            quantiles,
            latencies: Default::default(),
            wall_ms: 0,
        }))
    }
}

/// The rows of the table that have a history.
fn sampled() -> impl Iterator<Item = &'static Figure> {
    figures().filter(|row| row.has_history())
}

impl Samples {
    /// Adds a point of all figures. Call it every [`STEP_MICROS`], from a background thread.
    pub fn record(&self, reading: &Reading<'_>) {
        self.0.lock().record(reading);
    }

    /// The series of these figures between two times, in milliseconds since 1970 and inclusive. No
    /// names mean all figures; unknown names are ignored. The coarse axis is used only if
    /// `since_ms` is before the points of the fine one.
    pub fn series(&self, names: &[&str], since_ms: i64, until_ms: i64) -> Window {
        self.0.lock().series(names, since_ms, until_ms)
    }

    /// The number of series and the memory of their points in bytes.
    pub fn size(&self) -> (usize, usize) {
        let state = self.0.lock();
        let rows = state.all_rows();
        rows.fold((0, 0), |(count, bytes), row| (count + row.len(), bytes + row.bytes()))
    }
}

impl State {
    fn all_rows(&self) -> impl Iterator<Item = &Row> {
        self.rows.iter().chain([&self.quantiles])
    }

    fn record(&mut self, reading: &Reading<'_>) {
        let now = reading.service.clock.monotonic_micros();
        self.wall_ms = reading.service.clock.now_ms();
        if self.fine.is_empty() {
            self.coarse.start(now);
        }
        let step = self.fine.advance(now);
        let mut count = self.all_rows().map(Row::len).sum();
        for (row, figure) in self.rows.iter_mut().zip(sampled()) {
            row.begin(step);
            figure.read(reading, &mut |labels, value| {
                row.put(labels, figure.unit.in_base(value), step, &mut count);
            });
        }
        let top = &reading.service.top;
        let latencies = [&top.reads, &top.writes, &top.commands].map(|it| it.histogram());
        self.quantiles.begin(step);
        each_quantile(&latencies, &self.latencies[0], |labels, value| {
            self.quantiles.put(labels, value, step, &mut count);
        });
        if now - self.coarse.latest() >= COARSE_MICROS {
            let step = self.coarse.advance(now);
            self.rows.iter_mut().for_each(|row| row.put_coarse(step));
            self.quantiles.put_coarse(step);
            each_quantile(&latencies, &self.latencies[1], |labels, value| {
                self.quantiles.replace_coarse(labels, value, step);
            });
            self.latencies[1] = latencies.clone();
        }
        self.latencies[0] = latencies;
    }

    fn series(&self, names: &[&str], since_ms: i64, until_ms: i64) -> Window {
        let uses_fine = !self.fine.is_full() || since_ms >= self.wall_ms - FINE_MS;
        let (axis, step_micros) = match uses_fine {
            true => (&self.fine, STEP_MICROS),
            false => (&self.coarse, COARSE_MICROS),
        };
        let to_wall = |micros: i64| self.wall_ms - (self.fine.latest() - micros) / 1000;
        let points: Vec<(i64, usize)> = axis
            .points()
            .map(|(micros, slot)| (to_wall(micros), slot))
            .filter(|(time, _)| (since_ms..=until_ms).contains(time))
            .collect();
        let slots: Vec<usize> = points.iter().map(|(_, slot)| *slot).collect();
        let wanted = |row: &&Row| names.is_empty() || names.contains(&row.name());
        let series = self.all_rows().filter(wanted).flat_map(|row| match uses_fine {
            true => row.fine_series(&slots),
            false => row.coarse_series(&slots),
        });
        let series = series.collect();
        let times = points.into_iter().map(|(time, _)| time).collect();
        Window { step_ms: step_micros / 1000, times, series }
    }
}

/// Calls `put` for each quantile of the operations between two histograms of each kind.
fn each_quantile(
    now: &[LatencyHistogram; 3],
    before: &[LatencyHistogram; 3],
    mut put: impl FnMut(&[&str], f64),
) {
    for ((kind, now), before) in ["reads", "writes", "commands"].iter().zip(now).zip(before) {
        let added = now.since(before);
        for (label, part) in QUANTILES {
            if let Some(micros) = added.quantile(part) {
                put(&[kind, label], micros / 1e6);
            }
        }
    }
}
