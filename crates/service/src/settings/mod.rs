//! Settings of administrators: values of parameters, and documents of `config` that apply to every
//! command.

mod auto_compact;
mod cluster_parameters;
mod defaults;
pub mod fail_points;
mod feature_compatibility;
mod log_verbosity;
mod memory;
pub mod query_settings;
pub mod replica_set;
pub mod sharding;
mod stored;
mod values;
pub mod write_block;

pub use auto_compact::{AutoCompact, Compaction};
pub use cluster_parameters::{CLUSTER_PARAMETERS, ClusterParameter, ClusterParameters};
pub use defaults::{DefaultConcerns, Defaults};
pub use fail_points::{FailPoint, FailPoints};
pub use feature_compatibility::FeatureCompatibility;
pub use log_verbosity::LogVerbosity;
pub use memory::{MemoryParameters, index_build_bytes, limit_memory, usable_memory};
pub(crate) use memory::{process_limit_mb, set_process_limit_mb};
pub use query_settings::{QuerySetting, QuerySettings};
pub use replica_set::{Member, ReplicaSet, SetConfig};
pub(crate) use stored::{put, read};
pub use values::{Scripts, Settings};
