//! A collection and its indexes in the running server.
//!
//! A collection is identified by an id that is never reused. Its mutable part (indexes, options) is
//! [`CollectionState`], under a lock that every write unit holds shared while it runs, and that a
//! catalog change takes exclusively for the moment of the change. Readers copy the `Arc`s and check
//! the `dropped` flags once per batch.

use std::borrow::Cow;
use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use mayfly_base::{Error, ErrorCode, Namespace, Result};
use mayfly_buckets::TimeSeries;
use mayfly_value::{Collation, DocBuf, RawValue};
use mayfly_work::current;
use parking_lot::{RwLock, RwLockReadGuard, RwLockWriteGuard};

use crate::catalog::counts::Counts;
use crate::catalog::held::HeldRecords;
use crate::catalog::ranked::{Rank, Ranked};
use crate::catalog::{
    Attached, CappedRuntime, CollectionState, Index, Policy, SearchIndex, SearchIndexes, Settings,
    UseCounter, VisibleIndexes, is_temporary,
};
use crate::policy::PolicyRuntime;
use crate::record::IdKey;
use crate::record::layout::{catalog_key, id_key_in};
use crate::shared::Sequence;
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
    pub(crate) numbers: Sequence,
    /// How often plans have used the index on `_id`, or the order of the records instead of it.
    pub id_uses: UseCounter,
    /// Index filters, attached by the query layer.
    pub index_filters: Attached,
    /// Cached plans, attached by the query layer.
    pub cached_plans: Attached,
    /// The search indexes.
    pub(crate) search: SearchIndexes,
    /// The open buckets of a time series.
    pub(crate) open_buckets: Option<Box<OpenBuckets>>,
    /// Counters and pace of the collection's own time to live.
    ttl: Arc<PolicyRuntime>,
    /// Units committed since the start of the server.
    pub(crate) commits: AtomicU64,
}

/// How many record numbers a reservation includes beyond those that are needed.
fn further_numbers(first: u64) -> u64 {
    (first / 4).clamp(1024, 1 << 16)
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
            numbers: Sequence::new(catalog_key::numbers(id), further_numbers),
            id_uses: UseCounter::default(),
            index_filters: Attached::default(),
            cached_plans: Attached::default(),
            search: SearchIndexes::default(),
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
        self.change_state_by(|| current::acquire(|longest| self.state.try_write_for(longest)))
    }

    /// Locks the state exclusively; the caller waits in its own way.
    pub(crate) fn change_state_by<'c>(
        &'c self,
        take: impl FnOnce() -> Result<RwLockWriteGuard<'c, CollectionState>>,
    ) -> Result<ChangedState<'c>> {
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
    fn policies(&self, predicate: impl Fn(&Policy) -> bool) -> Vec<Arc<Policy>> {
        let state = self.now();
        state.policies().iter().filter(|policy| predicate(policy)).cloned().collect()
    }

    /// Whether the collection has policies.
    pub(crate) fn has_policies(&self) -> bool {
        !self.now().policies().is_empty()
    }

    /// The policies that are active now.
    pub(crate) fn ready_policies(&self) -> Vec<Arc<Policy>> {
        self.policies(Policy::is_ready)
    }

    /// The present policy with this id, if it is active.
    pub(crate) fn policy(&self, id: u64) -> Option<Arc<Policy>> {
        let state = self.now();
        state.policies().iter().find(|policy| policy.id == id && policy.is_ready()).cloned()
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
        match self.has_known_size() {
            true => self.counts.documents.load(Ordering::Acquire),
            false => i64::MAX,
        }
    }

    /// Whether the number of documents is known without counting.
    pub fn has_known_size(&self) -> bool {
        self.counts.exact.load(Ordering::Acquire)
    }

    /// The number of documents and their bytes, if known without counting; otherwise 0.
    pub fn known_size(&self) -> (i64, i64) {
        match self.has_known_size() {
            true => {
                let bytes = self.counts.bytes.load(Ordering::Acquire);
                (self.counts.documents.load(Ordering::Acquire), bytes)
            }
            false => (0, 0),
        }
    }

    /// The recorded number of documents, which may be wrong for a while after a crash.
    pub fn recorded_documents(&self) -> i64 {
        self.counts.documents.load(Ordering::Acquire)
    }

    /// Options as `listCollections` shows them.
    pub fn options(&self) -> DocBuf {
        self.now().options.clone()
    }

    /// The time series, if the documents are buckets.
    pub fn time_series(&self) -> Option<Arc<TimeSeries>> {
        self.now().time_series.clone()
    }

    /// The number of indexes on `_id` that clients see: none of a collection that is clustered by
    /// it, which buckets are.
    pub fn counts_id_index(&self) -> i32 {
        let state = self.now();
        let clustered = state.options.as_doc().get("clusteredIndex").is_some();
        i32::from(!clustered && state.time_series.is_none())
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
    /// documents, and those of a log-fed index may be older than the snapshot, so these indexes are
    /// not among them.
    pub fn plannable_indexes(&self, visible: VisibleIndexes) -> Vec<Arc<Index>> {
        let state = self.now();
        let plannable = |index: &&Arc<Index>| {
            let of_values = !index.spec.is_last_modified() && index.feed().is_none();
            index.is_ready() && of_values && visible.have(index)
        };
        state.maintained().filter(plannable).cloned().collect()
    }

    /// The search indexes.
    pub fn search_indexes(&self) -> Arc<Vec<Arc<SearchIndex>>> {
        self.search.all()
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
        self.search.install(Vec::new());
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
