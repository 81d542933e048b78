//! What a visit tells the one who records operations.

use std::sync::OnceLock;

use mayfly_work::OpCtx;

use crate::Store;

/// A visit that is over.
pub struct VisitReport<'a> {
    /// The visit as an operation: namespace, command, plan.
    pub op: &'a OpCtx,
    /// Whether it deleted in batches.
    pub batched: bool,
    /// Index entries read.
    pub keys_examined: i64,
    /// Documents read.
    pub docs_examined: i64,
    /// Documents deleted.
    pub deleted: i64,
    /// How long it took.
    pub micros: i64,
}

type Hook = Box<dyn Fn(&VisitReport<'_>) + Send + Sync>;

/// Who is told of visits.
#[derive(Default)]
pub(crate) struct VisitHook(OnceLock<Hook>);

impl VisitHook {
    pub(crate) fn tell(&self, report: &VisitReport<'_>) {
        if let Some(hook) = self.0.get() {
            hook(report);
        }
    }
}

impl Store {
    /// Names the one who is told of each visit that found something due; the first one stays.
    pub fn on_ttl_visit(&self, hook: impl Fn(&VisitReport<'_>) + Send + Sync + 'static) {
        // A second one would belong to a second server over the same store, which cannot be.
        let _ = self.visit_hook.0.set(Box::new(hook));
    }
}
