//! Records of operations: the audit log, backups, and the profiler.

pub mod audit;
mod backups;
pub mod profiler;

pub use audit::{Actor, Audit, AuditConfig, AuditOptions, AuditSink};
pub use backups::{
    ArchiveStatus, BackupOutcome, BackupParent, BackupRequest, BackupRunner, Backups, FailedBackup,
    RunningBackup,
};
pub use profiler::Profiler;
