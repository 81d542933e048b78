//! What is counted: operations, documents, bytes, latencies.

mod histogram;
pub mod metrics;
pub mod top;

pub use metrics::Metrics;
pub use top::Top;
