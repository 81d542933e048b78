//! Counters of operations, documents and bytes, and latencies.

mod histogram;
pub mod metrics;
pub mod top;

pub use histogram::LatencyHistogram;
pub use metrics::Metrics;
pub use top::Top;
