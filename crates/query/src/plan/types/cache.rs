//! The plan cache: which plan won the trial for queries of a plan key. It is kept in memory, for
//! each collection. Manual: "Query Plans".
//!
//! An entry names a choice of index, not a plan: bounds are computed for each query. An entry
//! starts inactive. It becomes active when another trial needs no more works than the entry
//! records. If a query needs many times the recorded works, the entry becomes inactive and the
//! query is tried again.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use foldhash::{HashMap, HashMapExt};
use mayfly_storage::Collection;
use parking_lot::RwLock;

use super::plan_key::PlanKey;
use super::settings::PlannerSettings;
use super::tree::Plan;
use crate::language::CanonicalQuery;
use crate::language::shape::PlanShape;

/// Filters with more bytes are not stored for display.
const MAX_DISPLAYED_BYTES: usize = 16 * 1024;

/// Identifies a choice of plan: a hash of the indexes and of the fields that are used of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Choice(u64);

impl Choice {
    /// The choice of a plan, or of a way.
    pub(crate) fn of(plan: &Plan) -> Choice {
        let mut hash = 0xcbf2_9ce4_8422_2325_u64;
        let mut take = |bytes: &[u8]| {
            for byte in bytes {
                hash = (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
            }
        };
        plan.any(&mut |node| {
            if let Plan::And(inputs) = node {
                let scans = inputs.iter().filter_map(Plan::index_scan);
                scans.for_each(|scan| take(&scan.index.id().to_be_bytes()));
                return true;
            }
            if let Plan::Index(scan) = node {
                take(&scan.index.id().to_be_bytes());
                scan.fields.iter().flatten().for_each(|field| take(field.path.as_bytes()));
                // Several ranges of one index are the same choice.
                return true;
            }
            false
        });
        Choice(hash)
    }
}

/// An entry of the plan cache.
#[derive(Clone)]
pub(crate) struct CachedPlan {
    pub(crate) key: PlanKey,
    pub(crate) shape: PlanShape,
    pub(crate) choice: Choice,
    /// The number of works that the winning plan needed in its trial.
    pub(crate) works: u64,
    /// Whether the entry is used for planning. An inactive entry only records a trial.
    pub(crate) active: bool,
    /// The query that created the entry and its plan, for `$planCacheStats`; `None` when they are
    /// large.
    pub(crate) from: Option<(CanonicalQuery, Plan)>,
    /// Scores of the tried plans, the best first.
    pub(crate) scores: Vec<f64>,
    pub(crate) created_ms: i64,
}

impl CachedPlan {
    /// The query and plan to store with an entry for display, if they are small enough.
    pub(crate) fn for_display(
        query: &CanonicalQuery,
        plan: &Plan,
    ) -> Option<(CanonicalQuery, Plan)> {
        let small = query.matcher.root().to_document().as_bytes().len() <= MAX_DISPLAYED_BYTES;
        small.then(|| (query.clone(), plan.clone()))
    }
}

/// The cache of one collection.
#[derive(Clone, Default)]
pub(crate) struct PlanCache(Arc<RwLock<HashMap<PlanKey, CachedPlan>>>);

impl PlanCache {
    fn of(collection: &Collection) -> PlanCache {
        if let Some(cache) = collection.cached_plans.get::<PlanCache>() {
            return PlanCache::clone(&cache);
        }
        let mut cache = PlanCache(Arc::new(RwLock::new(HashMap::new())));
        collection.cached_plans.change::<PlanCache>(|there| {
            if let Some(there) = there {
                cache = there.clone();
            }
            Some(cache.clone())
        });
        cache
    }

    /// The active choice under a key, with the works of its trial.
    pub(crate) fn active(collection: &Collection, key: PlanKey) -> Option<(Choice, u64)> {
        let cache = collection.cached_plans.get::<PlanCache>()?;
        let entries = cache.0.read();
        entries.get(&key).filter(|entry| entry.active).map(|entry| (entry.choice, entry.works))
    }

    /// Records the result of a trial.
    pub(crate) fn record(collection: &Collection, found: CachedPlan) {
        let (cache, settings) = (PlanCache::of(collection), PlannerSettings::of(collection));
        let most = PlannerSettings::count(&settings.cached_plans);
        let at_once = settings.active_at_once.load(Relaxed);
        let mut entries = cache.0.write();
        let known = entries.get(&found.key).map(|entry| (entry.works, entry.active));
        let found = match known {
            None => CachedPlan { active: at_once, ..found },
            // A second trial confirms the entry.
            Some((works, _)) if found.works <= works => CachedPlan { active: true, ..found },
            // An active entry is replaced: its plan suited another query of this key.
            Some((_, active)) if active || at_once => CachedPlan { active: true, ..found },
            Some((works, _)) => {
                let works = (works as f64 * settings.cache_growth.get()) as u64;
                CachedPlan { works, active: false, ..found }
            }
        };
        entries.insert(found.key, found);
        while entries.len() as u64 > most {
            let oldest = entries.values().min_by_key(|entry| entry.created_ms);
            let Some(key) = oldest.map(|entry| entry.key) else { return };
            entries.remove(&key);
        }
    }

    /// Deactivates an entry whose plan needed far more works than recorded.
    pub(crate) fn deactivate(collection: &Collection, key: PlanKey) {
        if let Some(cache) = collection.cached_plans.get::<PlanCache>()
            && let Some(entry) = cache.0.write().get_mut(&key)
        {
            entry.active = false;
        }
    }

    /// Returns copies of all entries.
    pub(crate) fn entries(collection: &Collection) -> Vec<CachedPlan> {
        let cache = collection.cached_plans.get::<PlanCache>();
        cache.map_or_else(Vec::new, |cache| cache.0.read().values().cloned().collect())
    }
}

/// Removes the cached plans of a collection: all of them, or those for queries of a shape.
pub fn forget_plans(collection: &Collection, shape: Option<PlanShape>) {
    if let Some(cache) = collection.cached_plans.get::<PlanCache>() {
        cache.0.write().retain(|_, entry| shape.is_some_and(|shape| entry.shape != shape));
    }
}
