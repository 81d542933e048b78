//! State that outlives a command: connections, sessions, parameters, fail points, metrics, the log
//! ring, the shutdown signal.
//!
//! A [`Service`] is one running server as commands see it. It knows neither opcodes nor commands.

mod clients;
mod counters;
mod documents;
mod follow;
pub mod observe;
pub mod parameters;
mod process;
mod records;
mod running;
pub mod search;
mod server;
mod sessions;
mod settings;

pub use clients::{
    Access, Authority, ClientCertificate, ClientInfo, Connection, ConnectionAccess, Connections,
    LoggedIn, OpenLogin, ServerCertificate, SessionId, SessionOwner, TransportSecurity, access,
};
pub use counters::{Metrics, Top, metrics, top};
pub use process::{
    Buffers, LARGE_BYTES, LogRing, LogRotation, Shutdown, Topology, UnderWay, machine, system,
    usage,
};
pub use records::{
    Actor, ArchiveStatus, Audit, AuditConfig, AuditOptions, AuditSink, BackupOutcome, BackupParent,
    BackupRequest, BackupRunner, Backups, CommandTrace, FailedBackup, Profiler, RunningBackup,
    ShapeRun, ShapeStats, Shapes, Spread, TraceParent, TraceTime, TracedPlan, Traces, audit,
    profiler,
};
pub use server::{CommandLine, Service, ServiceOptions};
pub use sessions::{
    Beginning, CheckedOut, CursorOwner, Cursors, IdleTime, OpenCursor, OpenTransactions, Sessions,
    TransactionCounts, TransactionInfo,
};
pub use settings::{
    AutoCompact, CLUSTER_PARAMETERS, ClusterParameter, ClusterParameters, Compaction,
    DefaultConcerns, Defaults, FailPoint, FailPoints, FeatureCompatibility, LogVerbosity, Member,
    MemoryParameters, QuerySetting, QuerySettings, ReplicaSet, Scripts, SetConfig, Settings,
    fail_points, index_build_bytes, limit_memory, query_settings, replica_set, sharding,
    usable_memory, write_block,
};
