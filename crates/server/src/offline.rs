//! Opening a data folder without a server, for `mayflydb check`, `restore` and `copy`.

use std::path::Path;
use std::sync::Arc;

use anyhow::anyhow;
use mayfly_base::Clock;
use mayfly_kv::Engine;
use mayfly_kv_rocksdb::{OlderFormat, OpenError, RocksEngine, RocksOptions};
use mayfly_query::PartialFilters;
use mayfly_storage::{CatalogMarks, Store, StoreOptions};
use mayfly_work::OpRegistry;

/// Memory for the store.
const CACHE_BYTES: usize = 32 << 20;

/// Opens the engine of a folder. Nothing is kept free on its disk.
///
/// # Errors
/// Errors of the folder and of its files.
pub(crate) fn open_engine(
    folder: &Path,
    older_format: OlderFormat,
) -> Result<Arc<dyn Engine>, OpenError> {
    let options = RocksOptions {
        cache_bytes: CACHE_BYTES,
        reserve_bytes: 0,
        older_format,
        ..RocksOptions::default()
    };
    let engine: Arc<dyn Engine> = RocksEngine::open(folder, options)?;
    Ok(engine)
}

/// Opens the store of an engine, without threads of its own. Nothing is removed that a start of the
/// server would remove.
///
/// # Errors
/// Errors of the store.
pub(crate) fn open_store(
    engine: Arc<dyn Engine>,
    clock: Arc<dyn Clock>,
) -> mayfly_base::Result<Arc<Store>> {
    open_marked(engine, clock, CatalogMarks::Refuse)
}

/// Opens the store of an engine, also one with the mark of a copy.
///
/// # Errors
/// Errors of the store.
pub(crate) fn open_marked(
    engine: Arc<dyn Engine>,
    clock: Arc<dyn Clock>,
    marks: CatalogMarks,
) -> mayfly_base::Result<Arc<Store>> {
    let options = StoreOptions {
        filters: Arc::new(PartialFilters),
        background: false,
        for_replay: true,
        marks,
        ..StoreOptions::default()
    };
    let ops = OpRegistry::new(clock.clone());
    Store::open(engine, options, clock, ops)
}

/// The text of an error of the store.
pub(crate) fn of_store(error: &mayfly_base::Error) -> anyhow::Error {
    anyhow!("{}", error.message())
}
