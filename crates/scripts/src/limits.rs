//! Limits of scripts. A statement reads them from the server's parameters when it is parsed; a
//! change applies to later statements.

/// Limits of the scripts of a statement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ScriptLimits {
    /// Whether scripts are enabled.
    pub enabled: bool,
    /// Longest time of one call.
    pub timeout_ms: i64,
    /// Largest heap of one sandbox.
    pub heap_bytes: usize,
}

impl ScriptLimits {
    /// Scripts are disabled.
    pub const NONE: ScriptLimits = ScriptLimits { enabled: false, timeout_ms: 0, heap_bytes: 0 };
}

impl Default for ScriptLimits {
    fn default() -> ScriptLimits {
        ScriptLimits { enabled: true, timeout_ms: 60_000, heap_bytes: 100 << 20 }
    }
}
