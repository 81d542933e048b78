//! Parameters of planning, one row of `setParameter` each. They are kept with the store, so that several stores in one process have
//! settings of their own; storage does not look at them.

use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64};

use mayfly_storage::{Collection, Core};

/// A number with a fraction that several threads see.
#[derive(Debug)]
pub struct AtomicF64(AtomicU64);

impl AtomicF64 {
    /// With this value.
    pub fn new(value: f64) -> AtomicF64 {
        AtomicF64(AtomicU64::new(value.to_bits()))
    }

    /// The value.
    pub fn get(&self) -> f64 {
        f64::from_bits(self.0.load(Relaxed))
    }

    /// Sets the value.
    pub fn set(&self, value: f64) {
        self.0.store(value.to_bits(), Relaxed);
    }
}

/// The parameters of planning, as the reference names them. Manual: "MongoDB Server Parameters".
#[derive(Debug)]
pub struct PlannerSettings {
    /// `notablescan`: queries must not scan whole collections.
    pub no_table_scan: AtomicBool,
    /// `internalQueryPlanEvaluationWorks`: most keys and documents that a plan looks at in its trial.
    pub trial_works: AtomicI64,
    /// `internalQueryPlanEvaluationCollFraction`: this share of the collection instead, where that is more.
    pub trial_share: AtomicF64,
    /// `internalQueryPlanEvaluationMaxResults`: most results of a trial.
    pub trial_results: AtomicI64,
    /// `internalQueryPlannerMaxIndexedSolutions`: most plans by indexes.
    pub plans: AtomicI64,
    /// `internalQueryMaxScansToExplode`: most scans that are merged for an order.
    pub merged_scans: AtomicI64,
    /// `internalQueryPlannerEnableHashIntersection`: plans may look for records that several indexes name.
    pub hash_intersection: AtomicBool,
    /// `internalQueryCacheEvictionRatio`: how many times the works of its trial a cached plan may need until it is tried again.
    pub replanned_at: AtomicF64,
    /// `internalQueryCacheWorksGrowthCoefficient`: how much more an inactive entry allows with each trial that needed more.
    pub cache_growth: AtomicF64,
    /// `internalQueryCacheMaxEntriesPerCollection`: most plans that a collection remembers.
    pub cached_plans: AtomicI64,
    /// `internalQueryCacheDisableInactiveEntries`: a plan is used from its first trial on.
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
    /// The settings of the store that has this collection.
    pub fn of(collection: &Collection) -> &PlannerSettings {
        collection.settings().get()
    }

    /// The settings of a store.
    pub fn of_store(store: &Core) -> &PlannerSettings {
        store.settings().get()
    }

    /// A number of theirs that counts something.
    pub fn count(number: &AtomicI64) -> u64 {
        number.load(Relaxed).max(0).unsigned_abs()
    }
}
