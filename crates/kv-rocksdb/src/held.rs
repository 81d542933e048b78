//! A snapshot that transactions read after it was taken.

use std::sync::Arc;

use mayfly_kv::{HeldSnapshot, KvResult, Txn};

use crate::store::{Store, StoreSnapshot};
use crate::txn::RocksTxn;

/// A snapshot that many transactions read.
pub(crate) struct RocksHeld {
    store: Arc<Store>,
    snapshot: Arc<StoreSnapshot>,
}

impl RocksHeld {
    pub(crate) fn new(store: Arc<Store>) -> RocksHeld {
        let snapshot = Arc::new(StoreSnapshot::new(Arc::clone(&store)));
        RocksHeld { store, snapshot }
    }
}

impl HeldSnapshot for RocksHeld {
    fn begin(&self) -> KvResult<Box<dyn Txn>> {
        Ok(Box::new(RocksTxn::over(Arc::clone(&self.store), Arc::clone(&self.snapshot))))
    }
}
