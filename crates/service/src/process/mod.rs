//! What the process has: its machine, its log, pools for messages, and the signals that everything waits for.

mod buffers;
mod log_ring;
pub mod machine;
mod shutdown;
mod topology;
pub mod usage;

pub use buffers::{Buffers, LARGE_BYTES, UnderWay};
pub use log_ring::{LogRing, LogRotation};
pub use shutdown::Shutdown;
pub use topology::Topology;
