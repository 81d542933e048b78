//! The runs of one load: medians, ranges and verdicts.

use serde_json::{Map, Value, json};

use crate::budget::Verdict;
use crate::figures::{Figure, Measured};
use crate::statistics::Range;
use crate::work::Work;

/// A load with the figures of each run.
pub(crate) struct Series {
    pub(crate) work: &'static Work,
    runs: Vec<Vec<Figure>>,
    pub(crate) errors: Vec<String>,
}

impl Series {
    /// A series without runs.
    pub(crate) fn new(work: &'static Work) -> Series {
        Series { work, runs: Vec::new(), errors: Vec::new() }
    }

    /// Adds a run.
    pub(crate) fn add(&mut self, result: anyhow::Result<Measured>) {
        match result {
            Ok(measured) => self.runs.push(measured.figures),
            Err(error) => {
                self.runs.push(Vec::new());
                self.errors.push(format!("{error:#}"));
            }
        }
    }

    /// The values of a figure, by run.
    pub(crate) fn values(&self, name: &str) -> Vec<Option<f64>> {
        let value = |run: &Vec<Figure>| Some(run.iter().find(|f| f.name == name)?.value);
        self.runs.iter().map(value).collect()
    }

    /// Median and extremes of a figure.
    pub(crate) fn range(&self, name: &str) -> Option<Range> {
        Range::of(self.values(name).into_iter().flatten())
    }

    /// The median of a figure.
    pub(crate) fn median(&self, name: &str) -> Option<f64> {
        self.range(name).map(|range| range.median)
    }

    /// The names and units of all figures that any run has, in their order.
    pub(crate) fn names(&self) -> Vec<(&'static str, &'static str)> {
        let mut names = Vec::new();
        for figure in self.runs.iter().flatten() {
            if !names.contains(&(figure.name, figure.unit)) {
                names.push((figure.name, figure.unit));
            }
        }
        names
    }

    /// Whether it meets its budgets; `None` without budgets. A failed run meets none.
    pub(crate) fn verdict(&self) -> Option<Verdict> {
        let verdicts = self.work.budgets.iter().map(|budget| match self.errors.is_empty() {
            true => budget.verdict(self.median(budget.figure)),
            false => Verdict::Unknown,
        });
        Verdict::all(verdicts)
    }

    /// All runs as JSON.
    pub(crate) fn json(&self) -> Value {
        let mut figures = Map::new();
        for (name, unit) in self.names() {
            let Some(range) = self.range(name) else { continue };
            let figure = json!({
                "unit": unit,
                "median": range.median,
                "min": range.min,
                "max": range.max,
                "runs": self.values(name),
            });
            figures.insert(name.to_owned(), figure);
        }
        let budgets = self.work.budgets.iter().map(|budget| {
            json!({
                "figure": budget.figure,
                "bound": budget.sign(),
                "limit": budget.limit,
                "unit": budget.unit,
                "verdict": budget.verdict(self.median(budget.figure)).to_string(),
            })
        });
        json!({
            "name": self.work.name,
            "work": self.work.title,
            "figures": figures,
            "budgets": budgets.collect::<Vec<_>>(),
            "verdict": self.verdict().map(|verdict| verdict.to_string()),
            "errors": self.errors,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::figures::SERVER;

    fn series(values: &[f64]) -> Series {
        let work = crate::work::named("find").unwrap();
        let mut series = Series::new(work);
        for value in values {
            let mut measured = Measured::default();
            measured.set(SERVER, *value, "us");
            series.add(Ok(measured));
        }
        series
    }

    #[test]
    fn the_median_decides_and_a_failure_leaves_it_open() {
        let mut good = series(&[10.0, 90.0, 11.0]);
        assert_eq!(good.verdict(), Some(Verdict::Met));
        assert_eq!(good.json()["figures"][SERVER]["max"], 90.0);
        assert_eq!(series(&[90.0, 91.0, 1.0]).verdict(), Some(Verdict::NotMet));
        good.add(Err(anyhow::anyhow!("no answer")));
        assert_eq!(good.verdict(), Some(Verdict::Unknown));
        assert_eq!(good.json()["errors"][0], "no answer");
    }
}
