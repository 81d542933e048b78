//! Runs a plan: batches of matching documents, each batch over a snapshot of its own.
//!
//! The state is a position (range and last key), the records already seen when an index may show one twice, and how much of
//! skip and limit is left. Documents reach the sink as borrowed bytes.

mod alternatives;
mod count;
mod covered;
pub(crate) mod distinct;
mod fetch;
mod index_scan;
mod near;
mod one_per_value;
pub(crate) mod shape;
pub(crate) mod tail;
mod text;

pub(crate) use near::{nearest, told};
pub use text::metadata_of;

use std::collections::VecDeque;
use std::ops::ControlFlow;
use std::sync::Arc;

use mayfly_base::{Error, Namespace, OpCtx, Result};
use mayfly_storage::{
    Collection, Direction, KeyRange, RecordKey, ScanLimit, Scanned, Snapshot, Store, whole_range,
};
use mayfly_value::{DocBuf, RawDoc};

use alternatives::Branches;
use fetch::PageSize;
use one_per_value::Shown;
use shape::ResultShape;
use tail::{Tail, check_position};

use crate::language::metadata::{INDEX_KEY, Metadata};
use crate::language::needed::Fields;
use crate::memory::{Budget, SeenRecords, Sorted, Sorter};
use crate::plan::{Access, Plan, plan};

use crate::language::CanonicalQuery;
use crate::memory::SortStats;

/// Entries looked at between two checks of the deadline.
const CHUNK_ENTRIES: usize = 256;

/// So many documents are looked at in a moment.
const FEW_DOCUMENTS: u64 = 1000;

/// What a sink answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Flow {
    /// Taken; go on.
    More,
    /// Taken; that is enough for now.
    Pause,
    /// Not taken: give it again next time.
    Refused,
}

/// Receives documents with the keys of their records, and what is known about them beside their fields.
pub(crate) type Sink<'s> = dyn FnMut(&[u8], RawDoc<'_>, &Metadata) -> Result<Flow> + 's;

/// A running plan.
pub struct Executor {
    collection: Arc<Collection>,
    /// The collection's name when it began.
    namespace: Namespace,
    query: CanonicalQuery,
    plan: Plan,
    /// What is left to scan, the present range first.
    ranges: VecDeque<KeyRange>,
    /// Records that an index has shown already, when it may show one twice.
    seen: Option<SeenRecords>,
    /// Nobody looks at the documents.
    keys_only: bool,
    /// The value that an index has shown, when one document for each is enough.
    shown: Option<Shown>,
    /// A document that the sink refused.
    pending: Option<(RecordKey, DocBuf, Metadata)>,
    /// Results of a blocking sort.
    sorted: Option<Sorted>,
    /// Memory for what it has to keep.
    budget: Budget,
    /// What it keeps of documents; nothing: all.
    keeps: Option<Fields>,
    skip_left: u64,
    limit_left: Option<u64>,
    done: bool,
    /// The position of a scan that does not end with the collection.
    tail: Option<Tail>,
    /// The last record of a batch of a capped collection: the next one begins behind it.
    position: Option<RecordKey>,
    /// It finds records for a write, which reads them again.
    for_write: bool,
    /// How far a search by distance has come.
    near: near::NearState,
    /// How results are shown.
    shape: ResultShape,
    /// The command that failures name.
    command: Option<&'static str>,
    /// Where a text search is.
    text: text::TextState,
    /// How many documents the next batch takes, where that is known.
    expected: Option<u64>,
    /// How many records are read together.
    page_size: PageSize,
    /// The ways of alternatives.
    branches: Branches,
}

/// Counts the use of an index.
fn note_use(collection: &Collection, access: &Access) {
    match access {
        Access::Nothing => {}
        Access::Id(_) => collection.id_uses.add(),
        Access::Records { ranges, .. } => {
            // A scan of everything uses no order.
            if ranges.iter().any(|range| *range != whole_range()) {
                collection.id_uses.add();
            }
        }
        Access::Text(text) => text.index.runtime.uses.add(),
        // Counted with the collection, which may do without this index.
        Access::Index { index, .. } if index.spec.name() == "_id_" => collection.id_uses.add(),
        Access::Index { index, .. } => index.runtime.uses.add(),
        Access::Near(near) => near.index.runtime.uses.add(),
        Access::Alternatives(all) => {
            all.iter().for_each(|one| note_use(collection, &one.plan.access));
        }
    }
}

impl Executor {
    /// Plans the query.
    ///
    /// # Errors
    /// 2 BadValue for a hint that fits no index.
    pub fn new(collection: Arc<Collection>, query: CanonicalQuery) -> Result<Executor> {
        let plan = plan(&collection, &query)?;
        note_use(&collection, &plan.access);
        let branches = Branches::of(&collection, &plan);
        Ok(Executor { branches, ..Executor::of(collection, query, plan) })
    }

    /// Runs a plan.
    fn of(collection: Arc<Collection>, query: CanonicalQuery, plan: Plan) -> Executor {
        let (ranges, dedup) = match &plan.access {
            Access::Nothing => (VecDeque::new(), false),
            Access::Id(_) | Access::Text(_) | Access::Near(_) => (VecDeque::new(), false),
            Access::Alternatives(_) => (VecDeque::new(), true),
            Access::Records { ranges, .. } => (ranges.iter().cloned().collect(), false),
            Access::Index { ranges, index, .. } => {
                (ranges.iter().cloned().collect(), index.is_multikey() || plan.repeats)
            }
        };
        let shown = match (&plan.access, plan.one_per_value) {
            (Access::Index { index, .. }, Some(_)) => {
                let first = index.spec.fields().first();
                Some(Shown::new(first.is_some_and(|field| field.descending)))
            }
            _ => None,
        };
        Executor {
            skip_left: query.skip,
            limit_left: query.limit,
            done: matches!(plan.access, Access::Nothing),
            namespace: collection.namespace(),
            collection,
            query,
            plan,
            ranges,
            seen: dedup.then(|| SeenRecords::new(&Budget::default())),
            keys_only: false,
            shown,
            pending: None,
            sorted: None,
            budget: Budget::default(),
            keeps: None,
            tail: None,
            position: None,
            for_write: false,
            near: near::NearState::default(),
            shape: ResultShape::default(),
            command: None,
            text: text::TextState::default(),
            expected: None,
            page_size: PageSize::default(),
            branches: Branches::default(),
        }
    }

    /// The plan.
    pub fn plan(&self) -> &Plan {
        &self.plan
    }

    /// The query.
    pub fn query(&self) -> &CanonicalQuery {
        &self.query
    }

    /// The collection it reads.
    pub fn collection(&self) -> &Arc<Collection> {
        &self.collection
    }

    /// Whether the first batch may look at many documents: a scan, a sort, a range without a limit, a script. Such work must not
    /// keep one of the runtime's threads; for shorter work saying so would cost more than the work.
    pub fn may_take_long(&self) -> bool {
        // A script may loop over its first document.
        if self.query.matcher.computes() {
            return true;
        }
        if self.collection.documents_about() <= FEW_DOCUMENTS as i64 {
            return false;
        }
        let ranges = match &self.plan.access {
            Access::Nothing | Access::Id(_) => return false,
            Access::Text(_) | Access::Near(_) => return true,
            Access::Alternatives(_) => return !self.branches.are_narrow(),
            Access::Records { ranges, .. } | Access::Index { ranges, .. } => ranges,
        };
        let few = |documents: Option<u64>| {
            documents.is_some_and(|most| most.saturating_add(self.query.skip) <= FEW_DOCUMENTS)
        };
        let bounded = ranges.iter().all(|range| *range != whole_range());
        // A batch is full soon when every entry gives a document.
        let exact = self.plan.exact && self.seen.is_none() && !self.collection.hides_expired();
        let limited = few(self.query.limit) || exact && few(self.expected);
        self.plan.blocking_sort || !(self.plan.narrow || bounded && limited)
    }

    /// Whether everything was given.
    pub fn is_done(&self) -> bool {
        self.done && self.pending.is_none()
    }

    /// From now on it finds records for a write, which changes or deletes them meanwhile: an index does not show a record a second
    /// time, even when an update moved its keys.
    pub fn find_for_write(&mut self) {
        self.for_write = true;
        self.plan.covering = false;
        if matches!(self.plan.access, Access::Index { .. }) {
            self.seen.get_or_insert_with(|| SeenRecords::new(&self.budget));
        }
    }

    /// From now on it waits at the end of its collection, which must be capped.
    ///
    /// # Errors
    /// Those of a query that cannot be followed.
    pub fn follow(&mut self) -> Result<()> {
        self.tail = Some(Tail::new(&self.collection, &self.query, &mut self.plan)?);
        self.ranges = VecDeque::from([whole_range()]);
        self.seen = None;
        self.done = false;
        Ok(())
    }

    /// From now on results are shown in this shape.
    ///
    /// # Errors
    /// 238 NotImplemented when this plan's results cannot be.
    pub fn show_as(&mut self, shape: ResultShape) -> Result<()> {
        let asks_key = self.query.projection.as_ref().is_some_and(|it| it.asks_for(INDEX_KEY));
        ResultShape { key_only: shape.key_only || asks_key, ..shape }.check(&self.plan)?;
        self.plan.covering &= !shape.key_only;
        self.shape = shape;
        Ok(())
    }

    /// From now on what it keeps is kept within this budget.
    pub fn use_budget(&mut self, budget: Budget) {
        if let Some(seen) = &mut self.seen {
            *seen = SeenRecords::new(&budget);
        }
        self.budget = budget;
    }

    /// What its sort did, once that is over.
    pub fn sort_stats(&self) -> Option<SortStats> {
        self.sorted.as_ref().map(Sorted::stats)
    }

    /// Whether it keeps more than its position.
    pub fn keeps_much(&self) -> bool {
        let keeps = matches!(self.plan.access, Access::Text(_) | Access::Near(_));
        keeps || self.plan.blocking_sort || self.seen.is_some()
    }

    /// From now on a sort keeps of documents no more than this, besides what it goes by.
    pub(crate) fn sort_keeping(&mut self, keeps: Option<Fields>) {
        self.keeps = keeps;
    }

    /// How results are shown.
    pub(crate) fn shape(&self) -> ResultShape {
        self.shape
    }

    /// Failures that a document causes name this command and its collection, as the reference's do.
    pub fn name_failures(&mut self, command: &'static str) {
        self.command = Some(command);
        self.branches.name_failures(command);
    }

    /// What names a failure that a document caused.
    pub(crate) fn failures(&self) -> Failures {
        Failures { command: self.command, collection: self.collection.clone() }
    }

    /// From now on the sink counts and does not look: it may be given empty documents.
    pub fn count_only(&mut self) {
        self.keys_only = self.plan.exact && !self.plan.blocking_sort;
    }

    /// The next batch takes at most so many documents: no more records are read ahead than that.
    pub fn expect(&mut self, documents: usize) {
        self.expected = Some(documents as u64);
    }

    /// Gives documents to the sink until it pauses, refuses, or nothing is left. Projection is not applied.
    ///
    /// # Errors
    /// Those of the sink, the store, and the operation's deadline.
    pub fn run(&mut self, store: &Store, op: &OpCtx, sink: &mut Sink<'_>) -> Result<()> {
        if self.is_done() {
            return Ok(());
        }
        self.collection.check_still(&self.namespace)?;
        if let Some((key, document, metadata)) = self.pending.take() {
            match sink(&key, document.as_doc(), &metadata)? {
                Flow::More => {}
                Flow::Pause => return Ok(()),
                Flow::Refused => {
                    self.pending = Some((key, document, metadata));
                    return Ok(());
                }
            }
        }
        if self.done {
            return Ok(());
        }
        if self.plan.blocking_sort {
            return self.run_sorted(store, op, sink);
        }
        self.run_streaming(store, op, sink)
    }

    fn run_sorted(&mut self, store: &Store, op: &OpCtx, sink: &mut Sink<'_>) -> Result<()> {
        if self.sorted.is_none() {
            let Some(pattern) = self.query.sort.clone() else { return Ok(()) };
            let keep = self.query.limit.map(|limit| limit.saturating_add(self.query.skip));
            let mut sorter = Sorter::new(pattern, keep, &self.budget);
            let (keeps, failures) = (self.keeps.take(), self.failures());
            self.page_size.begin(Some(u64::MAX));
            while !self.scan_chunk(store, op, &mut |_, document, metadata| {
                let pushed = sorter.push_fields(document, metadata, keeps.as_ref(), op);
                pushed.map_err(|error| failures.named(error))?;
                Ok(Flow::More)
            })? {}
            self.sorted = Some(sorter.finish(op)?);
        }
        loop {
            let next = self.sorted.as_mut().map(Sorted::next).transpose()?.flatten();
            let Some((document, metadata)) = next else {
                self.done = true;
                return Ok(());
            };
            if self.skip_left > 0 {
                self.skip_left -= 1;
                continue;
            }
            if self.limit_left == Some(0) {
                self.done = true;
                return Ok(());
            }
            self.limit_left = self.limit_left.map(|left| left - 1);
            match sink(&[], document, &metadata)? {
                Flow::More => {}
                Flow::Pause => return Ok(()),
                Flow::Refused => {
                    self.pending = Some((Vec::new(), document.to_owned(), metadata));
                    return Ok(());
                }
            }
        }
    }

    fn run_streaming(&mut self, store: &Store, op: &OpCtx, sink: &mut Sink<'_>) -> Result<()> {
        let (mut skip_left, mut limit_left) = (self.skip_left, self.limit_left);
        let mut stop = false;
        let mut pending = None;
        if limit_left == Some(0) {
            self.done = true;
            return Ok(());
        }
        let wanted = self.expected.take().into_iter().chain(limit_left).min();
        self.page_size.begin(wanted.map(|wanted| wanted.saturating_add(skip_left)));
        loop {
            let exhausted = self.scan_chunk(store, op, &mut |key, document, metadata| {
                if skip_left > 0 {
                    skip_left -= 1;
                    return Ok(Flow::More);
                }
                limit_left = limit_left.map(|left| left - 1);
                let flow = sink(key, document, metadata)?;
                if flow == Flow::Refused {
                    pending = Some((key.to_vec(), document.to_owned(), metadata.clone()));
                }
                stop = flow != Flow::More;
                let over = limit_left == Some(0);
                Ok(if stop || over { Flow::Pause } else { Flow::More })
            });
            (self.skip_left, self.limit_left) = (skip_left, limit_left);
            let exhausted = exhausted?;
            let waiting = exhausted && self.tail.as_ref().is_some_and(Tail::is_alive);
            self.done = exhausted && !waiting || limit_left == Some(0);
            if self.done || stop || waiting {
                self.pending = pending;
                return Ok(());
            }
        }
    }

    /// Looks at the next entries; true when nothing is left.
    fn scan_chunk(&mut self, store: &Store, op: &OpCtx, sink: &mut Sink<'_>) -> Result<bool> {
        op.check()?;
        let exhausted = self.scan_access(store, op, sink)?;
        // What was dropped meanwhile is not maintained any more, and its range is cleared under open snapshots, too:
        // the scan may have missed documents.
        self.collection.check_alive()?;
        match &self.plan.access {
            Access::Index { index, .. } => index.check_alive()?,
            Access::Text(text) => text.index.check_alive()?,
            Access::Near(near) => near.index.check_alive()?,
            Access::Alternatives(_) => self.branches.check_alive()?,
            Access::Nothing | Access::Id(_) | Access::Records { .. } => {}
        }
        Ok(exhausted)
    }

    fn scan_access(&mut self, store: &Store, op: &OpCtx, sink: &mut Sink<'_>) -> Result<bool> {
        match &self.plan.access {
            Access::Nothing => Ok(true),
            Access::Id(key) => {
                let (matcher, mut result) = (&self.query.matcher, Ok(()));
                store.read_by_id(&self.collection, key, |key, document| {
                    count(op, 1, 1);
                    let matched = matcher.matches(document);
                    let matched = matched.map_err(|error| self.failures().named(error));
                    result = matched.and_then(|matches| match matches {
                        true => sink(key, document, &Metadata::NONE).map(|_| ()),
                        false => Ok(()),
                    });
                })?;
                result.map(|()| true)
            }
            Access::Records { direction, .. } => {
                let direction = *direction;
                self.scan_records(&store.snapshot()?, op, direction, sink)
            }
            Access::Text(_) => self.scan_text(store, op, sink),
            Access::Index { direction, index, .. } => {
                let direction = *direction;
                index.check_alive()?;
                self.scan_index(store, &store.snapshot()?, op, direction, sink)
            }
            Access::Near(_) => self.scan_near(store, op, sink),
            Access::Alternatives(_) => self.scan_alternatives(store, op, sink),
        }
    }

    fn scan_records(
        &mut self,
        snapshot: &Snapshot,
        op: &OpCtx,
        direction: Direction,
        sink: &mut Sink<'_>,
    ) -> Result<bool> {
        let failures = self.failures();
        if let Some(tail) = &self.tail
            && let Some(rest) = tail.rest(snapshot, &self.collection)?
        {
            self.ranges = VecDeque::from([rest]);
        }
        if let Some(last) = self.position.take() {
            check_position(snapshot, &self.collection, &last)?;
        }
        let search = self.query.matcher.text().map(|text| text.bound()).transpose()?;
        let (matcher, tail) = (&self.query.matcher, &mut self.tail);
        while let Some(range) = self.ranges.front_mut() {
            op.check()?;
            let mut looked = 0u64;
            let mut paused = false;
            let scanned = snapshot.scan_records(
                &self.collection,
                range,
                direction,
                ScanLimit::NONE,
                &mut |key, document| {
                    looked += 1;
                    if let Some(tail) = tail.as_mut() {
                        tail.looked_at(key);
                    }
                    if looked.is_multiple_of(CHUNK_ENTRIES as u64) {
                        op.check()?;
                    }
                    let matches = matcher.matches(document);
                    let matches = matches.map_err(|error| failures.named(error))?;
                    if !matches {
                        return Ok(ControlFlow::Continue(()));
                    }
                    let metadata = match &search {
                        None => Metadata::NONE,
                        Some(search) => text::scored(search, document)?,
                    };
                    if sink(key, document, &metadata)? == Flow::More {
                        return Ok(ControlFlow::Continue(()));
                    }
                    paused = true;
                    Ok(ControlFlow::Break(()))
                },
            )?;
            count(op, 0, looked);
            match scanned {
                Scanned::Exhausted => {
                    self.ranges.pop_front();
                }
                Scanned::Paused(last) => {
                    *range = range.after(&last, direction);
                    if paused && !self.for_write && self.collection.capped().is_some() {
                        self.position = Some(last);
                    }
                }
            }
            if paused {
                return Ok(false);
            }
        }
        Ok(true)
    }
}

/// Names failures that documents cause.
pub(crate) struct Failures {
    command: Option<&'static str>,
    collection: Arc<Collection>,
}

impl Failures {
    /// The failure with the command and the collection in front.
    pub(crate) fn named(&self, error: Error) -> Error {
        match self.command {
            Some(command) => {
                let ns = self.collection.namespace();
                error
                    .in_context(format!("Executor error during {command} command: {}", ns.as_str()))
            }
            None => error,
        }
    }
}

fn count(op: &OpCtx, keys: u64, documents: u64) {
    use std::sync::atomic::Ordering::Relaxed;
    op.keys_examined.fetch_add(keys, Relaxed);
    op.docs_examined.fetch_add(documents, Relaxed);
}
