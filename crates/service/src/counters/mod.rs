//! Counters of operations, documents and bytes, and latencies.

mod histogram;
pub mod metrics;
mod policies;
pub mod top;

pub use histogram::LatencyHistogram;
pub use metrics::Metrics;
pub(crate) use policies::{DUE_LIMIT, PolicyFigure, PolicyFigures};
pub use top::Top;
