//! A row of the table of figures.

use super::reading::Reading;

/// How a figure changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FigureKind {
    /// It increases from the start of the server.
    Counter,
    /// It goes up and down.
    Gauge,
    /// A field of `serverStatus` that clients of the reference expect and that is not a metric: it
    /// is always zero, or repeats another figure.
    Expected,
}

/// The unit in which a figure is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    /// A number of things.
    Count,
    /// Bytes.
    Bytes,
    /// Microseconds.
    Micros,
    /// Milliseconds.
    Millis,
    /// 0 or 1.
    Flag,
}

impl Unit {
    /// The suffix of a metric's name for its base unit; empty for counts.
    pub fn base(self) -> &'static str {
        match self {
            Unit::Count | Unit::Flag => "",
            Unit::Bytes => "bytes",
            Unit::Micros | Unit::Millis => "seconds",
        }
    }

    /// Converts a value to the base unit.
    pub fn in_base(self, value: i64) -> f64 {
        match self {
            Unit::Count | Unit::Bytes | Unit::Flag => value as f64,
            Unit::Micros => value as f64 / 1e6,
            Unit::Millis => value as f64 / 1e3,
        }
    }
}

/// The representation of a figure in `serverStatus`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Representation {
    /// As an int64.
    Long,
    /// As an int32, at most the largest one.
    Int,
    /// As a boolean.
    Bool,
    /// Divided by 1,000, as an int64.
    Thousandth,
    /// Milliseconds as seconds with a fraction of zero, as a double.
    WholeSeconds,
    /// Milliseconds as hours, as a double.
    Hours,
    /// Bytes as mebibytes, as an int32.
    Mebibytes,
}

/// How a figure is read: one point, or one for each combination of labels.
#[derive(Clone, Copy)]
enum Read {
    One(fn(&Reading<'_>) -> i64),
    Each(fn(&Reading<'_>, &mut Points<'_>)),
}

/// One figure, or one for each combination of its labels.
#[derive(Clone, Copy)]
pub struct Figure {
    /// Its path in `serverStatus`, with labels in braces.
    pub place: &'static str,
    /// Its name as a metric; empty for [`FigureKind::Expected`].
    pub name: &'static str,
    /// How it changes.
    pub kind: FigureKind,
    /// The unit in which it is read.
    pub unit: Unit,
    /// Its representation in `serverStatus`.
    pub shown: Representation,
    /// Its description; for [`FigureKind::Expected`], why it is not a metric.
    pub help: &'static str,
    /// Whether samples keep its history.
    history: bool,
    read: Read,
}

/// Receives the points of a figure: the values of its labels, in their order, and a number.
pub struct Points<'t> {
    take: &'t mut dyn FnMut(&[&str], i64),
}

impl Points<'_> {
    /// Adds a point.
    pub fn add(&mut self, labels: &[&str], value: i64) {
        (self.take)(labels, value);
    }
}

impl Figure {
    /// The names of its labels, in the order of its path.
    pub fn labels(&self) -> impl Iterator<Item = &'static str> {
        self.place.split('.').filter_map(label)
    }

    /// Whether `serverStatus` has it. Figures of policies are in the reply of `ttlStatus` instead.
    pub fn is_in_server_status(&self) -> bool {
        !self.place.starts_with("ttlStatus.")
    }

    /// Whether samples keep its history: all metrics, except those with very many labels.
    pub fn has_history(&self) -> bool {
        self.history && self.kind != FigureKind::Expected
    }

    /// Whether this is its path in `serverStatus`; any value matches a label.
    pub fn is_at<'p>(&self, place: impl IntoIterator<Item = &'p str>) -> bool {
        let mut steps = self.place.split('.');
        let all_match = place
            .into_iter()
            .all(|name| steps.next().is_some_and(|step| label(step).is_some() || step == name));
        all_match && steps.next().is_none()
    }

    /// Reads the points.
    pub fn read(&self, reading: &Reading<'_>, take: &mut dyn FnMut(&[&str], i64)) {
        match self.read {
            Read::One(read) => take(&[], read(reading)),
            Read::Each(read) => read(reading, &mut Points { take }),
        }
    }
}

/// The label that a step of a path stands for.
pub(super) fn label(step: &str) -> Option<&str> {
    step.strip_prefix('{')?.strip_suffix('}')
}

/// A row without its function.
pub(super) struct Draft(Figure);

const fn draft(
    place: &'static str,
    name: &'static str,
    kind: FigureKind,
    help: &'static str,
) -> Draft {
    let (unit, shown, read) = (Unit::Count, Representation::Long, Read::One(|_| 0));
    Draft(Figure { place, name, kind, unit, shown, help, history: true, read })
}

/// A row of a counter.
pub(super) const fn counter(place: &'static str, name: &'static str, help: &'static str) -> Draft {
    draft(place, name, FigureKind::Counter, help)
}

/// A row of a gauge.
pub(super) const fn gauge(place: &'static str, name: &'static str, help: &'static str) -> Draft {
    draft(place, name, FigureKind::Gauge, help)
}

/// A row of a field that clients of the reference expect, and why it is not a metric.
pub(super) const fn expected(place: &'static str, why: &'static str) -> Draft {
    draft(place, "", FigureKind::Expected, why)
}

impl Draft {
    pub(super) const fn unit(self, unit: Unit) -> Draft {
        Draft(Figure { unit, ..self.0 })
    }

    pub(super) const fn shown(self, shown: Representation) -> Draft {
        Draft(Figure { shown, ..self.0 })
    }

    /// Samples do not keep its history.
    pub(super) const fn without_history(self) -> Draft {
        Draft(Figure { history: false, ..self.0 })
    }

    /// Represented as an int32.
    pub(super) const fn int(self) -> Draft {
        self.shown(Representation::Int)
    }

    /// Read in bytes.
    pub(super) const fn bytes(self) -> Draft {
        self.unit(Unit::Bytes)
    }

    /// Read in microseconds.
    pub(super) const fn micros(self) -> Draft {
        self.unit(Unit::Micros)
    }

    /// Completes the row of a figure without labels.
    pub(super) const fn read(self, read: fn(&Reading<'_>) -> i64) -> Figure {
        Figure { read: Read::One(read), ..self.0 }
    }

    /// Completes the row of a figure that has labels or may be missing.
    pub(super) const fn each(self, read: fn(&Reading<'_>, &mut Points<'_>)) -> Figure {
        Figure { read: Read::Each(read), ..self.0 }
    }

    /// Completes the row of a figure that is always zero.
    pub(super) const fn zero(self) -> Figure {
        self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_has_labels() {
        let row = counter("a.{b}.c.{d}", "mayflydb_a_total", "A.").zero();
        assert_eq!(row.labels().collect::<Vec<_>>(), ["b", "d"]);
        assert!(row.is_at(["a", "x.1", "c", "y"]));
        for other in [&["a", "x", "c"][..], &["a", "x", "z", "y"], &["a", "x", "c", "y", "z"]] {
            assert!(!row.is_at(other.iter().copied()), "{other:?}");
        }
    }

    #[test]
    fn metrics_have_base_units() {
        assert_eq!(Unit::Micros.in_base(1_500_000), 1.5);
        assert_eq!(Unit::Millis.in_base(250), 0.25);
        assert_eq!((Unit::Bytes.in_base(7), Unit::Bytes.base()), (7.0, "bytes"));
    }
}
