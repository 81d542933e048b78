//! The alternatives of a `$or`, one after the other over one snapshot. A record that satisfies several is shown once.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use mayfly_base::{OpCtx, Result};
use mayfly_storage::{Collection, Snapshot, Store};

use super::{Executor, Flow, Sink};
use crate::language::CanonicalQuery;
use crate::memory::SeenRecords;
use crate::plan::{Access, Plan};

/// Alternatives, each with its own state.
#[derive(Default)]
pub(super) struct Branches {
    all: Vec<Branch>,
    /// The present one.
    at: usize,
}

/// One of them.
pub(crate) struct Branch {
    executor: Box<Executor>,
    /// What it has looked at, and what of that was shown.
    keys: u64,
    documents: u64,
    matched: u64,
    at_end: bool,
}

impl Branch {
    pub(crate) fn plan(&self) -> &Plan {
        &self.executor.plan
    }

    /// Keys and documents looked at, documents that matched, whether it came to its end.
    pub(crate) fn counted(&self) -> (u64, u64, u64, bool) {
        (self.keys, self.documents, self.matched, self.at_end)
    }
}

impl Branches {
    /// Those of a plan.
    pub(super) fn of(collection: &Arc<Collection>, plan: &Plan) -> Branches {
        let Access::Alternatives(all) = &plan.access else { return Branches::default() };
        let branch = |(query, plan): (&CanonicalQuery, Plan)| Branch {
            executor: Box::new(Executor::of(collection.clone(), query.clone(), plan)),
            keys: 0,
            documents: 0,
            matched: 0,
            at_end: false,
        };
        let all = all.iter().map(|one| branch((&one.query, one.plan.clone()))).collect();
        Branches { all, at: 0 }
    }

    pub(super) fn are_narrow(&self) -> bool {
        self.all.iter().all(|branch| branch.plan().narrow)
    }

    pub(super) fn name_failures(&mut self, command: &'static str) {
        self.all.iter_mut().for_each(|branch| branch.executor.command = Some(command));
    }

    pub(super) fn check_alive(&self) -> Result<()> {
        self.all.iter().try_for_each(|branch| match &branch.plan().access {
            Access::Index { index, .. } => index.check_alive(),
            _ => Ok(()),
        })
    }
}

impl Executor {
    /// The alternatives of its plan.
    pub(crate) fn branches(&self) -> &[Branch] {
        &self.branches.all
    }

    /// Shows what is left of them; true when nothing is.
    pub(super) fn scan_alternatives(
        &mut self,
        store: &Store,
        op: &OpCtx,
        sink: &mut Sink<'_>,
    ) -> Result<bool> {
        self.branches.check_alive()?;
        let snapshot = store.snapshot()?;
        let seen = self.seen.get_or_insert_with(|| SeenRecords::new(&self.budget));
        while let Some(branch) = self.branches.all.get_mut(self.branches.at) {
            let before = (op.keys_examined.load(Relaxed), op.docs_examined.load(Relaxed));
            let matched = &mut branch.matched;
            let over =
                branch.executor.scan_over(store, &snapshot, op, &mut |key, document, known| {
                    *matched += 1;
                    match seen.insert(key, op)? {
                        true => sink(key, document, known),
                        false => Ok(Flow::More),
                    }
                });
            branch.keys += op.keys_examined.load(Relaxed) - before.0;
            branch.documents += op.docs_examined.load(Relaxed) - before.1;
            if !over? {
                return Ok(false);
            }
            branch.at_end = true;
            self.branches.at += 1;
        }
        Ok(true)
    }

    /// Goes on over a snapshot; true when nothing is left.
    fn scan_over(
        &mut self,
        store: &Store,
        snapshot: &Snapshot,
        op: &OpCtx,
        sink: &mut Sink<'_>,
    ) -> Result<bool> {
        self.page_size.begin(None);
        match &self.plan.access {
            Access::Index { direction, .. } => {
                let direction = *direction;
                self.scan_index(store, snapshot, op, direction, sink)
            }
            Access::Records { direction, .. } => {
                let direction = *direction;
                self.scan_records(snapshot, op, direction, sink)
            }
            Access::Nothing => Ok(true),
            Access::Id(_) | Access::Text(_) | Access::Near(_) | Access::Alternatives(_) => {
                self.scan_access(store, op, sink)
            }
        }
    }
}
