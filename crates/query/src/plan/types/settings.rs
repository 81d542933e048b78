//! Planner parameters, one for each row of `setParameter`. They are stored with the store, which
//! does not interpret them, so that several stores in one process have separate settings.

use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64};

use mayfly_storage::{Collection, Core};

/// A floating-point number that several threads may read and write.
#[derive(Debug)]
pub struct AtomicF64(AtomicU64);

impl AtomicF64 {
    /// Creates the number with a value.
    pub fn new(value: f64) -> AtomicF64 {
        AtomicF64(AtomicU64::new(value.to_bits()))
    }

    /// Reads the value.
    pub fn get(&self) -> f64 {
        f64::from_bits(self.0.load(Relaxed))
    }

    /// Writes the value.
    pub fn set(&self, value: f64) {
        self.0.store(value.to_bits(), Relaxed);
    }
}

/// The planner parameters, named as in the reference. Manual: "MongoDB Server Parameters".
#[derive(Debug)]
pub struct PlannerSettings {
    /// `notablescan`: queries must not scan whole collections.
    pub no_table_scan: AtomicBool,
    /// `internalQueryPlanEvaluationWorks`: limit on the works of each plan in a trial.
    pub trial_works: AtomicI64,
    /// `internalQueryPlanEvaluationCollFraction`: the same limit as a share of the collection, used
    /// if it is larger.
    pub trial_share: AtomicF64,
    /// `internalQueryPlanEvaluationMaxResults`: limit on the results of each plan in a trial.
    pub trial_results: AtomicI64,
    /// `internalQueryPlannerMaxIndexedSolutions`: limit on the index plans that are tried.
    pub plans: AtomicI64,
    /// `internalQueryMaxScansToExplode`: limit on the scans that are merged for an order.
    pub merged_scans: AtomicI64,
    /// `internalQueryPlannerEnableHashIntersection`: plans may intersect the records of two
    /// indexes.
    pub hash_intersection: AtomicBool,
    /// `internalQueryCacheEvictionRatio`: a cached plan is abandoned after this multiple of the
    /// works of its trial.
    pub replanned_at: AtomicF64,
    /// `internalQueryCacheWorksGrowthCoefficient`: factor by which the works of an inactive entry
    /// grow with each trial that exceeds them.
    pub cache_growth: AtomicF64,
    /// `internalQueryCacheMaxEntriesPerCollection`: limit on the cached plans of a collection.
    pub cached_plans: AtomicI64,
    /// `internalQueryCacheDisableInactiveEntries`: entries are active from their first trial on.
    pub active_at_once: AtomicBool,
}

impl Default for PlannerSettings {
    fn default() -> PlannerSettings {
        PlannerSettings {
            no_table_scan: AtomicBool::new(false),
            trial_works: AtomicI64::new(10_000),
            trial_share: AtomicF64::new(0.0),
            trial_results: AtomicI64::new(101),
            plans: AtomicI64::new(64),
            merged_scans: AtomicI64::new(200),
            hash_intersection: AtomicBool::new(false),
            replanned_at: AtomicF64::new(10.0),
            cache_growth: AtomicF64::new(2.0),
            cached_plans: AtomicI64::new(1000),
            active_at_once: AtomicBool::new(false),
        }
    }
}

impl PlannerSettings {
    /// The settings of the store that contains this collection.
    pub fn of(collection: &Collection) -> &PlannerSettings {
        collection.settings().get()
    }

    /// The settings of a store.
    pub fn of_store(store: &Core) -> &PlannerSettings {
        store.settings().get()
    }

    /// Reads a parameter that is a count; negative values count as zero.
    pub fn count(number: &AtomicI64) -> u64 {
        number.load(Relaxed).max(0).unsigned_abs()
    }
}
