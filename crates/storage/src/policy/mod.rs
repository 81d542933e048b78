//! Expiry policies as values: which values of `expireAfterSeconds` and `ttl` are accepted and what
//! they mean, how fast a policy may delete, and when a document expires by its last modification.
//!
//! All of it is pure functions, except for the check of the system clock ([`watch`]). This module
//! knows no index, no collection and no engine. The monitor, which applies the policies, is
//! [`crate::ttl`].

mod due;
mod options;
mod pace;
mod params;
mod runtime;
mod stats;
pub mod value;
pub(crate) mod watch;

pub(crate) use due::{OwnTtl, is_due_by_modification, last_modified_entries, own_ttl};
pub use options::{ArchiveFormat, ArchiveTarget, TtlOptions};
pub(crate) use pace::PaceLimits;
pub(crate) use params::BATCH_DOCS;
pub use params::{TtlIndexRules, TtlParameters};
pub use runtime::PolicyRuntime;
pub use stats::TtlStats;
pub use value::ExpireAfter;
pub use watch::Suspension;
