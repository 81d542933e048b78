//! Settings as documents of `config`.

use mayfly_base::{Namespace, Result};
use mayfly_storage::Store;
use mayfly_value::{DocBuf, RawDoc};
use mayfly_work::OpCtx;

use crate::documents;

/// Reads the document with this id.
///
/// # Errors
/// Errors of the engine.
pub(crate) fn read(store: &Store, (collection, id): (&str, &str)) -> Result<Option<DocBuf>> {
    documents::read(store, &Namespace::new("config", collection)?, id)
}

/// Writes the document with this id.
///
/// # Errors
/// Errors of the engine.
pub(crate) fn put(
    store: &Store,
    op: &OpCtx,
    (collection, id): (&str, &str),
    document: RawDoc<'_>,
) -> Result<()> {
    documents::put(store, op, &Namespace::new("config", collection)?, id, document)
}
