//! Records of operations: the audit log, backups, the profiler, and operations by query shape.

pub mod audit;
mod backups;
pub mod profiler;
mod shapes;

pub use audit::{Actor, Audit, AuditConfig, AuditOptions, AuditSink};
pub use backups::{
    ArchiveStatus, BackupOutcome, BackupParent, BackupRequest, BackupRunner, Backups, FailedBackup,
    RunningBackup,
};
pub use profiler::Profiler;
pub use shapes::{ShapeRun, ShapeStats, Shapes, Spread};
