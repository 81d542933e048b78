//! A collection and its indexes as the running server sees them.
//!
//! Identity is the never-reused id. What can change (the set of indexes, options) stands in [`CollectionState`] behind
//! a lock that every write unit holds shared for its short life and that a catalog change takes exclusively for the
//! moment of the change; readers take a copy of the `Arc`s and look at the `dropped` flags once per batch.

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

/// A collection's state, shared with others.
pub(crate) type SharedState<'c> = Ranked<RwLockReadGuard<'c, CollectionState>>;
/// A collection's state, for a change.
pub(crate) type ChangedState<'c> = Ranked<RwLockWriteGuard<'c, CollectionState>>;

/// A collection.
pub struct Collection {
    id: u64,
    uuid: [u8; 16],
    namespace: RwLock<Namespace>,
    /// The default of its operations and indexes, and the order of its records.
    collation: Option<Arc<Collation>>,
    /// Settings of the layer above, which all collections share.
    settings: Arc<Settings>,
    dropped: AtomicBool,
    /// Whether it is being filled beside another one. Its policies begin when it has that one's name.
    temporary: AtomicBool,
    /// Whether some policy hides what is due.
    hides_expired: AtomicBool,
    /// Whether some policy archives.
    archives: AtomicBool,
    pub(crate) state: RwLock<CollectionState>,
    /// What [`Collection::id_index_id`] gives.
    id_index_id: Option<u64>,
    pub(crate) counts: Counts,
    /// Records that its policies are known to hold.
    pub(crate) held: HeldRecords,
    pub(crate) capped: CappedRuntime,
    /// The numbers of its records, where they have numbers.
    pub(crate) numbers: Numbers,
    /// How often plans have used the index on `_id`, or the order of the records in its place.
    pub id_uses: Uses,
    /// The index filters that were set for it. Storage does not know what is in them.
    pub index_filters: Attached,
    /// Plans that were found to be good, as the layers above keep them.
    pub cached_plans: Attached,
    /// Of a collection of buckets: those that are open.
    pub(crate) open_buckets: Option<Box<OpenBuckets>>,
    /// What its own time to live has done.
    ttl: Arc<PolicyRuntime>,
    /// Units committed since the start of the server.
    pub(crate) commits: AtomicU64,
}

/// What a catalog change can change.
#[derive(Clone)]
pub(crate) struct CollectionState {
    /// Options as `listCollections` shows them.
    pub options: DocBuf,
    /// Whether the log keeps documents as they were before and after a change.
    pub keeps_images: bool,
    /// The rules among them, compiled.
    pub validation: Option<Arc<Validation>>,
    /// The limits among them.
    pub capped: Option<Capped>,
    /// The time series among them: documents are buckets of measurements.
    pub time_series: Option<Arc<TimeSeries>>,
    /// The index on `_id`; nothing where the records themselves are in its order.
    pub id_index: Option<Arc<Index>>,
    /// All indexes, those still being built included; `_id_` is not among them.
    pub indexes: Vec<Arc<Index>>,
    /// What says that its documents are due: its own time to live first, then its indexes in their order.
    policies: Vec<Arc<Policy>>,
}

/// An index. A `collMod` replaces it by another one with the same id and the same [`IndexRuntime`].
pub struct Index {
    pub(crate) id: u64,
    /// Its definition.
    pub spec: IndexSpec,
    /// Compiled `partialFilterExpression`.
    pub(crate) filter: Option<Arc<dyn RecordFilter>>,
    /// What outlives a `collMod`.
    pub runtime: Arc<IndexRuntime>,
}

/// Which indexes a reader may use: those that were published up to an edition of the definitions. The snapshot of an open transaction
/// does not have the entries of later ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct VisibleIndexes(u64);

impl VisibleIndexes {
    /// All that are published.
    pub const PUBLISHED: VisibleIndexes = VisibleIndexes(u64::MAX);

    pub(crate) fn up_to(edition: u64) -> VisibleIndexes {
        VisibleIndexes(edition)
    }

    pub(crate) fn have(self, index: &Index) -> bool {
        index.runtime.visible_since.load(Ordering::Acquire) <= self.0
    }
}

/// The running state of an index.
#[derive(Default)]
pub struct IndexRuntime {
    /// One bit per key field: some document had an array on its path.
    pub(crate) multikey: AtomicU32,
    /// The bits that are in the catalog.
    pub(crate) multikey_stored: AtomicU32,
    /// Whether the build is over and reads may use it.
    pub(crate) ready: AtomicBool,
    /// The first edition of the definitions whose transactions use it: 0 when it came with its collection or was there at the
    /// start, and the greatest number until it is published.
    pub(crate) visible_since: AtomicU64,
    /// What writers leave to its build.
    pub(crate) building: OnceLock<Building>,
    /// Its build failed, and nobody could take it back yet.
    pub(crate) abandoned: AtomicBool,
    /// Whether it is gone.
    pub(crate) dropped: AtomicBool,
    /// What it did as a policy.
    pub(crate) ttl: Arc<PolicyRuntime>,
    /// How often plans have used it.
    pub uses: Uses,
}

/// How often something was used (`accesses` of `$indexStats`).
#[derive(Default)]
pub struct Uses(AtomicI64);

impl Uses {
    /// Once more.
    pub fn add(&self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }

    /// How often.
    pub fn get(&self) -> i64 {
        self.0.load(Ordering::Relaxed)
    }

    /// Not once any more.
    pub(crate) fn reset(&self) {
        self.0.store(0, Ordering::Relaxed);
    }
}

/// The time to live among a collection's options.
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
    /// Those of the validator among the options.
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

    /// Lists what its options and indexes say now, for the collection of this id, whose own time to live has done this so far.
    fn list_policies(&mut self, id: u64, runtime: &Arc<PolicyRuntime>) {
        let series = self.time_series.as_ref();
        let own = own_policy(id, self.options.as_doc(), series, runtime);
        let indexes = self.indexes.iter().filter_map(Policy::of_index);
        self.policies = own.into_iter().chain(indexes).map(Arc::new).collect();
    }

    /// What says that its documents are due, indexes under construction included.
    pub(crate) fn policies(&self) -> &[Arc<Policy>] {
        &self.policies
    }

    /// Its own time to live.
    pub(crate) fn own_policy(&self) -> Option<&Arc<Policy>> {
        self.policies.first().filter(|policy| policy.index().is_none())
    }

    fn hides_expired(&self) -> bool {
        self.policies.iter().any(|policy| policy.hides())
    }

    fn archives(&self) -> bool {
        self.policies.iter().any(|policy| policy.archives())
    }

    /// The policies that say what is hidden: those that hide what is due, and those that hold documents.
    pub(crate) fn hiding(&self) -> impl Iterator<Item = &Arc<Policy>> + Clone {
        let hides = |policy: &Policy| policy.hides() && policy.is_ready();
        self.policies.iter().filter(move |policy| hides(policy) || policy.holds_documents())
    }

    /// Whether some policy says that the document must stay: then none removes or hides it.
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
            id_uses: Uses::default(),
            index_filters: Attached::default(),
            cached_plans: Attached::default(),
            ttl,
            open_buckets,
            commits: AtomicU64::new(0),
        }
    }

    /// Makes a state that is to be installed say what its policies are.
    pub(crate) fn list_policies(&self, state: &mut CollectionState) {
        state.list_policies(self.id, &self.ttl);
    }

    /// Puts a changed state in place of the present one.
    pub(crate) fn install(&self, present: &mut CollectionState, mut changed: CollectionState) {
        self.list_policies(&mut changed);
        self.note_policies(&changed);
        self.held.clear();
        *present = changed;
    }

    /// The state, shared with others, in which nothing changes meanwhile.
    ///
    /// # Errors
    /// Those of the operation's deadline: who changes the state waits for units that run, and these are as long as their documents
    /// make them.
    #[inline]
    pub(crate) fn read_state(&self) -> Result<SharedState<'_>> {
        self.read_state_by(|| current::acquire(|longest| self.state.try_read_for(longest)))
    }

    /// The same for who waits in a way of their own.
    pub(crate) fn read_state_by<'c>(
        &self,
        take: impl FnOnce() -> Result<RwLockReadGuard<'c, CollectionState>>,
    ) -> Result<SharedState<'c>> {
        Ranked::take(Rank::Shared(self.id), take)
    }

    /// The state for a change, with no unit under way.
    ///
    /// # Errors
    /// Those of the operation's deadline.
    pub(crate) fn change_state(&self) -> Result<ChangedState<'_>> {
        let take = || current::acquire(|longest| self.state.try_write_for(longest));
        Ranked::take(Rank::Changing(self.id), take)
    }

    /// The state for a look at it, also where this thread has it shared. A conversion holds it exclusively for as long as it copies:
    /// a thread of the runtime that waits for it serves other tasks meanwhile.
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

    /// Whether it is being filled beside another one: none of its policies does anything yet.
    pub(crate) fn is_temporary(&self) -> bool {
        self.temporary.load(Ordering::Acquire)
    }

    /// Whether reads must not show what some policy says is due: then neither index entries nor the number of records
    /// tell how many documents there are.
    pub fn hides_expired(&self) -> bool {
        self.hides_expired.load(Ordering::Acquire)
    }

    /// Whether some policy archives.
    pub(crate) fn archives(&self) -> bool {
        self.archives.load(Ordering::Acquire)
    }

    /// The policies that hold documents; whatever is due by another one stays, too.
    pub(crate) fn holding(&self) -> Vec<Arc<Policy>> {
        self.policies(Policy::holds_documents)
    }

    /// Those of its policies that are wanted.
    fn policies(&self, wanted: impl Fn(&Policy) -> bool) -> Vec<Arc<Policy>> {
        let state = self.now();
        state.policies.iter().filter(|policy| wanted(policy)).cloned().collect()
    }

    /// The policies by which documents go now.
    pub(crate) fn ready_policies(&self) -> Vec<Arc<Policy>> {
        self.policies(Policy::is_ready)
    }

    /// The policy of this id as it is now, if documents go by it.
    pub(crate) fn policy(&self, id: u64) -> Option<Arc<Policy>> {
        let state = self.now();
        state.policies.iter().find(|policy| policy.id == id && policy.is_ready()).cloned()
    }

    /// The policies that say what is hidden; none most of the time.
    pub(crate) fn hiding(&self) -> Vec<Arc<Policy>> {
        match self.hides_expired() {
            true => self.now().hiding().cloned().collect(),
            false => Vec::new(),
        }
    }

    /// The never-reused id.
    pub fn id(&self) -> u64 {
        self.id
    }

    /// How many commits have written to it since the server began: who read its documents before this number was the same has
    /// seen all of them.
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

    /// The ordered key of this `_id`: what its entry is called in the index on `_id`, or its record where records are
    /// clustered by `_id`.
    pub fn id_key(&self, id: RawValue<'_>) -> IdKey {
        id_key_in(id, self.collation.as_deref()).0
    }

    /// The id of the index on `_id`, which is the same as long as the collection is there; nothing where records are clustered
    /// by `_id`.
    #[inline]
    pub(crate) fn id_index_id(&self) -> Option<u64> {
        self.id_index_id
    }

    /// The index on `_id`; nothing where records are clustered by `_id`.
    pub fn id_index(&self) -> Option<Arc<Index>> {
        self.now().id_index.clone()
    }

    /// The same for a read that began when the collection had this name.
    ///
    /// # Errors
    /// 175 QueryPlanKilled when it was dropped or got another name.
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

    /// The UUID in messages.
    pub(crate) fn shown_uuid(&self) -> String {
        mayfly_value::bson::Uuid::from_bytes(self.uuid).to_string()
    }

    /// Its name now.
    pub fn namespace(&self) -> Namespace {
        self.namespace.read().clone()
    }

    /// To be called under the exclusive lock of the state.
    pub(crate) fn set_namespace(&self, namespace: Namespace, state: &CollectionState) {
        self.temporary.store(is_temporary(&namespace), Ordering::Release);
        self.note_policies(state);
        self.index_filters.clear();
        *self.namespace.write() = namespace;
    }

    /// Settings that the layer above keeps with the store of this collection.
    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    /// Number of documents, as far as it is known without counting.
    pub fn documents_about(&self) -> i64 {
        match self.counts.exact.load(Ordering::Acquire) {
            true => self.counts.documents.load(Ordering::Acquire),
            false => i64::MAX,
        }
    }

    /// Number of documents and their bytes, as far as they are known without counting; 0 when they are not.
    pub fn size_about(&self) -> (i64, i64) {
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

    /// Its time series, when its documents are buckets.
    pub fn time_series(&self) -> Option<Arc<TimeSeries>> {
        self.now().time_series.clone()
    }

    /// The field that records stand in the order of; nothing where that is no field.
    pub fn clustered_by(&self) -> Option<Cow<'static, str>> {
        let state = self.now();
        match (&state.time_series, &state.id_index) {
            (Some(series), _) => Some(format!("control.min.{}", series.fields.time).into()),
            (None, Some(_)) => None,
            (None, None) => Some("_id".into()),
        }
    }

    /// Whether records are named by numbers, in the order of their insertion.
    pub fn is_numbered(&self) -> bool {
        self.id_index_id.is_some() && self.open_buckets.is_none()
    }

    /// All policies that archive.
    pub(crate) fn archiving(&self) -> Vec<Arc<Policy>> {
        self.policies(Policy::archives)
    }

    /// All indexes but `_id_`, those still being built included.
    pub fn indexes(&self) -> Vec<Arc<Index>> {
        self.now().indexes.clone()
    }

    /// The ids of all indexes, that on `_id` included.
    pub(crate) fn index_ids(&self) -> Vec<u64> {
        self.now().maintained().map(|index| index.id).collect()
    }

    /// Indexes whose build is over; that on `_id` is among them where there is one.
    pub fn ready_indexes(&self) -> Vec<Arc<Index>> {
        self.now().maintained().filter(|index| index.is_ready()).cloned().collect()
    }

    /// Those of them that a plan may use. The entries of a last-modified policy are no values of documents.
    pub fn plannable_indexes(&self, visible: VisibleIndexes) -> Vec<Arc<Index>> {
        let state = self.now();
        let plannable = |index: &&Arc<Index>| {
            index.is_ready() && !index.spec.is_last_modified() && visible.have(index)
        };
        state.maintained().filter(plannable).cloned().collect()
    }

    /// Whether it was dropped.
    pub fn is_dropped(&self) -> bool {
        self.dropped.load(Ordering::Acquire)
    }

    /// To be called under the exclusive lock of the state: no writer may slip in between the change of the catalog and
    /// the mark.
    pub(crate) fn mark_dropped(&self, state: &CollectionState) {
        self.dropped.store(true, Ordering::Release);
        for index in state.maintained() {
            index.runtime.dropped.store(true, Ordering::Release);
        }
    }

    /// To be called once per batch of a read that holds this collection over time.
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
    /// The never-reused id.
    pub fn id(&self) -> u64 {
        self.id
    }

    /// Whether reads may use it.
    pub fn is_ready(&self) -> bool {
        self.runtime.ready.load(Ordering::Acquire) && !self.is_dropped()
    }

    /// Its build, while that alone writes its entries.
    #[inline]
    pub(crate) fn building(&self) -> Option<&Building> {
        match self.runtime.ready.load(Ordering::Acquire) {
            true => None,
            false => self.runtime.building.get(),
        }
    }

    /// Whether it was dropped.
    pub fn is_dropped(&self) -> bool {
        self.runtime.dropped.load(Ordering::Acquire)
    }

    /// One bit per key field whose path met an array in some document.
    pub fn multikey_mask(&self) -> u32 {
        self.runtime.multikey.load(Ordering::Acquire)
    }

    /// Whether some document may have more than one key.
    pub fn is_multikey(&self) -> bool {
        self.multikey_mask() != 0
    }

    /// The filter of a partial index.
    pub fn filter(&self) -> Option<&dyn RecordFilter> {
        self.filter.as_deref()
    }

    /// Whether it is a partial index.
    pub fn is_partial(&self) -> bool {
        self.filter.is_some()
    }

    /// Whether this document belongs into it, its filter considered.
    ///
    /// # Errors
    /// Those of the filter.
    #[inline]
    pub(crate) fn covers(&self, document: RawDoc<'_>) -> Result<bool> {
        self.filter.as_ref().map_or(Ok(true), |filter| filter.matches(document))
    }

    /// To be called once per batch of a read that holds this index over time.
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
