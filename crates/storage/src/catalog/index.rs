//! An index in the running server: its definition, its filter, and the state that survives a change
//! of the definition.

use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use mayfly_base::{Error, ErrorCode, Result};
use mayfly_value::{ChangedPath, RawDoc};

use crate::catalog::Feed;
use crate::index::building::Building;
use crate::index::{IndexSpec, RecordFilter};
use crate::policy::PolicyRuntime;

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
    /// The state of a log-fed index.
    pub(crate) feed: Option<Arc<Feed>>,
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

    /// Whether the keys of a document may change if an update changes the values at these paths.
    #[inline]
    pub(crate) fn is_concerned(&self, paths: &[ChangedPath<'_>]) -> bool {
        // A filter may read any path.
        self.is_partial() || self.spec.reads(paths)
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
