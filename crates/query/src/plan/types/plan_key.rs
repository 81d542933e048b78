//! The key of an entry in the plan cache. `candidates/plan_key.rs` computes it.

use std::fmt;

/// The key of an entry in the plan cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct PlanKey(pub(crate) u64);

impl PlanKey {
    /// The half of the hash that is displayed.
    pub(crate) fn digits(self) -> u32 {
        (self.0 >> 32) as u32
    }
}

/// Formats the key as eight hexadecimal digits, as `planCacheKey` shows it.
impl fmt::Display for PlanKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:08X}", self.digits())
    }
}
