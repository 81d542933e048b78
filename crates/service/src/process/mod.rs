//! The process: its machine, its log ring, memory for messages, and the signals of shutdown and of
//! topology changes.

mod buffers;
mod log_ring;
pub mod machine;
mod shutdown;
pub mod system;
mod topology;
pub mod usage;

pub use buffers::{Buffers, LARGE_BYTES, UnderWay};
pub use log_ring::{LogRing, LogRotation};
pub use shutdown::Shutdown;
pub use topology::Topology;
