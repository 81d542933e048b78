//! The table of figures: everything that this server measures of itself, one row each.
//!
//! A row ([`Figure`]) has a path in `serverStatus`, a name for metrics, a kind, a unit, a sentence
//! of help, and a function that reads it. `serverStatus` builds its sections from the rows, and
//! `docs/metrics.md` lists them. To add a figure, add a row to a file in `rows`.
//!
//! A path may have labels: `opcounters.{kind}` is one row for all kinds of operations, and its
//! function reads a point for each.
//!
//! ```text
//! place                      opcounters.{kind}
//! name                       mayflydb_operations_total
//! point                      kind="insert": 17
//! in serverStatus            { opcounters: { insert: 17, ... } }
//! ```
//!
//! [`Samples`] keeps the history of the figures, for plots.
//!
//! Rows are read through a [`Reading`], which reads each costly source once for all rows. Text and
//! other state that is not a number is not in the table; `serverStatus` adds it.

mod figure;
mod reading;
mod rows;
mod samples;
mod section;

pub use crate::counters::LatencyHistogram;
pub use figure::{Figure, FigureKind, Points, Representation, Unit};
pub use reading::Reading;
pub use rows::figures;
pub use samples::{
    LATENCY_QUANTILES, MAX_SERIES, MAX_SERIES_OF_A_ROW, STEP_MICROS, Samples, Series, Window,
};
pub use section::Section;
