//! The series of one row of the table: one for each combination of labels.

use super::axis::Step;
use super::{COARSE_POINTS, FINE_POINTS, MAX_SERIES, MAX_SERIES_OF_A_ROW, Series};
use crate::observe::figure::{Figure, FigureKind};

/// A series can be replaced when it had no value for this time.
const REPLACEABLE_MICROS: i64 = 60_000_000;

/// The series of a figure.
pub(super) struct Row {
    name: &'static str,
    label_names: Vec<&'static str>,
    kind: FigureKind,
    tracks: Vec<Track>,
    /// The number of values in this step.
    values: usize,
}

/// One series on both axes.
struct Track {
    labels: Vec<String>,
    fine: Box<[f32]>,
    coarse: Box<[f32]>,
    /// A counter's value at the latest point.
    latest: Option<f64>,
    /// A counter's value at the previous point of the coarse axis.
    coarse_base: Option<f64>,
    /// The sum and the number of a gauge's values since then.
    sum: f64,
    count: u32,
    /// When it last was among the first values of its row.
    seen: i64,
}

impl Row {
    pub(super) fn of(figure: &'static Figure) -> Row {
        Row::new(figure.name, figure.labels().collect(), figure.kind)
    }

    pub(super) fn new(name: &'static str, label_names: Vec<&'static str>, kind: FigureKind) -> Row {
        Row { name, label_names, kind, tracks: Vec::new(), values: 0 }
    }

    pub(super) fn name(&self) -> &'static str {
        self.name
    }

    /// The number of series.
    pub(super) fn len(&self) -> usize {
        self.tracks.len()
    }

    /// The memory of the series.
    pub(super) fn bytes(&self) -> usize {
        self.tracks.iter().map(Track::bytes).sum()
    }

    /// Begins a point of the fine axis: no series has a value yet.
    pub(super) fn begin(&mut self, step: Step) {
        self.values = 0;
        self.tracks.iter_mut().for_each(|track| track.fine[step.slot] = f32::NAN);
    }

    /// Adds a value. `count` is the number of series of all rows.
    pub(super) fn put(&mut self, labels: &[&str], value: f64, step: Step, count: &mut usize) {
        let is_among_first = self.values < MAX_SERIES_OF_A_ROW;
        // Rows usually read their labels in the same order.
        let is_it = |track: &Track| track.has(labels);
        let known = match self.tracks.get(self.values).is_some_and(is_it) {
            true => Some(self.values),
            false => self.tracks.iter().position(is_it),
        };
        self.values += 1;
        let Some(at) = known.or_else(|| self.add(labels, step.now, is_among_first, count)) else {
            return;
        };
        let track = &mut self.tracks[at];
        if is_among_first {
            track.seen = step.now;
        }
        track.put(self.kind, value, step);
    }

    /// Adds a series, or replaces one that has had no value for some time.
    fn add(
        &mut self,
        labels: &[&str],
        now: i64,
        is_among_first: bool,
        count: &mut usize,
    ) -> Option<usize> {
        if !is_among_first {
            return None;
        }
        if self.tracks.len() < MAX_SERIES_OF_A_ROW && *count < MAX_SERIES {
            *count += 1;
            self.tracks.push(Track::new(labels));
            return Some(self.tracks.len() - 1);
        }
        let oldest = self.tracks.iter().enumerate().min_by_key(|(_, track)| track.seen);
        let (at, _) = oldest.filter(|(_, track)| now - track.seen >= REPLACEABLE_MICROS)?;
        self.tracks[at] = Track::new(labels);
        Some(at)
    }

    /// Adds a point of the coarse axis to all series.
    pub(super) fn put_coarse(&mut self, step: Step) {
        self.tracks.iter_mut().for_each(|track| track.put_coarse(self.kind, step));
    }

    /// Replaces the value of the latest point of the coarse axis.
    pub(super) fn replace_coarse(&mut self, labels: &[&str], value: f64, step: Step) {
        if let Some(track) = self.tracks.iter_mut().find(|track| track.has(labels)) {
            track.coarse[step.slot] = value as f32;
        }
    }

    pub(super) fn fine_series(&self, slots: &[usize]) -> Vec<Series> {
        self.series(slots, |track| &track.fine)
    }

    pub(super) fn coarse_series(&self, slots: &[usize]) -> Vec<Series> {
        self.series(slots, |track| &track.coarse)
    }

    /// The series that have a value in these slots, ascending by labels.
    fn series(&self, slots: &[usize], points: fn(&Track) -> &[f32]) -> Vec<Series> {
        let mut tracks: Vec<&Track> = self.tracks.iter().collect();
        tracks.sort_by(|a, b| a.labels.cmp(&b.labels));
        let series = tracks.into_iter().map(|track| Series {
            name: self.name,
            labels: self.label_names.iter().copied().zip(track.labels.iter().cloned()).collect(),
            kind: self.kind,
            values: slots.iter().map(|slot| points(track)[*slot]).collect(),
        });
        series.filter(|series| series.values.iter().any(|value| !value.is_nan())).collect()
    }
}

impl Track {
    fn new(labels: &[&str]) -> Track {
        Track {
            labels: labels.iter().map(|label| (*label).to_owned()).collect(),
            fine: vec![f32::NAN; FINE_POINTS].into(),
            coarse: vec![f32::NAN; COARSE_POINTS].into(),
            latest: None,
            coarse_base: None,
            sum: 0.0,
            count: 0,
            seen: 0,
        }
    }

    fn has(&self, labels: &[&str]) -> bool {
        self.labels.iter().map(String::as_str).eq(labels.iter().copied())
    }

    fn bytes(&self) -> usize {
        let labels: usize = self.labels.iter().map(|label| size_of::<String>() + label.len()).sum();
        size_of::<Track>() + labels + size_of_val(&*self.fine) + size_of_val(&*self.coarse)
    }

    fn put(&mut self, kind: FigureKind, value: f64, step: Step) {
        match kind {
            FigureKind::Counter => {
                self.fine[step.slot] = rate(self.latest, value, step);
                self.latest = Some(value);
                self.coarse_base = self.coarse_base.or(Some(value));
            }
            FigureKind::Gauge | FigureKind::Expected => {
                self.fine[step.slot] = value as f32;
                self.sum += value;
                self.count += 1;
            }
        }
    }

    fn put_coarse(&mut self, kind: FigureKind, step: Step) {
        self.coarse[step.slot] = match (kind, self.latest) {
            (FigureKind::Counter, Some(latest)) => rate(self.coarse_base, latest, step),
            (FigureKind::Counter, None) => f32::NAN,
            _ if self.count == 0 => f32::NAN,
            _ => (self.sum / f64::from(self.count)) as f32,
        };
        self.coarse_base = self.latest;
        (self.sum, self.count) = (0.0, 0);
    }
}

/// The increase of a counter per second. A counter that decreased began again, so its rate is not
/// known.
fn rate(before: Option<f64>, value: f64, step: Step) -> f32 {
    match before {
        Some(before) if value >= before && step.elapsed_secs > 0.0 => {
            ((value - before) / step.elapsed_secs) as f32
        }
        _ => f32::NAN,
    }
}
