//! How much memory operators may use.

use std::path::PathBuf;

use mayfly_base::limits;

/// How much memory a blocking operator may use, and where to go on beyond it.
#[derive(Clone, Debug)]
pub(crate) struct Memory {
    /// So many bytes.
    pub(crate) bytes: usize,
    /// Nothing: it fails there.
    pub(crate) folder: Option<PathBuf>,
}

impl Default for Memory {
    fn default() -> Memory {
        Memory { bytes: limits::MAX_BLOCKING_MEMORY_BYTES, folder: None }
    }
}
