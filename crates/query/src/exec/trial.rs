//! Trials: several plans run side by side for a while, and the plan with the most results for its
//! works wins. Manual: "Query Plans", "Plan Cache".

use mayfly_storage::StoreSession;
use mayfly_work::OpCtx;
use std::ops::ControlFlow;
use std::sync::atomic::Ordering::Relaxed;

use mayfly_base::{Error, ErrorCode, Result};
use mayfly_storage::Collection;

use super::Executor;
use super::node::{Batch, Node, NodeStats, Progress, Settings, start};
use crate::language::CanonicalQuery;
use crate::plan::{
    CachedPlan, Candidates, Choice, Plan, PlanCache, PlannerSettings, Ranked, Way, over,
};

/// Works of each plan in the first round; each later round has twice as many, until one plan is
/// done.
const FIRST_WORKS: u64 = 16;

/// A plan that was tried.
pub(crate) struct TriedPlan {
    /// Its index among the candidates.
    at: usize,
    pub(crate) plan: Plan,
    pub(crate) ran: NodeStats,
    /// The number of results, and the works spent on them.
    pub(crate) returned: u64,
    pub(crate) works: u64,
    pub(crate) score: f64,
}

/// The candidates of an executor.
pub(super) struct Trial {
    candidates: Box<Candidates>,
    /// The works of the cached plan in its trial, and the works after which it is abandoned.
    cached: Option<(u64, u64)>,
    /// Whether the result is stored in the plan cache.
    notes: bool,
}

impl Trial {
    pub(super) fn new(
        collection: &Collection,
        candidates: Candidates,
        cached: Option<u64>,
    ) -> Trial {
        let ratio = PlannerSettings::of(collection).replanned_at.get();
        let cached = cached.map(|works| (works, (works as f64 * ratio) as u64));
        Trial { candidates: Box::new(candidates), cached, notes: true }
    }

    /// Records shape and plan cache key in the operation, for the profiler and the slow log.
    pub(super) fn note_keys(&self, op: &OpCtx) {
        if let Candidates::Whole(ranked) = &*self.candidates {
            op.planning.keys.0.store(ranked.shape.digits(), Relaxed);
            op.planning.keys.1.store(ranked.key.digits(), Relaxed);
        }
    }

    /// Neither uses nor fills the plan cache.
    pub(super) fn by_itself(self) -> Trial {
        Trial { cached: None, notes: false, ..self }
    }

    /// The works after which a cached plan is abandoned.
    pub(super) fn allowed(&self) -> Option<u64> {
        self.cached.map(|(_, allowed)| allowed)
    }

    /// Deactivates the cached plan, which needed far more works than in its trial.
    pub(super) fn without_cached(mut self, executor: &Executor, op: &OpCtx) -> Trial {
        if let Candidates::Whole(ranked) = &*self.candidates {
            PlanCache::deactivate(&executor.collection, ranked.key);
        }
        if let Some((works, allowed)) = self.cached.take() {
            op.planning.replanned.0.store(works, Relaxed);
            op.planning.replanned.1.store(allowed, Relaxed);
        }
        self
    }
}

impl Executor {
    /// Chooses the best of the candidates. Returns the plans that were tried for the whole query,
    /// the best first.
    ///
    /// # Errors
    /// Errors of running plans, if none of them can run.
    pub(super) fn choose(
        &mut self,
        trial: &Trial,
        session: StoreSession<'_>,
    ) -> Result<Vec<TriedPlan>> {
        match &*trial.candidates {
            Candidates::Whole(ranked) => {
                let tried = self.tried(ranked, trial.notes, session)?;
                if let Some(winner) = tried.first() {
                    self.plan = winner.plan.clone();
                }
                Ok(tried)
            }
            Candidates::Alternatives(query, several) => {
                let one = |part: &(_, _)| self.alternative(part, trial.notes, session);
                let chosen: Vec<Way> = several.parts.iter().map(one).collect::<Result<_>>()?;
                let way = several.way(chosen.into_iter());
                self.plan = self.adapted(over(&self.collection, query, way));
                Ok(Vec::new())
            }
        }
    }

    /// The best way for one alternative of an `$or`: from the plan cache, else by a trial.
    fn alternative(
        &self,
        (query, ways): &(CanonicalQuery, Vec<Way>),
        notes: bool,
        session: StoreSession<'_>,
    ) -> Result<Way> {
        let (collection, query) = (&self.collection, query.clone());
        let ranked = Ranked::new(collection, (&query, query.clone()), ways.clone());
        let alone = ways.len() < 2;
        let known = if notes && !alone { ranked.cached(collection) } else { None };
        let at = match known {
            Some((at, _)) => at,
            None if alone => 0,
            None => {
                let mut one = Executor::with_plan(collection.clone(), query, Plan::Nothing);
                one.use_budget(self.budget.clone());
                one.settings.purpose = self.settings.purpose;
                let tried = one.tried(&ranked, notes, session)?;
                tried.first().map_or(0, |winner| winner.at)
            }
        };
        ranked.way(at).ok_or_else(|| Error::internal("an alternative without a way"))
    }

    /// Tries plans and records the winner, which comes first in the result.
    fn tried(
        &self,
        ranked: &Ranked,
        notes: bool,
        session: StoreSession<'_>,
    ) -> Result<Vec<TriedPlan>> {
        // Sorts in a trial are not charged to the operation.
        let sorted =
            (&session.op.has_sort_stage, &session.op.keys_sorted, &session.op.bytes_sorted);
        let before = (sorted.0.load(Relaxed), sorted.1.load(Relaxed), sorted.2.load(Relaxed));
        session.op.planning.by_trial.store(true, Relaxed);
        let (mut running, mut failed) = (Vec::new(), None);
        for (at, plan) in ranked.plans(&self.collection).enumerate() {
            let plan = self.adapted(plan);
            running.push(self.start_trial(at, plan));
        }
        let settings = PlannerSettings::of(&self.collection);
        // If the number of documents is unknown, as on a secondary, the share is none.
        let (documents, _) = self.collection.known_size();
        let share = settings.trial_share.get() * documents as f64;
        let most_works = PlannerSettings::count(&settings.trial_works).max(share as u64);
        let (mut works, mut spent, mut settled) = (FIRST_WORKS, 0, false);
        while !settled && spent < most_works && !running.is_empty() {
            let mut at = 0;
            while let Some(one) = running.get_mut(at) {
                match self.continue_trial(one, works, session) {
                    Ok(done) => {
                        settled |= done;
                        at += 1;
                    }
                    // If one plan's sort exceeds its memory, the others remain candidates.
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
        let mut tried: Vec<TriedPlan> = running.into_iter().map(TrialPlan::scored).collect();
        // Of equal scores the first wins, because it is better by rule.
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
        if notes {
            self.record(ranked, &tried, session.op.now_ms());
        }
        Ok(tried)
    }

    /// Stores the winner of a trial, which is the first of the plans, in the plan cache.
    fn record(&self, ranked: &Ranked, tried: &[TriedPlan], created_ms: i64) {
        let Some(winner) = tried.first() else { return };
        let found = CachedPlan {
            key: ranked.key,
            shape: ranked.shape,
            choice: Choice::of(&winner.plan),
            works: winner.works,
            active: false,
            from: CachedPlan::for_display(&self.query, &winner.plan),
            scores: tried.iter().map(|one| one.score).collect(),
            created_ms,
        };
        PlanCache::record(&self.collection, found);
    }

    fn start_trial(&self, at: usize, plan: Plan) -> TrialPlan {
        let Settings { purpose, timed, .. } = self.settings;
        let settings = Settings { purpose, timed, ..Settings::default() };
        let root = start(&plan, (&self.collection, &self.query), &settings);
        let most = PlannerSettings::count(&PlannerSettings::of(&self.collection).trial_results);
        TrialPlan { at, plan, root, most, returned: 0, works: 0, over: false }
    }

    /// Runs a plan for some works. Returns true if the plan is done.
    fn continue_trial(
        &self,
        one: &mut TrialPlan,
        works: u64,
        session: StoreSession<'_>,
    ) -> Result<bool> {
        let kept = (&self.budget, self.command);
        let batch = Batch::new(session, &self.collection, &self.query, kept);
        let batch = batch.with_works(works).of_trial();
        batch.requested.set(Some(one.most - one.returned));
        one.root.check_alive()?;
        while !one.is_done() && batch.works_left() > 0 {
            session.op.check()?;
            let (returned, most) = (&mut one.returned, one.most);
            let progress = one.root.run(&batch, &mut |_| {
                *returned += 1;
                let enough = *returned >= most;
                Ok(if enough { ControlFlow::Break(()) } else { ControlFlow::Continue(()) })
            })?;
            one.over = progress == Progress::Over;
        }
        one.works += works - batch.works_left();
        Ok(one.is_done())
    }
}

/// A plan in its trial.
struct TrialPlan {
    at: usize,
    plan: Plan,
    root: Box<dyn Node>,
    /// Number of results after which the plan is done.
    most: u64,
    returned: u64,
    works: u64,
    over: bool,
}

impl TrialPlan {
    fn is_done(&self) -> bool {
        self.over || self.returned >= self.most
    }

    /// The score: results per work, a point for reaching the end, and small bonuses for plans
    /// without reads or sorts.
    fn scored(self) -> TriedPlan {
        let works = self.works.max(1) as f64;
        let bonus = (1.0 / (10.0 * works)).min(1e-4);
        let reads = self.plan.any(&mut |node| matches!(node, Plan::Fetch(_)));
        let saves = f64::from(u8::from(!reads)) + f64::from(u8::from(!self.plan.blocking_sort()));
        let end = f64::from(u8::from(self.over));
        let score = 1.0 + self.returned as f64 / works + bonus * saves + end;
        let (ran, returned, works) = (self.root.ran(), self.returned, self.works);
        TriedPlan { at: self.at, plan: self.plan, ran, returned, works, score }
    }
}

fn is_about_plan(code: ErrorCode) -> bool {
    matches!(
        code,
        ErrorCode::QueryExceededMemoryLimitNoDiskUseAllowed | ErrorCode::ExceededMemoryLimit
    )
}
