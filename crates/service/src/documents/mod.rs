//! Documents that the server keeps in its own collections, found by their `_id`.

use mayfly_base::{Namespace, Result};
use mayfly_storage::{ReadView, Store, UpdateStyle};
use mayfly_value::{DocBuf, RawDoc, RawValue};
use mayfly_work::OpCtx;

/// Reads the document with this id.
///
/// # Errors
/// Errors of the engine.
pub(crate) fn read<'i>(
    store: &Store,
    ns: &Namespace,
    id: impl Into<RawValue<'i>>,
) -> Result<Option<DocBuf>> {
    let view = ReadView::now();
    let Some(collection) = store.collection(&view, ns) else { return Ok(None) };
    match store.locate(&view, &collection, id.into())? {
        Some(key) => store.read_one(&view, &collection, &key, |document| document.to_owned()),
        None => Ok(None),
    }
}

/// Writes the document with this id. The collection is created if it is missing.
///
/// # Errors
/// Errors of the engine.
pub(crate) fn put<'i>(
    store: &Store,
    op: &OpCtx,
    ns: &Namespace,
    id: impl Into<RawValue<'i>>,
    document: RawDoc<'_>,
) -> Result<()> {
    let view = ReadView::now();
    let (collection, _) = store.get_or_create(&view, ns)?;
    let key = store.locate(&view, &collection, id.into())?;
    store.write(op, &view, &collection, |unit| {
        let old = match &key {
            Some(key) => unit.read(key)?.map(|old| (key, old)),
            None => None,
        };
        match old {
            Some((key, old)) => unit.update(key, &old, document, UpdateStyle::Replacement),
            None => unit.insert(document),
        }
    })
}

/// Removes the document with this id, if it exists.
///
/// # Errors
/// Errors of the engine.
pub(crate) fn remove<'i>(
    store: &Store,
    op: &OpCtx,
    ns: &Namespace,
    id: impl Into<RawValue<'i>>,
) -> Result<()> {
    let view = ReadView::now();
    let Some(collection) = store.collection(&view, ns) else { return Ok(()) };
    let Some(key) = store.locate(&view, &collection, id.into())? else { return Ok(()) };
    store.write(op, &view, &collection, |unit| match unit.read(&key)? {
        Some(document) => unit.delete(&key, &document),
        None => Ok(()),
    })
}
