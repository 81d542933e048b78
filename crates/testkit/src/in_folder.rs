//! An engine in a temporary folder, which is removed after the engine has ended.

use std::sync::Arc;

use mayfly_kv::{Engine, EngineWrapper};
use tempfile::TempDir;

/// Keeps the folder of an engine while it is open: an engine writes files until its last owner has
/// dropped it, and a folder in which files appear cannot be removed.
pub struct InFolder {
    // Dropped first.
    engine: Arc<dyn Engine>,
    _folder: Arc<TempDir>,
}

impl InFolder {
    /// An engine in this folder.
    pub fn new(engine: Arc<dyn Engine>, folder: Arc<TempDir>) -> InFolder {
        InFolder { engine, _folder: folder }
    }
}

impl EngineWrapper for InFolder {
    fn inner(&self) -> &dyn Engine {
        &*self.engine
    }
}
