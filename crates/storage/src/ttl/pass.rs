//! A pass: sub-passes over all policies until none has more work. Expiry contract, section 5.2.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use mayfly_base::{ClientData, Error, ErrorCode, Result};

use crate::Store;
use crate::catalog::{Collection, Policy, TimeToLive};
use crate::record::RecordKey;
use crate::ttl::rule::Rule;
use crate::ttl::visit::{Visit, VisitEnd};

/// The state of a pass between its visits.
#[derive(Default)]
pub struct PassState {
    /// The number of this pass since start, for `currentOp`.
    pass: i64,
    sub_pass: i64,
    /// For each policy, the position at which its last visit stopped, so that the next one does not
    /// scan the tombstones before it.
    resume: HashMap<u64, RecordKey>,
}

/// Policies that have more work and must wait for their pace, each with the position it stopped at.
pub(crate) type PacedPolicies = parking_lot::Mutex<Vec<(PolicyVisit, Option<RecordKey>)>>;

/// The next visit of a policy: its id, which stays valid when the policy changes, and its
/// collection.
pub(crate) struct PolicyVisit {
    collection: Arc<Collection>,
    policy: u64,
}

impl Store {
    /// Runs one pass, which deletes everything that is due.
    ///
    /// # Errors
    /// 11600 InterruptedAtShutdown, 11602 InterruptedDueToReplStateChange. Errors of single visits
    /// are logged and do not end the pass.
    pub fn run_ttl_pass(&self, stopping: &AtomicBool) -> Result<()> {
        // The clock is compared with the last check, so each pass makes one.
        let trusted = self.watch.is_trusted();
        if let Some(_writing) = self.fsync_lock.try_enter()
            && let Err(error) = self.record_suspension()
        {
            tracing::warn!(%error, "the state of expiry (suspended or not) could not be stored");
        }
        // A node that is not the primary expires nothing and counts nothing (expiry contract,
        // section 5.3).
        if !self.ttl_params().enabled.load(Ordering::Relaxed) || !self.is_primary() {
            return Ok(());
        }
        if !trusted {
            self.ttl_stats().suspended_passes.fetch_add(1, Ordering::Relaxed);
            return Ok(());
        }
        // The pass visits all policies.
        self.paced.lock().clear();
        let pass = self.ttl_stats().passes.load(Ordering::Relaxed) + 1;
        let mut state = PassState { pass, ..PassState::default() };
        let started = self.clock.monotonic_micros();
        let mut result = Ok(());
        loop {
            match self.run_ttl_sub_pass(&mut state, stopping) {
                Ok(true) => {}
                Ok(false) => break,
                Err(error) => {
                    result = Err(error);
                    break;
                }
            }
        }
        if let Err(error) = self.engine().reclaim_space() {
            tracing::warn!(%error, "the space of expired documents could not be reclaimed yet");
        }
        let stats = self.ttl_stats();
        stats.passes.fetch_add(1, Ordering::Relaxed);
        let micros = self.clock.monotonic_micros() - started;
        stats.duration_micros.fetch_add(micros, Ordering::Relaxed);
        result
    }

    /// Checks that a pass may continue.
    ///
    /// # Errors
    /// 11600 InterruptedAtShutdown, 11602 InterruptedDueToReplStateChange.
    pub(super) fn check_may_expire(&self, stopping: &AtomicBool) -> Result<()> {
        if stopping.load(Ordering::Acquire) {
            return Err(Error::new(ErrorCode::InterruptedAtShutdown, "interrupted at shutdown"));
        }
        match self.is_primary() {
            true => Ok(()),
            false => Err(Error::new(
                ErrorCode::InterruptedDueToReplStateChange,
                "operation was interrupted",
            )),
        }
    }

    /// Whether a policy has more work that waits for its pace.
    pub(crate) fn has_paced_work(&self) -> bool {
        !self.paced.lock().is_empty()
    }

    /// Continues with the policies whose last visit was ended by their pace. This does not count as
    /// a pass.
    ///
    /// # Errors
    /// 11600 InterruptedAtShutdown.
    pub fn run_paced_visits(&self, stopping: &AtomicBool) -> Result<()> {
        let waiting = std::mem::take(&mut *self.paced.lock());
        let pass = self.ttl_stats().passes.load(Ordering::Relaxed);
        let batched = self.ttl_params().batch_deletes.load(Ordering::Relaxed);
        for (turn, position) in waiting {
            self.check_may_expire(stopping)?;
            if !self.ttl_params().enabled.load(Ordering::Relaxed) {
                return Ok(());
            }
            let mut state = PassState { pass, ..PassState::default() };
            state.resume.extend(position.map(|position| (turn.policy, position)));
            if self.visit_policy(&turn, &mut state, stopping, batched)
                && let Some(position) = state.resume.remove(&turn.policy)
            {
                // The visit reached its limit; other policies come first.
                self.paced.lock().push((turn, Some(position)));
            }
        }
        Ok(())
    }

    /// Runs one sub-pass: rounds over all policies until none has more work or its time is over.
    /// Returns whether some policy may have more work.
    ///
    /// # Errors
    /// 11600 InterruptedAtShutdown.
    pub fn run_ttl_sub_pass(&self, state: &mut PassState, stopping: &AtomicBool) -> Result<bool> {
        state.sub_pass += 1;
        let started = self.clock.monotonic_micros();
        let mut round = self.ttl_policies();
        let batched = self.ttl_params().batch_deletes.load(Ordering::Relaxed);
        while !round.is_empty() {
            let mut unfinished = Vec::new();
            for turn in round {
                self.check_may_expire(stopping)?;
                if !self.ttl_params().enabled.load(Ordering::Relaxed) {
                    return Ok(false);
                }
                if self.visit_policy(&turn, state, stopping, batched) {
                    unfinished.push(turn);
                }
            }
            self.check_may_expire(stopping)?;
            round = unfinished;
            let target = self.ttl_params().sub_pass_target_secs.load(Ordering::Relaxed);
            let elapsed = self.clock.monotonic_micros() - started;
            if elapsed >= target.saturating_mul(1_000_000) {
                break;
            }
        }
        self.ttl_stats().sub_passes.fetch_add(1, Ordering::Relaxed);
        Ok(!round.is_empty())
    }

    /// Visits one policy; returns whether it may have more work.
    fn visit_policy(
        &self,
        turn: &PolicyVisit,
        state: &mut PassState,
        stopping: &AtomicBool,
        batched: bool,
    ) -> bool {
        // Reads the policy again, because a `collMod` may have changed it.
        let rules = self.ttl_params().rules();
        let Some(rule) = Rule::now(&turn.collection, turn.policy, rules) else { return false };
        let visit = Visit {
            store: self,
            collection: &turn.collection,
            rule: &rule,
            pass: state.pass,
            sub_pass: state.sub_pass,
            stopping,
            batched,
        };
        let result = visit.run(state.resume.get(&turn.policy));
        let failure = result.as_ref().err().map(|error| error.message().to_owned());
        rule.policy().runtime.set_error(failure.as_deref());
        match result {
            Ok(VisitEnd::Paced(position)) => {
                state.resume.remove(&turn.policy);
                let turn = PolicyVisit { collection: turn.collection.clone(), policy: turn.policy };
                self.paced.lock().push((turn, position));
                false
            }
            Ok(VisitEnd::Drained) => {
                state.resume.remove(&turn.policy);
                false
            }
            Ok(VisitEnd::TargetMet(position)) => {
                state.resume.insert(turn.policy, position);
                true
            }
            // The next round reads the changed policy.
            Ok(VisitEnd::PolicyChanged) => true,
            // The collection was dropped, the node is no longer the primary, or the server stops:
            // the visit has nothing more to do.
            Err(error)
                if matches!(
                    error.code(),
                    ErrorCode::QueryPlanKilled
                        | ErrorCode::NamespaceNotFound
                        | ErrorCode::InterruptedDueToReplStateChange
                        | ErrorCode::InterruptedAtShutdown
                ) =>
            {
                false
            }
            Err(error) => {
                tracing::error!(
                    id = 5400703,
                    namespace = %turn.collection.namespace(),
                    index = rule.policy().name(),
                    error = %ClientData(error),
                    "Error running TTL job on collection"
                );
                false
            }
        }
    }

    /// All usable policies at present.
    fn ttl_policies(&self) -> Vec<PolicyVisit> {
        let mut turns = Vec::new();
        for collection in self.catalog.all().values().filter(|it| !it.is_temporary()) {
            for policy in collection.ready_policies() {
                if policy.expire_after == TimeToLive::Invalid {
                    self.ttl_stats().invalid_ttl_index_skips.fetch_add(1, Ordering::Relaxed);
                    log_invalid(collection, &policy);
                } else {
                    turns.push(PolicyVisit { collection: collection.clone(), policy: policy.id });
                }
            }
        }
        turns
    }
}

/// Logs that nothing expires by a policy, as the reference does.
fn log_invalid(collection: &Collection, policy: &Policy) {
    let ns = collection.namespace();
    match policy.index().is_some_and(|index| index.spec.is_inert()) {
        true => tracing::error!(
            id = 22541,
            ns = %ns,
            index = policy.name(),
            "special index can't be used as a TTL index, skipping TTL job"
        ),
        false => tracing::error!(
            id = 6909100,
            ns = %ns,
            index = policy.name(),
            "Skipping TTL job due to invalid index spec"
        ),
    }
}
