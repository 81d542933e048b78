//! What outlives a command: connections, sessions, parameters, fail points, metrics, the log ring, the shutdown signal.
//!
//! A [`Service`] is one running server as commands see it. It knows neither opcodes nor commands.

pub mod access;
pub mod audit;
mod buffers;
pub mod connections;
pub mod cursors;
pub mod defaults;
pub mod fail_points;
mod histogram;
pub mod log_ring;
pub mod machine;
pub mod metrics;
mod own_documents;
pub mod parameters;
pub mod profiler;
pub mod query_settings;
pub mod replica_set;
mod service;
mod session_id;
mod sessions;
mod shutdown;
pub mod top;
mod topology;
mod transactions;
pub mod write_block;

pub use access::{
    Access, Authority, ClientCertificate, ConnectionAccess, LoggedIn, OpenLogin, ServerCertificate,
    TransportSecurity,
};
pub use audit::{Actor, Audit, AuditConfig, AuditOptions, AuditSink};
pub use buffers::{Buffers, LARGE_BYTES, UnderWay};
pub use connections::{ClientInfo, Connection, Connections};
pub use cursors::{CursorOwner, Cursors};
pub use defaults::{DefaultConcerns, Defaults};
pub use fail_points::{FailPoint, FailPoints};
pub use log_ring::{LogRing, LogRotation};
pub use metrics::Metrics;
pub use profiler::Profiler;
pub use query_settings::{QuerySetting, QuerySettings};
pub use replica_set::{ReplicaSet, SetConfig};
pub use service::{CommandLine, Service, ServiceOptions};
pub use session_id::{SessionId, SessionOwner};
pub use sessions::{CheckedOut, Sessions};
pub use shutdown::Shutdown;
pub use top::Top;
pub use topology::Topology;
pub use transactions::{Beginning, OpenTransactions, ShownTransaction, TransactionCounts};
