//! The table of figures: what this server measures of itself, one row each.
//!
//! A row ([`Figure`]) has a place in `serverStatus`, a name for metrics, a kind, a unit, a sentence of help, and a function that
//! reads it. `serverStatus` builds its sections from the rows, and `docs/metrics.md` lists them. To add a figure, add a row to a
//! file in `rows`.
//!
//! A place may have labels: `opcounters.{kind}` is one row for all kinds of operations, whose function reads a point for each.
//!
//! ```text
//! place                      opcounters.{kind}
//! name                       mayflydb_operations_total
//! point                      kind="insert": 17
//! in serverStatus            { opcounters: { insert: 17, ... } }
//! ```
//!
//! Rows are read through a [`Reading`], which asks each costly source once however many rows need it. Text and state that has no
//! number of its own is not in the table; `serverStatus` adds it.

mod figure;
mod reading;
mod rows;
mod section;

pub use figure::{Figure, FigureKind, Points, Shown, Unit};
pub use reading::Reading;
pub use rows::figures;
pub use section::Section;
