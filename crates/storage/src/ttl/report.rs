//! The report of a visit, for the profiler.

use std::sync::OnceLock;

use mayfly_work::OpCtx;

use crate::Store;

/// The result of a visit.
pub struct VisitReport<'a> {
    /// The visit as an operation: namespace, command, plan.
    pub op: &'a OpCtx,
    /// Whether it deleted in batches.
    pub batched: bool,
    /// The number of index entries that it read.
    pub keys_examined: i64,
    /// The number of documents that it read.
    pub docs_examined: i64,
    /// The number of documents that it deleted.
    pub deleted: i64,
    /// Its duration in microseconds.
    pub micros: i64,
}

type Hook = Box<dyn Fn(&VisitReport<'_>) + Send + Sync>;

/// The hook for visits, once it is set.
#[derive(Default)]
pub(crate) struct VisitHook(OnceLock<Hook>);

impl VisitHook {
    pub(crate) fn call(&self, report: &VisitReport<'_>) {
        if let Some(hook) = self.0.get() {
            hook(report);
        }
    }
}

impl Store {
    /// Sets the hook that is called for each visit which found something due; later calls have no
    /// effect.
    pub fn on_ttl_visit(&self, hook: impl Fn(&VisitReport<'_>) + Send + Sync + 'static) {
        // A second hook would belong to a second server over the same store, which is impossible.
        let _ = self.visit_hook.0.set(Box::new(hook));
    }
}
