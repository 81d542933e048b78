//! Results of `find` with index keys in place of documents (`returnKey`) or with record keys in
//! addition (`showRecordId`).

use mayfly_storage::StoreSession;
use std::borrow::Cow;
use std::sync::Arc;

use mayfly_base::Result;
use mayfly_mql::{Projection, SortPattern};
use mayfly_storage::{Collection, Direction, record_id};
use mayfly_value::paths::visit_index_values;
use mayfly_value::{Collation, DocBuf, DocBuilder, RawDoc, RawValue, SortOrder, compare_values_in};

use super::Executor;
use crate::language::metadata::{INDEX_KEY, Metadata, RECORD_ID, SORT_KEY};
use crate::plan::IndexScan;

/// The arguments `returnKey` and `showRecordId`.
#[derive(Clone, Copy, Debug, Default)]
pub struct ResultShape {
    /// Return only the fields of the index that the plan uses; none for a collection scan.
    pub key_only: bool,
    /// Return the record key as `$recordId`: a number, or, in a collection clustered by `_id`, the
    /// bytes of the key, as in the reference.
    pub record_id: bool,
}

impl ResultShape {
    /// Whether documents are returned unchanged.
    pub(crate) fn is_plain(self) -> bool {
        !self.key_only && !self.record_id
    }

    /// The result for a document; `projected` is used unless the index key replaces it.
    pub(crate) fn shown(
        self,
        key: &KeyPaths,
        record: &[u8],
        document: RawDoc<'_>,
        projected: RawDoc<'_>,
    ) -> DocBuf {
        let mut out = DocBuilder::new();
        if self.key_only {
            key.append(document, &mut out);
            key.append_sort_keys(projected, &mut out);
        } else {
            out.append_all(projected);
        }
        // As in the reference, a key stands alone.
        if self.record_id && !self.key_only {
            key.append_record("$recordId", record, &mut out);
        }
        out.finish()
    }
}

/// The metadata that a projection requests from the executor.
#[derive(Clone, Copy)]
pub(crate) struct RequestedMetadata {
    key: bool,
    record_id: bool,
    sort_key: bool,
}

impl RequestedMetadata {
    /// The metadata that a projection requests; `None` if it requests none.
    pub(crate) fn by(projection: Option<&Projection>) -> Option<RequestedMetadata> {
        let asks_for = |name| projection.is_some_and(|projection| projection.asks_for(name));
        let (key, record_id) = (asks_for(INDEX_KEY), asks_for(RECORD_ID));
        let sort_key = asks_for(SORT_KEY);
        (key || record_id || sort_key).then_some(RequestedMetadata { key, record_id, sort_key })
    }

    /// Adds the requested metadata to that of a document.
    pub(crate) fn noted(
        self,
        key: &KeyPaths,
        record: &[u8],
        document: RawDoc<'_>,
        metadata: &Metadata,
    ) -> Metadata {
        let mut notes = DocBuilder::new();
        notes.append_all(metadata.as_doc().unwrap_or(RawDoc::EMPTY));
        if self.key && !key.paths.is_empty() {
            notes.start_document(INDEX_KEY);
            key.append(document, &mut notes);
            notes.end();
        }
        if self.record_id {
            key.append_record(RECORD_ID, record, &mut notes);
        }
        if let (true, Some(sort)) = (self.sort_key, &key.sort) {
            let values = sort.key_values(metadata.frame(document));
            notes.append(SORT_KEY, RawValue::Array(values.as_doc()));
        }
        Metadata::new(notes.finish())
    }
}

/// The fields of the index that a plan uses.
pub(crate) struct KeyPaths {
    paths: Vec<String>,
    /// The scan of the index, which finds a document by the first of its keys in the bounds.
    scan: Option<Arc<IndexScan>>,
    /// The collation of the strings in the key.
    collation: Option<Arc<Collation>>,
    /// The order of the results.
    sort: Option<SortPattern>,
    /// The fields of the projection that are sort keys.
    sort_keys: Vec<String>,
    collection: Arc<Collection>,
    wants_record: bool,
}

impl KeyPaths {
    /// The fields for the plan of an executor.
    pub(crate) fn of(executor: &Executor, asked: Option<RequestedMetadata>) -> KeyPaths {
        let wants_record = executor.shape().record_id || asked.is_some_and(|it| it.record_id);
        let plan = executor.plan();
        let (paths, scan) = (plan.key_paths(), plan.index_scan().cloned());
        let collection = executor.collection().clone();
        let collation = match (&scan, plan.is_by_id()) {
            (Some(scan), _) => scan.index.spec.collation().cloned(),
            (None, true) => collection.collation().cloned(),
            (None, false) => None,
        };
        let query = executor.query();
        let sort = query.sort.clone();
        let fields = query.projection.as_ref().map(|it| it.fields_of(SORT_KEY));
        let sort_keys = fields.into_iter().flatten().map(str::to_owned).collect();
        KeyPaths { paths, scan, collation, sort, sort_keys, collection, wants_record }
    }

    /// The record key of a document: the known one, or the current one, because sorted results have
    /// lost theirs.
    pub(crate) fn record<'k>(
        &self,
        session: StoreSession<'_>,
        known: &'k [u8],
        document: RawDoc<'_>,
    ) -> Result<Cow<'k, [u8]>> {
        match (self.wants_record && known.is_empty(), document.get("_id")) {
            (true, Some(id)) => Ok(Cow::Owned(
                session.store.locate(session.view, &self.collection, id)?.unwrap_or_default(),
            )),
            _ => Ok(Cow::Borrowed(known)),
        }
    }

    /// Appends the sort keys of the projection, which `returnKey` shows in addition to the key.
    fn append_sort_keys(&self, projected: RawDoc<'_>, out: &mut DocBuilder) {
        for name in &self.sort_keys {
            if let Some(value) = projected.get(name) {
                out.append(name, value);
            }
        }
    }

    fn append_record(&self, name: &str, record: &[u8], out: &mut DocBuilder) {
        // The record may have been deleted.
        if !record.is_empty() {
            out.append(name, record_id(record, self.collection.is_numbered()));
        }
    }

    fn append(&self, document: RawDoc<'_>, out: &mut DocBuilder) {
        for (at, path) in self.paths.iter().enumerate() {
            let parts: Vec<&str> = path.split('.').collect();
            let mut first: Option<RawValue<'_>> = None;
            visit_index_values(document, &parts, &mut |value| {
                if first.is_none_or(|first| self.comes_before(at, value, first)) {
                    first = Some(value);
                }
            });
            let first = first.unwrap_or(RawValue::Null);
            match self.collation.as_ref().filter(|_| Collation::concerns(first)) {
                Some(collation) => out.append(path, &collation.indexed(first)),
                None => out.append(path, first),
            };
        }
    }

    /// Whether the scan finds a document by this value of a field rather than by the other one.
    fn comes_before(&self, at: usize, value: RawValue<'_>, other: RawValue<'_>) -> bool {
        let Some(scan) = &self.scan else { return false };
        let collation = self.collation.as_deref();
        let bounds = scan.filter_bounds.intervals.get(at).and_then(Option::as_ref);
        let found =
            |value| bounds.is_none_or(|all| all.iter().any(|one| one.contains(value, collation)));
        match (found(value), found(other)) {
            (true, true) | (false, false) => {}
            (found, _) => return found,
        }
        let ascending = scan.index.spec.fields().get(at).is_none_or(|field| {
            (field.order == SortOrder::Ascending) == (scan.direction == Direction::Forward)
        });
        let order = compare_values_in(value, other, collation);
        if ascending { order.is_lt() } else { order.is_gt() }
    }
}
