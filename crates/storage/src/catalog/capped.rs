//! The state of a capped collection: its limits, and what writers and tailable cursors share.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use mayfly_base::Result;
use mayfly_value::{Collation, DocBuilder, Number, RawDoc, RawValue};
use parking_lot::Mutex;

use super::{Collection, Index};
use crate::index::IndexSpec;
use crate::record::signal::Signal;

/// The limits of a capped collection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Capped {
    /// The limit of the documents' bytes.
    pub size_bytes: i64,
    /// The limit of the number of documents, if there is one.
    pub max_documents: Option<i64>,
}

impl Capped {
    /// Reads the limits from a collection's options.
    pub(crate) fn from_options(options: RawDoc<'_>) -> Option<Capped> {
        if options.get("capped") != Some(RawValue::Bool(true)) {
            return None;
        }
        let number = |name: &str| {
            options.get(name).and_then(Number::from_value).and_then(Number::to_i64_exact)
        };
        let max_documents = number("max").filter(|max| *max > 0);
        Some(Capped { size_bytes: number("size").unwrap_or(0), max_documents })
    }

    pub(crate) fn is_over(self, documents: i64, bytes: i64) -> bool {
        bytes > self.size_bytes || self.max_documents.is_some_and(|max| documents > max)
    }
}

/// State that writers and tailable cursors of a capped collection share.
#[derive(Default)]
pub(crate) struct CappedRuntime {
    /// Held by the write unit.
    pub(crate) writing: Mutex<()>,
    /// The number of commits that may have added records.
    commits: AtomicU64,
    committed: Signal,
    /// No record has a lower number. The search for the oldest record starts here, after the
    /// removed ones.
    first: AtomicU64,
}

impl CappedRuntime {
    pub(crate) fn first(&self) -> u64 {
        self.first.load(Ordering::Acquire)
    }

    /// Notes that all records with lower numbers have been removed by a committed unit.
    pub(crate) fn raise_first(&self, first: u64) {
        self.first.fetch_max(first, Ordering::AcqRel);
    }
}

/// The definition of the index on `_id`, for collections that are not clustered by `_id`.
pub(crate) fn id_index_spec(collation: Option<&Arc<Collation>>) -> Result<IndexSpec> {
    let mut spec = DocBuilder::new();
    spec.append("v", 2).start_document("key").append("_id", 1).end();
    spec.append("name", "_id_").append("unique", true);
    if let Some(collation) = collation {
        spec.append("collation", collation.document());
    }
    IndexSpec::from_catalog(spec.finish())
}

impl Collection {
    /// The limits, if the collection is capped.
    pub fn capped(&self) -> Option<Capped> {
        self.now().capped
    }

    /// The number of commits that tailable cursors were notified of.
    pub fn commits_seen(&self) -> u64 {
        self.capped.commits.load(Ordering::Acquire)
    }

    /// Waits until the number of commits is no longer `seen`.
    pub async fn wait_for_commit(&self, seen: u64) {
        self.capped.committed.until(|| self.commits_seen() != seen).await;
    }

    pub(crate) fn note_capped_commit(&self) {
        self.capped.commits.fetch_add(1, Ordering::AcqRel);
        self.capped.committed.notify();
    }
}

/// All indexes that a unit maintains: the one on `_id` first, if there is one.
pub(crate) fn maintained<'s>(
    id_index: Option<&'s std::sync::Arc<Index>>,
    indexes: &'s [std::sync::Arc<Index>],
) -> impl Iterator<Item = &'s std::sync::Arc<Index>> {
    id_index.into_iter().chain(indexes)
}
