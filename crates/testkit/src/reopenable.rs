//! An engine that outlives the store's close, so that a store over memory can be opened again.

use std::sync::Arc;

use mayfly_kv::{Engine, EngineWrapper, KvResult};

/// Forwards all calls except `close`.
pub struct Reopenable(pub Arc<dyn Engine>);

impl EngineWrapper for Reopenable {
    fn inner(&self) -> &dyn Engine {
        &*self.0
    }

    fn close(&self) -> KvResult<()> {
        Ok(())
    }
}
