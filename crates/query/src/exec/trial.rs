//! Finding out which of several plans is the best: each is run for a while, and the one that gives most for what it looks at wins.
//! Manual: "Query Plans", "Plan Cache".

use std::ops::ControlFlow;
use std::sync::atomic::Ordering::Relaxed;

use mayfly_base::{ErrorCode, OpCtx, Result};
use mayfly_storage::Store;

use super::Executor;
use super::node::{Batch, Node, Progress, Ran, Settings, start};
use crate::plan::{CachedPlan, Candidates, Choice, Plan, PlanCache};

/// Most keys and documents that a plan looks at in its trial (the reference's `internalQueryPlanEvaluationWorks`).
const MOST_WORKS: u64 = 10_000;
/// What each of them may spend at first; each further turn it is twice as much, until one has shown what it can.
const FIRST_WORKS: u64 = 16;
/// Most results of a trial (the reference's `internalQueryPlanEvaluationMaxResults`).
const MOST_RESULTS: u64 = 101;
/// How many times the works of its trial a plan may need until it is tried again (the reference's
/// `internalQueryCacheEvictionRatio`).
const DOUBTED_AT: u64 = 10;

/// A plan that was tried.
pub(crate) struct Tried {
    pub(crate) plan: Plan,
    pub(crate) ran: Ran,
    /// Results, and what was looked at for them.
    pub(crate) returned: u64,
    pub(crate) works: u64,
    pub(crate) score: f64,
}

/// The plans that an executor may choose from.
pub(super) struct Trial {
    candidates: Box<Candidates>,
    /// What the cached plan needed when it was tried.
    cached: Option<u64>,
    /// What comes of the trial is noted for others.
    notes: bool,
}

impl Trial {
    pub(super) fn new(candidates: Candidates, cached: Option<u64>) -> Trial {
        Trial { candidates: Box::new(candidates), cached, notes: true }
    }

    /// Nobody learns of it, and it learns from nobody.
    pub(super) fn by_itself(self) -> Trial {
        Trial { cached: None, notes: false, ..self }
    }

    /// What a cached plan may look at until it is doubted.
    pub(super) fn allowed(&self) -> Option<u64> {
        self.cached.map(|works| works.saturating_mul(DOUBTED_AT))
    }

    /// The plan that was cached needed much more than it did once.
    pub(super) fn doubted(mut self, executor: &Executor, op: &OpCtx) -> Trial {
        PlanCache::doubt(&executor.collection, self.candidates.key);
        if let Some(works) = self.cached.take() {
            op.planning.replanned.0.store(works, Relaxed);
            op.planning.replanned.1.store(works.saturating_mul(DOUBTED_AT), Relaxed);
        }
        self
    }
}

impl Executor {
    /// Tries the plans that there are to choose from, and takes the best. Says which were tried, the best first.
    ///
    /// # Errors
    /// Those of running plans, when none of them can be run.
    pub(super) fn choose(
        &mut self,
        trial: &Trial,
        store: &Store,
        op: &OpCtx,
    ) -> Result<Vec<Tried>> {
        let candidates = &trial.candidates;
        // What is sorted in a trial was not sorted by the operation.
        let sorted = (&op.has_sort_stage, &op.keys_sorted, &op.bytes_sorted);
        let before = (sorted.0.load(Relaxed), sorted.1.load(Relaxed), sorted.2.load(Relaxed));
        op.planning.by_trial.store(true, Relaxed);
        let (mut running, mut failed) = (Vec::new(), None);
        for plan in candidates.plans(&self.collection) {
            // Not every plan can tell the keys of its index.
            if self.check_shape(&plan).is_ok() {
                running.push(self.try_out(plan));
            }
        }
        let (mut works, mut spent, mut settled) = (FIRST_WORKS, 0, false);
        while !settled && spent < MOST_WORKS && !running.is_empty() {
            let mut at = 0;
            while let Some(one) = running.get_mut(at) {
                match self.go_on_trying(one, works, (store, op)) {
                    Ok(done) => {
                        settled |= done;
                        at += 1;
                    }
                    // A sort that does not fit memory is no reason to do without the others.
                    Err(error) if is_about_plan(error.code()) => {
                        failed = Some(error);
                        running.remove(at);
                    }
                    Err(error) => return Err(error),
                }
            }
            (spent, works) = (spent + works, works * 2);
        }
        sorted.0.store(before.0, Relaxed);
        sorted.1.store(before.1, Relaxed);
        sorted.2.store(before.2, Relaxed);
        let mut tried: Vec<Tried> = running.into_iter().map(Trying::scored).collect();
        // The first of equals, which were better by rule.
        let mut best = 0;
        for (at, one) in tried.iter().enumerate() {
            if one.score > tried[best].score {
                best = at;
            }
        }
        if let (true, Some(error)) = (tried.is_empty(), failed) {
            return Err(error);
        }
        if best < tried.len() {
            tried[..=best].rotate_right(1);
        }
        let Some(winner) = tried.first() else { return Ok(tried) };
        self.plan = winner.plan.clone();
        if trial.notes {
            let found = CachedPlan {
                key: candidates.key,
                shape: candidates.shape,
                choice: Choice::of(&winner.plan),
                works: winner.works,
                active: false,
                from: CachedPlan::kept(&self.query, &winner.plan),
                scores: tried.iter().map(|one| one.score).collect(),
                created_ms: op.now_ms(),
            };
            PlanCache::note(&self.collection, found);
        }
        Ok(tried)
    }

    fn try_out(&self, plan: Plan) -> Trying {
        let mut settings = Settings { for_write: self.settings.for_write, ..Settings::default() };
        let root = start(&plan, (&self.collection, &self.query), &mut settings);
        Trying { plan, root, returned: 0, works: 0, over: false }
    }

    /// Lets a plan spend so much; true when it has shown what it can.
    fn go_on_trying(
        &self,
        one: &mut Trying,
        works: u64,
        (store, op): (&Store, &OpCtx),
    ) -> Result<bool> {
        let kept = (&self.budget, self.command);
        let batch = Batch::new((store, op), &self.collection, &self.query, kept);
        let batch = batch.with_works(works, true);
        batch.wanted.set(Some(MOST_RESULTS - one.returned));
        one.root.check_alive()?;
        while !one.is_done() && batch.works_left() > 0 {
            op.check()?;
            let returned = &mut one.returned;
            let progress = one.root.run(&batch, &mut |_| {
                *returned += 1;
                let enough = *returned >= MOST_RESULTS;
                Ok(if enough { ControlFlow::Break(()) } else { ControlFlow::Continue(()) })
            })?;
            one.over = progress == Progress::Over;
        }
        one.works += works - batch.works_left();
        Ok(one.is_done())
    }
}

/// A plan in its trial.
struct Trying {
    plan: Plan,
    root: Box<dyn Node>,
    returned: u64,
    works: u64,
    over: bool,
}

impl Trying {
    fn is_done(&self) -> bool {
        self.over || self.returned >= MOST_RESULTS
    }

    /// Results for each work, a point for having come to the end, and, between equals, what saves reading and sorting.
    fn scored(self) -> Tried {
        let works = self.works.max(1) as f64;
        let bonus = (1.0 / (10.0 * works)).min(1e-4);
        let reads = self.plan.any(&mut |node| matches!(node, Plan::Fetch(_)));
        let saves = f64::from(u8::from(!reads)) + f64::from(u8::from(!self.plan.blocking_sort()));
        let end = f64::from(u8::from(self.over));
        let score = 1.0 + self.returned as f64 / works + bonus * saves + end;
        let (ran, returned, works) = (self.root.ran(), self.returned, self.works);
        Tried { plan: self.plan, ran, returned, works, score }
    }
}

fn is_about_plan(code: ErrorCode) -> bool {
    matches!(
        code,
        ErrorCode::QueryExceededMemoryLimitNoDiskUseAllowed | ErrorCode::ExceededMemoryLimit
    )
}
