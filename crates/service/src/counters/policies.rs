//! Figures of TTL policies that can be read every second, however many documents are due.
//!
//! How long the oldest document of a policy has been due is one seek. Counting due documents takes
//! a third of a microsecond each, so a count ends at [`DUE_LIMIT`], and policies are counted in
//! turns: each reading counts for [`COUNTING_MICROS`] and continues with the next policy later.
//! Until its turn a policy keeps its last count, at least 1 while anything is due.
//!
//! With very many policies, or a store across a network, a reading takes longer. It is therefore
//! used for [`USED_TIMES`] as long as it took.

use std::sync::Arc;

use mayfly_base::{Clock, Namespace};
use mayfly_storage::ttl::{DueCount, PolicyStatus};
use mayfly_storage::{Collection, Store};
use mayfly_work::OpCtx;
use parking_lot::Mutex;

/// A count of due documents ends here.
pub(crate) const DUE_LIMIT: usize = 10_000;
/// Readings within this time are one.
const FRESH_MICROS: i64 = 500_000;
/// How many times as long as a reading took its figures are used.
const USED_TIMES: i64 = 1_000;
/// The time for counts of one reading.
const COUNTING_MICROS: i64 = 1_000;

/// The figures of a policy.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct PolicyFigure {
    pub(crate) db: String,
    pub(crate) collection: String,
    /// The name of the index, or `_id_`.
    pub(crate) index: String,
    /// The number of due documents, at most [`DUE_LIMIT`].
    pub(crate) due: i64,
    /// For how long the oldest of them has been due, in milliseconds.
    pub(crate) overdue_ms: i64,
    /// The number of deletions since the start of the server.
    pub(crate) deleted: i64,
}

/// The latest figures of all policies.
#[derive(Default)]
pub(crate) struct PolicyFigures(Mutex<State>);

#[derive(Default)]
struct State {
    /// When the figures were read last, and how long that took.
    read: Option<(i64, i64)>,
    /// Those with most lag first.
    figures: Arc<[PolicyFigure]>,
    /// The last collection whose due documents were counted.
    counted: Option<Namespace>,
}

impl PolicyFigures {
    /// The figures of all policies, those with most lag first.
    pub(crate) fn get(&self, store: &Store, clock: &Arc<dyn Clock>) -> Arc<[PolicyFigure]> {
        let mut state = self.0.lock();
        let now = clock.monotonic_micros();
        let is_old = |(at, took): (i64, i64)| now - at >= FRESH_MICROS.max(took * USED_TIMES);
        if state.read.is_none_or(is_old) {
            state.read(store, clock);
            state.read = Some((now, clock.monotonic_micros() - now));
        }
        state.figures.clone()
    }
}

impl State {
    fn read(&mut self, store: &Store, clock: &Arc<dyn Clock>) {
        let op = OpCtx::detached(clock.clone());
        let (mut figures, mut due) = (Vec::new(), Vec::new());
        for collection in store.collections_with_policies() {
            let first = figures.len();
            // A collection that is dropped meanwhile, or that cannot be read, has no figures.
            let statuses = store.ttl_status(&op, &collection, DueCount::UpTo(1));
            figures.extend(statuses.unwrap_or_default().iter().map(|status| self.figure(status)));
            if figures[first..].iter().any(|figure| figure.due > 0) {
                due.push((collection, first..figures.len()));
            }
        }
        // Collections are in the order of their names; the count goes on after the last one.
        let last = self.counted.take();
        let is_later = |(it, _): &(Arc<Collection>, _)| Some(it.namespace()) > last;
        let next = due.iter().position(is_later).unwrap_or(0);
        due.rotate_left(next);
        let end = clock.monotonic_micros() + COUNTING_MICROS;
        for (collection, range) in due {
            let statuses = store.ttl_status(&op, &collection, DueCount::UpTo(DUE_LIMIT));
            for status in statuses.unwrap_or_default() {
                let counted = figures[range.clone()].iter_mut();
                let counted = counted.filter(|figure| figure.index == status.index);
                counted.for_each(|figure| figure.due = status.due);
            }
            self.counted = Some(collection.namespace());
            if clock.monotonic_micros() >= end {
                break;
            }
        }
        figures.sort_by_key(|figure| std::cmp::Reverse(figure.overdue_ms));
        self.figures = figures.into();
    }

    fn figure(&self, status: &PolicyStatus) -> PolicyFigure {
        let (db, collection) = status.namespace.split_once('.').unwrap_or((&status.namespace, ""));
        let is_it = |it: &&PolicyFigure| {
            it.db == db && it.collection == collection && it.index == status.index
        };
        let before = self.figures.iter().find(is_it).map_or(1, |it| it.due.max(1));
        let since = status.due_since.map(|since| status.now_ms.saturating_sub(since).max(0));
        PolicyFigure {
            due: if status.due > 0 { before } else { 0 },
            overdue_ms: since.unwrap_or(0),
            deleted: status.deleted,
            db: db.to_owned(),
            collection: collection.to_owned(),
            index: status.index.clone(),
        }
    }
}
