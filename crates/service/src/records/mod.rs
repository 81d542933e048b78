//! Records of operations: the audit log and the profiler.

pub mod audit;
pub mod profiler;

pub use audit::{Actor, Audit, AuditConfig, AuditOptions, AuditSink};
pub use profiler::Profiler;
