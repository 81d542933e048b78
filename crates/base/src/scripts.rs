//! What scripts may take.

/// What the scripts of a statement may take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ScriptLimits {
    /// Whether there are scripts at all.
    pub enabled: bool,
    /// One call may take this long.
    pub timeout_ms: i64,
    /// A script's values may take this much memory.
    pub heap_bytes: usize,
}

impl ScriptLimits {
    /// There are no scripts.
    pub const NONE: ScriptLimits = ScriptLimits { enabled: false, timeout_ms: 0, heap_bytes: 0 };
}

impl Default for ScriptLimits {
    fn default() -> ScriptLimits {
        ScriptLimits { enabled: true, timeout_ms: 60_000, heap_bytes: 100 << 20 }
    }
}
