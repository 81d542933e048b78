//! A collection's document in the catalog, decoded.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use mayfly_base::{Namespace, Result};
use mayfly_value::{Collation, RawDoc, RawValue};

use super::{Collection, CollectionState, Index, Settings, damaged, new_index};
use crate::index::FilterCompiler;
use crate::index::spec::IndexSpec;

/// The document of a collection:
/// `{ ns, uuid, options, idIndex?: { id, ready, spec }, indexes: [ { id, ready, spec } ... ] }`.
pub(crate) struct Loaded<'a> {
    id: u64,
    stored: RawDoc<'a>,
}

impl<'a> Loaded<'a> {
    /// The document with these bytes.
    ///
    /// # Errors
    /// 301 DataCorruptionDetected.
    pub(crate) fn parse(id: u64, bytes: &'a [u8]) -> Result<Loaded<'a>> {
        let stored = RawDoc::new(bytes).ok_or_else(|| damaged("a catalog entry"))?;
        Ok(Loaded { id, stored })
    }

    /// The document as it is stored.
    pub(crate) fn bytes(&self) -> &'a [u8] {
        self.stored.as_bytes()
    }

    /// The name.
    ///
    /// # Errors
    /// 301 DataCorruptionDetected, 73 InvalidNamespace.
    pub(crate) fn namespace(&self) -> Result<Namespace> {
        let ns = self.stored.get("ns").and_then(RawValue::as_str);
        Namespace::parse(ns.ok_or_else(|| damaged("a catalog entry"))?)
    }

    fn options(&self) -> RawDoc<'a> {
        let options = self.stored.get("options").and_then(RawValue::as_document);
        options.unwrap_or(RawDoc::EMPTY)
    }

    /// The collection, with new indexes.
    ///
    /// # Errors
    /// 301 DataCorruptionDetected, errors of filters and of the validator.
    pub(crate) fn collection(
        &self,
        filters: &dyn FilterCompiler,
        settings: &Arc<Settings>,
    ) -> Result<Collection> {
        let uuid = match self.stored.get("uuid") {
            Some(RawValue::Binary { bytes, .. }) => bytes.try_into().ok(),
            _ => None,
        };
        let uuid = uuid.ok_or_else(|| damaged("a catalog entry"))?;
        let collation = Collation::of_options(self.options())?;
        let state = self.state(filters, &HashMap::new())?;
        let namespace = self.namespace()?;
        Ok(Collection::new(self.id, uuid, namespace, state, (collation, settings.clone())))
    }

    /// The state, with those of the present indexes that are still there.
    ///
    /// # Errors
    /// As [`Loaded::collection`].
    pub(crate) fn state(
        &self,
        filters: &dyn FilterCompiler,
        present: &HashMap<u64, Arc<Index>>,
    ) -> Result<CollectionState> {
        let list = self.stored.get("indexes").and_then(RawValue::as_array);
        let items = list.unwrap_or(RawDoc::EMPTY);
        let items = items.iter().filter_map(|item| item.value().as_document());
        let indexes =
            items.map(|item| decode_index(item, filters, present)).collect::<Result<Vec<_>>>()?;
        let id_index = self.stored.get("idIndex").and_then(RawValue::as_document);
        let id_index = id_index.map(|item| decode_index(item, filters, present)).transpose()?;
        CollectionState::new(self.options().to_owned(), id_index, indexes, filters)
    }
}

fn decode_index(
    item: RawDoc<'_>,
    filters: &dyn FilterCompiler,
    present: &HashMap<u64, Arc<Index>>,
) -> Result<Arc<Index>> {
    let (Some(RawValue::Int64(id)), Some(RawValue::Document(spec))) =
        (item.get("id"), item.get("spec"))
    else {
        return Err(damaged("an index in the catalog"));
    };
    let id = id as u64;
    let index = match present.get(&id) {
        Some(same) if same.spec.document() == spec => same.clone(),
        other => {
            let mut index = new_index(id, IndexSpec::from_catalog(spec.to_owned())?, filters)?;
            if let Some(former) = other {
                index.runtime = former.runtime.clone();
            }
            Arc::new(index)
        }
    };
    let ready = matches!(item.get("ready"), Some(RawValue::Bool(true)));
    index.runtime.ready.store(ready, Ordering::Release);
    Ok(index)
}
