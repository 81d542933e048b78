//! Records of operations: the audit log, backups, the profiler, operations by query shape, traces.

pub mod audit;
mod backups;
pub mod profiler;
mod shapes;
mod traces;

pub use audit::{Actor, Audit, AuditConfig, AuditOptions, AuditSink};
pub use backups::{
    ArchiveStatus, BackupOutcome, BackupParent, BackupRequest, BackupRunner, Backups, FailedBackup,
    RunningBackup,
};
pub use profiler::Profiler;
pub use shapes::{ShapeRun, ShapeStats, Shapes, Spread};
pub use traces::{CommandTrace, TraceParent, TraceTime, TracedPlan, Traces};
