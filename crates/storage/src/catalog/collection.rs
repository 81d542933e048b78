//! A collection and its indexes in the running server.
//!
//! A collection is identified by an id that is never reused. Its mutable part (indexes, options) is
//! [`CollectionState`], under a lock that every write unit holds shared while it runs, and that a
//! catalog change takes exclusively for the moment of the change. Readers copy the `Arc`s and check
//! the `dropped` flags once per batch.

use std::borrow::Cow;
use std::convert::Infallible;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use mayfly_base::{Error, ErrorCode, Namespace, Result};
use mayfly_buckets::TimeSeries;
use mayfly_value::{Collation, DocBuf, RawDoc, RawValue};
use mayfly_work::current;
use parking_lot::{RwLock, RwLockReadGuard, RwLockWriteGuard};

use crate::catalog::counts::Counts;
use crate::catalog::held::HeldRecords;
use crate::catalog::numbers::Numbers;
use crate::catalog::ranked::{Rank, Ranked};
use crate::catalog::{
    Attached, Capped, CappedRuntime, Policy, PolicySource, Settings, TimeToLive, is_temporary,
    maintained,
};
use crate::index::building::Building;
use crate::index::validation::Validation;
use crate::index::{FilterCompiler, IndexSpec, RecordFilter};
use crate::policy::{PolicyRuntime, TtlOptions};
use crate::record::IdKey;
use crate::record::layout::id_key_in;
use crate::timeseries::OpenBuckets;

/// A collection's state, locked shared.
pub(crate) type SharedState<'c> = Ranked<RwLockReadGuard<'c, CollectionState>>;
/// A collection's state, locked exclusively.
pub(crate) type ChangedState<'c> = Ranked<RwLockWriteGuard<'c, CollectionState>>;

/// A collection with its run-time state. It stays valid after a drop; see
/// [`Collection::check_alive`].
pub struct Collection {
    id: u64,
    uuid: [u8; 16],
    namespace: RwLock<Namespace>,
    /// The default collation of its operations and indexes, and the collation of its `_id`s.
    collation: Option<Arc<Collation>>,
    /// Settings of a higher layer, common to all collections.
    settings: Arc<Settings>,
    dropped: AtomicBool,
    /// Whether the collection is being filled, to replace another one. Its policies start when it
    /// gets that one's name.
    temporary: AtomicBool,
    /// Whether a policy hides due documents.
    hides_expired: AtomicBool,
    /// Whether a policy archives documents.
    archives: AtomicBool,
    pub(crate) state: RwLock<CollectionState>,
    /// See [`Collection::id_index_id`].
    id_index_id: Option<u64>,
    pub(crate) counts: Counts,
    /// Records that policies are known to hold.
    pub(crate) held: HeldRecords,
    pub(crate) capped: CappedRuntime,
    /// The source of record numbers, if records are numbered.
    pub(crate) numbers: Numbers,
    /// How often plans have used the index on `_id`, or the order of the records instead of it.
    pub id_uses: UseCounter,
    /// Index filters, attached by the query layer.
    pub index_filters: Attached,
    /// Cached plans, attached by the query layer.
    pub cached_plans: Attached,
    /// The open buckets of a time series.
    pub(crate) open_buckets: Option<Box<OpenBuckets>>,
    /// Counters and pace of the collection's own time to live.
    ttl: Arc<PolicyRuntime>,
    /// Units committed since the start of the server.
    pub(crate) commits: AtomicU64,
}

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

/// An index. A `collMod` replaces it by one with the same id and the same [`IndexRuntime`].
pub struct Index {
    pub(crate) id: u64,
    /// The definition as the catalog stores it.
    pub spec: IndexSpec,
    /// The compiled `partialFilterExpression`.
    pub(crate) filter: Option<Arc<dyn RecordFilter>>,
    /// State that a `collMod` does not change.
    pub runtime: Arc<IndexRuntime>,
}

/// Which indexes a reader may use: those published up to an edition of the definitions. The
/// snapshot of an open transaction does not have the entries of later ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct VisibleIndexes(u64);

impl VisibleIndexes {
    /// All published indexes.
    pub const PUBLISHED: VisibleIndexes = VisibleIndexes(u64::MAX);

    pub(crate) fn up_to(edition: u64) -> VisibleIndexes {
        VisibleIndexes(edition)
    }

    pub(crate) fn have(self, index: &Index) -> bool {
        index.runtime.visible_since.load(Ordering::Acquire) <= self.0
    }
}

/// The run-time state of an index.
#[derive(Default)]
pub struct IndexRuntime {
    /// One bit per key field, set if some document had an array on its path.
    pub(crate) multikey: AtomicU32,
    /// The bits that are in the catalog.
    pub(crate) multikey_stored: AtomicU32,
    /// Whether the build has ended, so that reads may use the index.
    pub(crate) ready: AtomicBool,
    /// The first edition of the definitions whose transactions use the index: 0 if it came with its
    /// collection or existed at the start, and the greatest number until it is published.
    pub(crate) visible_since: AtomicU64,
    /// The link to its build, for notes of writers.
    pub(crate) building: OnceLock<Building>,
    /// The build failed, and the index could not be dropped yet.
    pub(crate) abandoned: AtomicBool,
    /// Whether the index was dropped.
    pub(crate) dropped: AtomicBool,
    /// Counters and pace of its policy.
    pub(crate) ttl: Arc<PolicyRuntime>,
    /// How often plans have used the index.
    pub uses: UseCounter,
}

/// A counter of uses (`accesses` of `$indexStats`).
#[derive(Default)]
pub struct UseCounter(AtomicI64);

impl UseCounter {
    /// Counts a use.
    pub fn add(&self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }

    /// The number of uses.
    pub fn get(&self) -> i64 {
        self.0.load(Ordering::Relaxed)
    }

    /// Resets the counter.
    pub(crate) fn reset(&self) {
        self.0.store(0, Ordering::Relaxed);
    }
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
    fn list_policies(&mut self, id: u64, runtime: &Arc<PolicyRuntime>) {
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

    fn hides_expired(&self) -> bool {
        self.policies.iter().any(|policy| policy.hides())
    }

    fn archives(&self) -> bool {
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

impl Collection {
    pub(crate) fn new(
        id: u64,
        uuid: [u8; 16],
        namespace: Namespace,
        mut state: CollectionState,
        (collation, settings): (Option<Arc<Collation>>, Arc<Settings>),
    ) -> Collection {
        let ttl = Arc::default();
        state.list_policies(id, &ttl);
        let open_buckets = state.time_series.is_some().then(Box::default);
        let temporary = is_temporary(&namespace);
        Collection {
            id,
            uuid,
            namespace: RwLock::new(namespace),
            collation,
            settings,
            dropped: AtomicBool::new(false),
            temporary: AtomicBool::new(temporary),
            hides_expired: AtomicBool::new(!temporary && state.hides_expired()),
            archives: AtomicBool::new(!temporary && state.archives()),
            id_index_id: state.id_index.as_ref().map(|index| index.id),
            state: RwLock::new(state),
            counts: Counts::default(),
            held: HeldRecords::default(),
            capped: CappedRuntime::default(),
            numbers: Numbers::default(),
            id_uses: UseCounter::default(),
            index_filters: Attached::default(),
            cached_plans: Attached::default(),
            ttl,
            open_buckets,
            commits: AtomicU64::new(0),
        }
    }

    /// Derives the policies of a state that is to be installed.
    pub(crate) fn list_policies(&self, state: &mut CollectionState) {
        state.list_policies(self.id, &self.ttl);
    }

    /// Replaces the present state.
    pub(crate) fn install(&self, present: &mut CollectionState, mut changed: CollectionState) {
        self.list_policies(&mut changed);
        self.note_policies(&changed);
        self.held.clear();
        *present = changed;
    }

    /// Locks the state shared, so that it does not change meanwhile.
    ///
    /// # Errors
    /// Errors of the operation's deadline: a change of the state waits for running units, which may
    /// take long.
    #[inline]
    pub(crate) fn read_state(&self) -> Result<SharedState<'_>> {
        self.read_state_by(|| current::acquire(|longest| self.state.try_read_for(longest)))
    }

    /// Locks the state shared; the caller waits in its own way.
    pub(crate) fn read_state_by<'c>(
        &self,
        take: impl FnOnce() -> Result<RwLockReadGuard<'c, CollectionState>>,
    ) -> Result<SharedState<'c>> {
        Ranked::take(Rank::Shared(self.id), take)
    }

    /// Locks the state exclusively, with no unit under way.
    ///
    /// # Errors
    /// Errors of the operation's deadline.
    pub(crate) fn change_state(&self) -> Result<ChangedState<'_>> {
        let take = || current::acquire(|longest| self.state.try_write_for(longest));
        Ranked::take(Rank::Changing(self.id), take)
    }

    /// Locks the state shared for a short read, also when this thread has it shared already. A
    /// conversion holds the lock exclusively while it copies; a waiting runtime thread serves other
    /// tasks meanwhile.
    pub(super) fn now(&self) -> SharedState<'_> {
        let take = || match self.state.try_read_recursive() {
            Some(state) => state,
            None => current::wait(|| self.state.read_recursive()),
        };
        match Ranked::take(Rank::Shared(self.id), || Ok::<_, Infallible>(take())) {
            Ok(state) => state,
        }
    }

    fn note_policies(&self, state: &CollectionState) {
        let awake = !self.is_temporary();
        self.hides_expired.store(awake && state.hides_expired(), Ordering::Release);
        self.archives.store(awake && state.archives(), Ordering::Release);
    }

    /// Whether the collection is being filled, to replace another one: its policies are not active
    /// yet.
    pub(crate) fn is_temporary(&self) -> bool {
        self.temporary.load(Ordering::Acquire)
    }

    /// Whether reads must hide documents that are due by a policy. In that case neither index
    /// entries nor the record count give the number of documents.
    pub fn hides_expired(&self) -> bool {
        self.hides_expired.load(Ordering::Acquire)
    }

    /// Whether a policy archives documents.
    pub(crate) fn archives(&self) -> bool {
        self.archives.load(Ordering::Acquire)
    }

    /// The policies that hold documents. A held document is not removed by other policies either.
    pub(crate) fn holding(&self) -> Vec<Arc<Policy>> {
        self.policies(Policy::holds_documents)
    }

    /// The policies that satisfy the predicate.
    fn policies(&self, wanted: impl Fn(&Policy) -> bool) -> Vec<Arc<Policy>> {
        let state = self.now();
        state.policies.iter().filter(|policy| wanted(policy)).cloned().collect()
    }

    /// The policies that are active now.
    pub(crate) fn ready_policies(&self) -> Vec<Arc<Policy>> {
        self.policies(Policy::is_ready)
    }

    /// The present policy with this id, if it is active.
    pub(crate) fn policy(&self, id: u64) -> Option<Arc<Policy>> {
        let state = self.now();
        state.policies.iter().find(|policy| policy.id == id && policy.is_ready()).cloned()
    }

    /// The policies that decide what is hidden; usually none.
    pub(crate) fn hiding(&self) -> Vec<Arc<Policy>> {
        match self.hides_expired() {
            true => self.now().hiding().cloned().collect(),
            false => Vec::new(),
        }
    }

    /// The id, which is never reused.
    pub fn id(&self) -> u64 {
        self.id
    }

    /// The number of commits that have written to the collection since the server started. If it
    /// has not changed, neither have the documents.
    pub fn commits(&self) -> u64 {
        self.commits.load(Ordering::Acquire)
    }

    /// `info.uuid` of `listCollections`.
    pub fn uuid(&self) -> [u8; 16] {
        self.uuid
    }

    /// The collation of its records, and of operations and indexes that name none.
    pub fn collation(&self) -> Option<&Arc<Collation>> {
        self.collation.as_ref()
    }

    /// The ordered key of this `_id`: the key in the index on `_id`, or the record key if records
    /// are clustered by `_id`.
    pub fn id_key(&self, id: RawValue<'_>) -> IdKey {
        id_key_in(id, self.collation.as_deref()).0
    }

    /// The id of the index on `_id`, constant for the lifetime of the collection; `None` if records
    /// are clustered by `_id`.
    #[inline]
    pub(crate) fn id_index_id(&self) -> Option<u64> {
        self.id_index_id
    }

    /// The index on `_id`; `None` if records are clustered by `_id`.
    pub fn id_index(&self) -> Option<Arc<Index>> {
        self.now().id_index.clone()
    }

    /// Checks, for a read that started when the collection had this name, that it still has it.
    ///
    /// # Errors
    /// 175 QueryPlanKilled when it was dropped or renamed.
    pub fn check_still(&self, name: &Namespace) -> Result<()> {
        self.check_alive()?;
        let now = self.namespace.read();
        if *now == *name {
            return Ok(());
        }
        Err(Error::new(
            ErrorCode::QueryPlanKilled,
            format!("collection renamed from '{name}' to '{}'. UUID {}", *now, self.shown_uuid()),
        ))
    }

    /// The UUID as text, for messages.
    pub(crate) fn shown_uuid(&self) -> String {
        mayfly_value::bson::Uuid::from_bytes(self.uuid).to_string()
    }

    /// The present name.
    pub fn namespace(&self) -> Namespace {
        self.namespace.read().clone()
    }

    /// Renames the collection. The caller holds the exclusive lock of the state.
    pub(crate) fn set_namespace(&self, namespace: Namespace, state: &CollectionState) {
        self.temporary.store(is_temporary(&namespace), Ordering::Release);
        self.note_policies(state);
        self.index_filters.clear();
        *self.namespace.write() = namespace;
    }

    /// Settings of a higher layer, common to the store.
    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    /// The number of documents, if it is known without counting; otherwise a very large number.
    pub fn known_documents(&self) -> i64 {
        match self.counts.exact.load(Ordering::Acquire) {
            true => self.counts.documents.load(Ordering::Acquire),
            false => i64::MAX,
        }
    }

    /// The number of documents and their bytes, if known without counting; otherwise 0.
    pub fn known_size(&self) -> (i64, i64) {
        match self.counts.exact.load(Ordering::Acquire) {
            true => {
                let bytes = self.counts.bytes.load(Ordering::Acquire);
                (self.counts.documents.load(Ordering::Acquire), bytes)
            }
            false => (0, 0),
        }
    }

    /// Options as `listCollections` shows them.
    pub fn options(&self) -> DocBuf {
        self.now().options.clone()
    }

    /// The time series, if the documents are buckets.
    pub fn time_series(&self) -> Option<Arc<TimeSeries>> {
        self.now().time_series.clone()
    }

    /// The field by which records are clustered; `None` if records are numbered.
    pub fn clustered_by(&self) -> Option<Cow<'static, str>> {
        let state = self.now();
        match (&state.time_series, &state.id_index) {
            (Some(series), _) => Some(format!("control.min.{}", series.fields.time).into()),
            (None, Some(_)) => None,
            (None, None) => Some("_id".into()),
        }
    }

    /// Whether record keys are numbers in the order of insertion.
    pub fn is_numbered(&self) -> bool {
        self.id_index_id.is_some() && self.open_buckets.is_none()
    }

    /// The policies that archive documents.
    pub(crate) fn archiving(&self) -> Vec<Arc<Policy>> {
        self.policies(Policy::archives)
    }

    /// All indexes except `_id_`, including those that are being built.
    pub fn indexes(&self) -> Vec<Arc<Index>> {
        self.now().indexes.clone()
    }

    /// The ids of all indexes, including the one on `_id`.
    pub(crate) fn index_ids(&self) -> Vec<u64> {
        self.now().maintained().map(|index| index.id).collect()
    }

    /// The indexes whose build has ended, including the one on `_id`.
    pub fn ready_indexes(&self) -> Vec<Arc<Index>> {
        self.now().maintained().filter(|index| index.is_ready()).cloned().collect()
    }

    /// The indexes that a plan may use. Entries of a last-modified policy are not values of
    /// documents, so its index is not one of them.
    pub fn plannable_indexes(&self, visible: VisibleIndexes) -> Vec<Arc<Index>> {
        let state = self.now();
        let plannable = |index: &&Arc<Index>| {
            index.is_ready() && !index.spec.is_last_modified() && visible.have(index)
        };
        state.maintained().filter(plannable).cloned().collect()
    }

    /// Whether the collection was dropped.
    pub fn is_dropped(&self) -> bool {
        self.dropped.load(Ordering::Acquire)
    }

    /// Marks the collection as dropped. The caller holds the exclusive lock of the state, so that
    /// no write can happen between the change of the catalog and the mark.
    pub(crate) fn mark_dropped(&self, state: &CollectionState) {
        self.dropped.store(true, Ordering::Release);
        for index in state.maintained() {
            index.runtime.dropped.store(true, Ordering::Release);
        }
    }

    /// Checks that the collection exists. Called once per batch of a read.
    ///
    /// # Errors
    /// 175 QueryPlanKilled when it was dropped.
    pub fn check_alive(&self) -> Result<()> {
        if self.is_dropped() {
            return Err(Error::new(
                ErrorCode::QueryPlanKilled,
                format!("collection dropped. UUID {}", self.shown_uuid()),
            ));
        }
        Ok(())
    }
}

impl Index {
    /// The id, which is never reused.
    pub fn id(&self) -> u64 {
        self.id
    }

    /// Whether reads may use the index.
    pub fn is_ready(&self) -> bool {
        self.runtime.ready.load(Ordering::Acquire) && !self.is_dropped()
    }

    /// The link to its build, while the index is being built.
    #[inline]
    pub(crate) fn building(&self) -> Option<&Building> {
        match self.runtime.ready.load(Ordering::Acquire) {
            true => None,
            false => self.runtime.building.get(),
        }
    }

    /// Whether the index was dropped.
    pub fn is_dropped(&self) -> bool {
        self.runtime.dropped.load(Ordering::Acquire)
    }

    /// One bit per key field whose path met an array in some document.
    pub fn multikey_mask(&self) -> u32 {
        self.runtime.multikey.load(Ordering::Acquire)
    }

    /// Whether a document may have more than one key.
    pub fn is_multikey(&self) -> bool {
        self.multikey_mask() != 0
    }

    /// The filter of a partial index.
    pub fn filter(&self) -> Option<&dyn RecordFilter> {
        self.filter.as_deref()
    }

    /// Whether the index has a filter.
    pub fn is_partial(&self) -> bool {
        self.filter.is_some()
    }

    /// Whether the index has entries of this document, by its filter.
    ///
    /// # Errors
    /// Errors of the filter.
    #[inline]
    pub(crate) fn covers(&self, document: RawDoc<'_>) -> Result<bool> {
        self.filter.as_ref().map_or(Ok(true), |filter| filter.matches(document))
    }

    /// Checks that the index exists. Called once per batch of a read.
    ///
    /// # Errors
    /// 175 QueryPlanKilled when it was dropped.
    pub fn check_alive(&self) -> Result<()> {
        if self.is_dropped() {
            return Err(Error::new(
                ErrorCode::QueryPlanKilled,
                format!("index '{}' dropped", self.spec.name()),
            ));
        }
        Ok(())
    }
}
