//! The mutable part of a collection: its options, indexes and policies. A catalog change replaces
//! it as a whole.

use std::sync::Arc;

use mayfly_base::Result;
use mayfly_buckets::TimeSeries;
use mayfly_value::{DocBuf, RawDoc, RawValue};

use crate::catalog::{Capped, Index, Policy, PolicySource, TimeToLive, maintained};
use crate::index::FilterCompiler;
use crate::index::validation::Validation;
use crate::policy::{PolicyRuntime, TtlOptions};

/// The part of a collection that catalog changes modify.
#[derive(Clone)]
pub(crate) struct CollectionState {
    /// Options as `listCollections` shows them.
    pub options: DocBuf,
    /// Whether log entries contain the documents before and after a change.
    pub keeps_images: bool,
    /// The compiled validator.
    pub validation: Option<Arc<Validation>>,
    /// The limits of a capped collection.
    pub capped: Option<Capped>,
    /// The time series whose buckets the documents are.
    pub time_series: Option<Arc<TimeSeries>>,
    /// The index on `_id`; `None` if records are clustered by `_id`.
    pub id_index: Option<Arc<Index>>,
    /// All indexes except `_id_`, including those that are being built.
    pub indexes: Vec<Arc<Index>>,
    /// The policies: the collection's own time to live first, then TTL indexes in their order.
    policies: Vec<Arc<Policy>>,
}

/// The policy in a collection's options.
fn own_policy(
    id: u64,
    options: RawDoc<'_>,
    series: Option<&Arc<TimeSeries>>,
    runtime: &Arc<PolicyRuntime>,
) -> Option<Policy> {
    let expire_after = match options.get("expireAfterSeconds") {
        Some(RawValue::Int64(seconds)) if seconds >= 0 => TimeToLive::Seconds(seconds),
        _ => return None,
    };
    let source = series.cloned().map_or(PolicySource::Collection, PolicySource::TimeSeries);
    let options = Arc::new(TtlOptions::from_catalog(options.get("ttl")));
    Some(Policy { id, source, expire_after, options, runtime: runtime.clone() })
}

impl CollectionState {
    /// A state with these options.
    ///
    /// # Errors
    /// Errors of the validator in the options.
    pub(crate) fn new(
        options: DocBuf,
        id_index: Option<Arc<Index>>,
        indexes: Vec<Arc<Index>>,
        filters: &dyn FilterCompiler,
    ) -> Result<CollectionState> {
        let validation = Validation::from_options(options.as_doc(), filters)?;
        let capped = Capped::from_options(options.as_doc());
        let time_series = TimeSeries::from_options(options.as_doc()).map(Arc::new);
        let images = options.as_doc().get("changeStreamPreAndPostImages");
        let images = images.and_then(RawValue::as_document).and_then(|it| it.get("enabled"));
        let keeps_images = images == Some(RawValue::Bool(true));
        Ok(CollectionState {
            options,
            keeps_images,
            validation,
            capped,
            time_series,
            id_index,
            indexes,
            policies: Vec::new(),
        })
    }

    /// Derives the policies from options and indexes. `runtime` belongs to the own time to live of
    /// the collection with this id.
    pub(super) fn list_policies(&mut self, id: u64, runtime: &Arc<PolicyRuntime>) {
        let series = self.time_series.as_ref();
        let own = own_policy(id, self.options.as_doc(), series, runtime);
        let indexes = self.indexes.iter().filter_map(Policy::of_index);
        self.policies = own.into_iter().chain(indexes).map(Arc::new).collect();
    }

    /// The policies, including those of indexes that are being built.
    pub(crate) fn policies(&self) -> &[Arc<Policy>] {
        &self.policies
    }

    /// The policy of the collection's own time to live.
    pub(crate) fn own_policy(&self) -> Option<&Arc<Policy>> {
        self.policies.first().filter(|policy| policy.index().is_none())
    }

    pub(super) fn hides_expired(&self) -> bool {
        self.policies.iter().any(|policy| policy.hides())
    }

    pub(super) fn archives(&self) -> bool {
        self.policies.iter().any(|policy| policy.archives())
    }

    /// The policies that decide what is hidden: those that hide due documents, and those that hold
    /// documents.
    pub(crate) fn hiding(&self) -> impl Iterator<Item = &Arc<Policy>> + Clone {
        let hides = |policy: &Policy| policy.hides() && policy.is_ready();
        self.policies.iter().filter(move |policy| hides(policy) || policy.holds_documents())
    }

    /// Whether a policy holds the document. Then no policy removes or hides it.
    pub(crate) fn holds(&self, document: RawDoc<'_>) -> bool {
        self.policies.iter().any(|policy| policy.holds(document))
    }

    /// All indexes that writes maintain.
    pub(crate) fn maintained(&self) -> impl Iterator<Item = &Arc<Index>> {
        maintained(self.id_index.as_ref(), &self.indexes)
    }
}
