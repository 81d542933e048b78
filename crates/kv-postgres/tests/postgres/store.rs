//! Stores on the server that the tests share.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use mayfly_kv_postgres::{PostgresEngine, PostgresOptions};
pub(crate) use mayfly_testkit::PostgresServer as Server;
pub(crate) use mayfly_testkit::shared_postgres as shared;

/// Options with a schema that no other store has.
pub(crate) fn fresh() -> PostgresOptions {
    static COUNT: AtomicU32 = AtomicU32::new(0);
    PostgresOptions {
        schema: format!("store_{}", COUNT.fetch_add(1, Ordering::Relaxed)),
        connections: 80,
        held_snapshots: 70,
        ..PostgresOptions::default()
    }
}

/// An empty store on the shared server.
pub(crate) fn open() -> Arc<PostgresEngine> {
    PostgresEngine::open(&shared().url(), fresh()).unwrap()
}
