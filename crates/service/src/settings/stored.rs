//! Documents of `config` that this crate keeps, one by one.

use mayfly_base::{Namespace, Result};
use mayfly_storage::ReadView;
use mayfly_storage::{Store, UpdateStyle};
use mayfly_value::{DocBuf, RawDoc, RawValue};
use mayfly_work::OpCtx;

/// The document with this id.
///
/// # Errors
/// Those of the engine.
pub(crate) fn read(store: &Store, (collection, id): (&str, &str)) -> Result<Option<DocBuf>> {
    let Some(collection) =
        store.collection(&ReadView::now(), &Namespace::new("config", collection)?)
    else {
        return Ok(None);
    };
    match store.locate(&ReadView::now(), &collection, RawValue::String(id))? {
        Some(key) => {
            store.read_one(&ReadView::now(), &collection, &key, |document| document.to_owned())
        }
        None => Ok(None),
    }
}

/// Writes the document with this id.
///
/// # Errors
/// Those of the engine.
pub(crate) fn put(
    store: &Store,
    op: &OpCtx,
    (collection, id): (&str, &str),
    document: RawDoc<'_>,
) -> Result<()> {
    let (collection, _) =
        store.get_or_create(&ReadView::now(), &Namespace::new("config", collection)?)?;
    let key = store.locate(&ReadView::now(), &collection, RawValue::String(id))?;
    store.write(op, &ReadView::now(), &collection, |unit| {
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
