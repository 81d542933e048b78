//! A pass: sub-passes over all policies until none has more work. Expiry contract, section 5.2.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use mayfly_base::{Error, ErrorCode, Result};

use crate::Store;
use crate::catalog::Collection;
use crate::policy::ExpireAfter;
use crate::record::RecordKey;
use crate::ttl::rule::{Rule, RuleKind};
use crate::ttl::visit::{Visit, VisitEnd};

/// What a pass remembers between its visits.
#[derive(Default)]
pub struct PassState {
    /// Number of this pass since start, for `currentOp`.
    pass: i64,
    sub_pass: i64,
    /// Per policy: where its last visit stopped, so that the next one does not step over what is gone.
    resume: HashMap<u64, RecordKey>,
}

/// Policies that have more work and may not do it yet, each with the position it stopped at.
pub(crate) type PacedPolicies = parking_lot::Mutex<Vec<(Policy, Option<RecordKey>)>>;

/// One policy: a collection, and which of its rules.
pub(crate) struct Policy {
    collection: Arc<Collection>,
    kind: RuleKind,
}

impl Policy {
    /// What names it among what a pass remembers: ids of collections and indexes are never the same.
    fn id(&self) -> u64 {
        match self.kind {
            RuleKind::Index(id) => id,
            RuleKind::Collection => self.collection.id(),
        }
    }
}

impl Store {
    /// Runs one pass: everything that is due now goes.
    ///
    /// # Errors
    /// 11600 InterruptedAtShutdown, 11602 InterruptedDueToReplStateChange. Errors of single visits are logged and do not end
    /// the pass.
    pub fn run_ttl_pass(&self, stopping: &AtomicBool) -> Result<()> {
        // A clock is compared with what it was at the last look: there is one in every pass.
        let trusted = self.watch.look();
        if let Some(_writing) = self.fsync_lock.try_enter()
            && let Err(error) = self.record_suspension()
        {
            tracing::warn!(%error, "whether expiry is suspended is not on record");
        }
        // A node that is not the primary expires nothing and counts nothing (expiry contract, section 5.3).
        if !self.ttl_params().enabled.load(Ordering::Relaxed) || !self.is_primary() {
            return Ok(());
        }
        if !trusted {
            self.ttl_stats().suspended_passes.fetch_add(1, Ordering::Relaxed);
            return Ok(());
        }
        // All are asked anew.
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
        if let Err(error) = self.engine().give_back_space() {
            tracing::warn!(%error, "the space of what expired is not given back yet");
        }
        let stats = self.ttl_stats();
        stats.passes.fetch_add(1, Ordering::Relaxed);
        let micros = self.clock.monotonic_micros() - started;
        stats.duration_micros.fetch_add(micros, Ordering::Relaxed);
        result
    }

    /// Whether a pass may go on.
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

    /// Whether some policy has more work as soon as its pace allows.
    pub(crate) fn has_paced_work(&self) -> bool {
        !self.paced.lock().is_empty()
    }

    /// Goes on with the policies whose pace ended their last visit. It counts as no pass.
    ///
    /// # Errors
    /// 11600 InterruptedAtShutdown.
    pub fn run_paced_visits(&self, stopping: &AtomicBool) -> Result<()> {
        let waiting = std::mem::take(&mut *self.paced.lock());
        let pass = self.ttl_stats().passes.load(Ordering::Relaxed);
        let batched = self.ttl_params().batch_deletes.load(Ordering::Relaxed);
        for (policy, position) in waiting {
            self.check_may_expire(stopping)?;
            if !self.ttl_params().enabled.load(Ordering::Relaxed) {
                return Ok(());
            }
            let mut state = PassState { pass, ..PassState::default() };
            state.resume.extend(position.map(|position| (policy.id(), position)));
            if self.visit_policy(&policy, &mut state, stopping, batched)
                && let Some(position) = state.resume.remove(&policy.id())
            {
                // Its time box was over: others have their turn.
                self.paced.lock().push((policy, Some(position)));
            }
        }
        Ok(())
    }

    /// Runs one sub-pass: rounds over all indexes until none has more work or the time box is over. True when some index
    /// may have more work.
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
            for policy in round {
                self.check_may_expire(stopping)?;
                if !self.ttl_params().enabled.load(Ordering::Relaxed) {
                    return Ok(false);
                }
                if self.visit_policy(&policy, state, stopping, batched) {
                    unfinished.push(policy);
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

    /// Visits one policy; true when it may have more work.
    fn visit_policy(
        &self,
        policy: &Policy,
        state: &mut PassState,
        stopping: &AtomicBool,
        batched: bool,
    ) -> bool {
        // A `collMod` since the last visit counts.
        let rules = self.ttl_params().rules();
        let Some(rule) = Rule::now(&policy.collection, policy.kind, rules) else { return false };
        let visit = Visit {
            store: self,
            collection: &policy.collection,
            rule: &rule,
            pass: state.pass,
            sub_pass: state.sub_pass,
            stopping,
            batched,
        };
        let result = visit.run(state.resume.get(&policy.id()));
        let failure = result.as_ref().err().map(|error| error.message().to_owned());
        rule.runtime(&policy.collection).set_error(failure.as_deref());
        match result {
            Ok(VisitEnd::Paced(position)) => {
                state.resume.remove(&policy.id());
                let policy = Policy { collection: policy.collection.clone(), kind: policy.kind };
                self.paced.lock().push((policy, position));
                false
            }
            Ok(VisitEnd::Drained) => {
                state.resume.remove(&policy.id());
                false
            }
            Ok(VisitEnd::TargetMet(position)) => {
                state.resume.insert(policy.id(), position);
                true
            }
            // The next round asks what it is now.
            Ok(VisitEnd::PolicyChanged) => true,
            // Dropped meanwhile, or no longer the primary: nothing to do any more.
            Err(error)
                if matches!(
                    error.code(),
                    ErrorCode::QueryPlanKilled
                        | ErrorCode::NamespaceNotFound
                        | ErrorCode::InterruptedDueToReplStateChange
                ) =>
            {
                false
            }
            Err(error) => {
                tracing::error!(
                    id = 5400703,
                    namespace = %policy.collection.namespace(),
                    index = rule.name(),
                    %error,
                    "Error running TTL job on collection"
                );
                false
            }
        }
    }

    /// All usable policies as of now.
    fn ttl_policies(&self) -> Vec<Policy> {
        let mut policies = Vec::new();
        for collection in self.catalog.all().values().filter(|it| !it.is_temporary()) {
            if collection.expire_after_secs().is_some() {
                let kind = RuleKind::Collection;
                policies.push(Policy { collection: collection.clone(), kind });
            }
            for index in collection.ready_indexes() {
                match index.spec.expire_after() {
                    None => {}
                    Some(_) if index.spec.is_inert() => {
                        self.ttl_stats().invalid_ttl_index_skips.fetch_add(1, Ordering::Relaxed);
                        tracing::error!(
                            id = 22541,
                            ns = %collection.namespace(),
                            index = index.spec.name(),
                            "special index can't be used as a TTL index, skipping TTL job"
                        );
                    }
                    Some(ExpireAfter::Seconds(_) | ExpireAfter::OwnOnly) => {
                        let kind = RuleKind::Index(index.id());
                        policies.push(Policy { collection: collection.clone(), kind });
                    }
                    Some(ExpireAfter::Invalid) => {
                        self.ttl_stats().invalid_ttl_index_skips.fetch_add(1, Ordering::Relaxed);
                        tracing::error!(
                            id = 6909100,
                            ns = %collection.namespace(),
                            index = index.spec.name(),
                            "Skipping TTL job due to invalid index spec"
                        );
                    }
                }
            }
        }
        policies
    }
}
