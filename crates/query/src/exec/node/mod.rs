//! The nodes of a running plan, one file for each kind.
//!
//! A node passes rows to its consumer until that stops it or no rows are left. It keeps positions
//! and buffered data between batches, but no engine objects: each batch has a snapshot of its own,
//! which all nodes of a plan share.

mod and_hash;
mod by_id;
mod covered;
pub(super) mod distinct_scan;
mod fetch;
mod index_scan;
mod key_list;
mod keys;
mod merge;
pub(super) mod near;
mod or;
mod page;
mod record_scan;
mod skip;
mod sort;
pub(super) mod text;
mod timed;

use mayfly_storage::StoreSession;
use std::cell::{Cell, OnceCell};
use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use mayfly_base::{Error, Result};
use mayfly_storage::{Collection, Entry, MAX_PAGE, Snapshot};
use mayfly_value::RawDoc;
use mayfly_work::OpCtx;

use super::tail::Tail;
use crate::language::CanonicalQuery;
use crate::language::metadata::Metadata;
use crate::language::needed::Fields;
use crate::memory::{Budget, SortStats};
use crate::plan::{Plan, SortKeys};

/// Entries examined between two checks of the deadline.
pub(super) const CHUNK_ENTRIES: usize = 256;

/// Documents with more bytes than this are processed singly.
pub(super) const LARGE_BYTES: usize = 64 << 10;

/// A result of a node.
pub(super) struct Row<'r> {
    /// The key of the record; empty after a sort.
    pub(super) record: &'r [u8],
    /// The document, if it was read.
    pub(super) document: Option<RawDoc<'r>>,
    /// The index entry that led to the record, if it still determines the values of the document as
    /// it did when the query was planned.
    pub(super) entry: Option<&'r Entry<'r>>,
    /// Metadata of the document.
    pub(super) metadata: &'r Metadata,
    /// Keys examined since the last row.
    pub(super) keys: u64,
    /// The position to which the scan can go back for this row.
    pub(super) place: Option<ScanPosition<'r>>,
}

/// A position in a scan: the index of the range, and the position of an entry in it.
#[derive(Clone, Copy)]
pub(super) struct ScanPosition<'r> {
    pub(super) range: usize,
    pub(super) position: &'r [u8],
}

impl<'r> Row<'r> {
    /// A row with a document.
    pub(super) fn read(record: &'r [u8], document: RawDoc<'r>, metadata: &'r Metadata) -> Row<'r> {
        Row { record, document: Some(document), entry: None, metadata, keys: 0, place: None }
    }

    /// A row with a record key only.
    fn key(record: &'r [u8], keys: u64) -> Row<'r> {
        Row { record, document: None, entry: None, metadata: &Metadata::NONE, keys, place: None }
    }
}

/// Consumes rows. A consumer that breaks has accepted the last row.
pub(super) type Rows<'s> = dyn FnMut(&Row<'_>) -> Result<ControlFlow<()>> + 's;

/// The state of a node after a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Progress {
    /// The consumer stopped it.
    Stopped,
    /// The works are spent. Only the root of a plan reports this.
    Spent,
    /// No rows for now, as at the end of a tailable scan.
    Waiting,
    /// No rows are left.
    Over,
}

/// Statistics of a node.
#[derive(Clone, Debug, Default)]
pub(crate) struct Counters {
    /// Rows returned.
    pub(crate) returned: u64,
    /// Rows, keys or documents examined.
    pub(crate) examined: u64,
    /// Index keys examined.
    pub(crate) keys: u64,
    /// Documents examined.
    pub(crate) documents: u64,
    /// Records tested for duplicates.
    pub(crate) tested: u64,
    /// Duplicates dropped.
    pub(crate) dropped: u64,
    /// Whether the node is exhausted.
    pub(crate) over: bool,
    /// Execution time with the nodes below, if it is measured.
    pub(crate) micros: u64,
    /// Bytes of buffered records.
    pub(crate) held_bytes: u64,
    /// Statistics of a sort.
    pub(crate) sort: SortStats,
}

impl Counters {
    /// Subtracts rows and keys that were read but not used.
    fn take_back(&mut self, (rows, keys): (u64, u64)) {
        self.returned = self.returned.saturating_sub(rows);
        self.keys = self.keys.saturating_sub(keys);
        self.examined = self.examined.saturating_sub(keys);
        self.over = false;
    }
}

/// The statistics of the nodes of a plan, as a tree of the same shape.
#[derive(Clone, Debug, Default)]
pub(crate) struct NodeStats {
    pub(crate) counters: Counters,
    pub(crate) inputs: Vec<NodeStats>,
}

/// A running node.
pub(super) trait Node: Send {
    /// Passes its next rows to the consumer.
    ///
    /// # Errors
    /// Errors of the consumer, of the store, and of the operation's deadline.
    fn run(&mut self, batch: &Batch<'_>, rows: &mut Rows<'_>) -> Result<Progress>;

    /// The statistics of the node.
    fn counters(&self) -> Counters;

    /// Visits the inputs.
    fn each_input(&self, _: &mut dyn FnMut(&dyn Node)) {}

    /// The statistics of the node and of the nodes below it.
    fn ran(&self) -> NodeStats {
        let mut inputs = Vec::new();
        self.each_input(&mut |input| inputs.push(input.ran()));
        NodeStats { counters: self.counters(), inputs }
    }

    /// Continues after this position, which is from the last run. The given numbers of rows and
    /// keys after it were not used.
    fn go_back(&mut self, _: ScanPosition<'_>, _: (u64, u64)) {}

    /// Reads the remaining record keys over the snapshot of this batch, so that later batches do
    /// not depend on the positions of index entries. Nodes that return documents ignore this.
    ///
    /// # Errors
    /// Errors of the store, of the operation's deadline, and of files for the keys.
    fn collect_keys(&mut self, _: &Batch<'_>) -> Result<()> {
        Ok(())
    }

    /// Moves buffered rows from memory to files. Nodes that buffer little ignore this.
    ///
    /// # Errors
    /// 292 QueryExceededMemoryLimitNoDiskUseAllowed without files; errors of files and of the
    /// operation's deadline.
    fn release(&mut self, _: &OpCtx) -> Result<()> {
        Ok(())
    }

    /// Fails if the index or collection of the node, or of one below it, was dropped.
    fn check_alive(&self) -> Result<()> {
        let mut alive = Ok(());
        self.each_input(&mut |input| {
            if alive.is_ok() {
                alive = input.check_alive();
            }
        });
        alive
    }
}

/// The state that all nodes share in a batch.
pub(super) struct Batch<'b> {
    pub(super) session: StoreSession<'b>,
    pub(super) collection: &'b Arc<Collection>,
    pub(super) query: &'b CanonicalQuery,
    pub(super) budget: &'b Budget,
    pub(super) failures: Failures<'b>,
    /// Limit on the documents that the consumer accepts, if known.
    pub(super) requested: Cell<Option<u64>>,
    /// The remaining works: keys and documents that may be examined. Scans stop when none are left.
    works: Cell<u64>,
    /// Whether this is a trial, whose works are not charged to the operation.
    trial: bool,
    if_changed: IfChanged,
    snapshot: OnceCell<Snapshot>,
}

/// What a batch does when the definitions in memory are older than its snapshot.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum IfChanged {
    /// It loads them before its first read.
    Loads,
    /// Its first read fails with 175 QueryPlanKilled, and the caller runs the nodes again, from
    /// their beginning.
    Fails,
}

impl<'b> Batch<'b> {
    pub(super) fn new(
        session: StoreSession<'b>,
        collection: &'b Arc<Collection>,
        query: &'b CanonicalQuery,
        (budget, command): (&'b Budget, Option<&'static str>),
    ) -> Batch<'b> {
        let failures = Failures::of(command, collection);
        let (requested, snapshot) = (Cell::new(None), OnceCell::new());
        Batch {
            session,
            collection,
            query,
            budget,
            failures,
            requested,
            works: Cell::new(u64::MAX),
            trial: false,
            if_changed: IfChanged::Loads,
            snapshot,
        }
    }

    /// Sets the limit of works.
    pub(super) fn with_works(mut self, works: u64) -> Batch<'b> {
        self.works = Cell::new(works);
        self
    }

    /// Makes the batch a trial.
    pub(super) fn of_trial(mut self) -> Batch<'b> {
        self.trial = true;
        self
    }

    /// Sets what the batch does when definitions have changed.
    pub(super) fn if_changed(mut self, if_changed: IfChanged) -> Batch<'b> {
        self.if_changed = if_changed;
        self
    }

    /// Uses a snapshot that was taken before.
    pub(super) fn over(mut self, snapshot: Option<Snapshot>) -> Batch<'b> {
        self.snapshot = snapshot.map_or_else(OnceCell::new, OnceCell::from);
        self
    }

    /// Returns the snapshot, if one was taken.
    pub(super) fn into_snapshot(self) -> Option<Snapshot> {
        self.snapshot.into_inner()
    }

    /// The remaining works.
    pub(super) fn works_left(&self) -> u64 {
        self.works.get()
    }

    /// Spends works; false if none are left.
    fn spend(&self, works: u64) -> bool {
        let left = self.works.get().saturating_sub(works);
        self.works.set(left);
        left > 0
    }

    /// The number of entries that a scan probably examines in this batch.
    pub(super) fn page(&self) -> usize {
        match self.requested.get() {
            Some(most) => usize::try_from(most.max(1)).map_or(MAX_PAGE, |page| page.min(MAX_PAGE)),
            None => page::first_page(self.session.store),
        }
    }

    /// The snapshot of this batch, taken at first use.
    pub(super) fn snapshot(&self) -> Result<&Snapshot> {
        if let Some(snapshot) = self.snapshot.get() {
            return Ok(snapshot);
        }
        let taken = match self.if_changed {
            IfChanged::Loads => self.session.snapshot()?,
            IfChanged::Fails => self.session.snapshot_again()?,
        };
        Ok(self.snapshot.get_or_init(|| taken))
    }

    /// Whether a document satisfies the filter.
    pub(super) fn matches(&self, document: RawDoc<'_>) -> Result<bool> {
        let matches = self.query.matcher.matches(document);
        matches.map_err(|error| self.failures.named(error))
    }

    /// Whether a row is known to be a result without its document being read.
    fn is_known_result(&self, row: &Row<'_>) -> bool {
        row.document.is_some() || row.entry.is_some() && !self.collection.hides_expired()
    }

    /// Reads a record. Returns true, and passes the document on, if it exists and satisfies the
    /// filter.
    fn read(&self, record: &[u8], see: &mut dyn FnMut(RawDoc<'_>) -> Result<()>) -> Result<bool> {
        let mut matched = false;
        self.snapshot()?.record(self.collection, record, &mut |document| {
            self.count(0, 1);
            matched = self.matches(document)?;
            if matched { see(document) } else { Ok(()) }
        })?;
        Ok(matched)
    }

    /// Takes back keys that were counted, because they are charged to a later batch.
    fn give_back(&self, keys: u64) {
        if !self.trial {
            self.session.op.keys_examined.fetch_sub(keys, Relaxed);
        }
    }

    /// Counts examined keys and documents.
    pub(super) fn count(&self, keys: u64, documents: u64) {
        if !self.trial {
            self.session.op.keys_examined.fetch_add(keys, Relaxed);
            self.session.op.docs_examined.fetch_add(documents, Relaxed);
        }
    }
}

/// Adds the command and the collection to errors that documents cause.
#[derive(Clone, Copy)]
pub(crate) struct Failures<'b> {
    command: Option<&'static str>,
    collection: &'b Collection,
}

impl<'b> Failures<'b> {
    /// Errors of a command, if there is one.
    pub(crate) fn of(command: Option<&'static str>, collection: &'b Collection) -> Failures<'b> {
        Failures { command, collection }
    }

    /// The error prefixed with the command and the collection.
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

/// The purpose for which records are searched.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum ReadPurpose {
    /// A result that contains their documents.
    #[default]
    Result,
    /// A write, which reads them again and may move their keys.
    Write,
}

/// Settings for a run, made before the nodes start.
#[derive(Default)]
pub(super) struct Settings {
    /// The purpose for which records are searched.
    pub(super) purpose: ReadPurpose,
    /// Whether the scan is tailable; its limit then ends the results, but not the cursor.
    pub(super) is_tailable: bool,
    /// Whether fetches are left out, because keys suffice.
    pub(super) only_keys: bool,
    /// The fields that a sort buffers; `None` for whole documents.
    pub(super) keeps: Option<Fields>,
    /// Whether nodes measure their execution time.
    pub(super) timed: bool,
}

/// Starts the nodes of a plan.
pub(super) fn start(
    plan: &Plan,
    (collection, query): (&Arc<Collection>, &CanonicalQuery),
    settings: &Settings,
) -> Box<dyn Node> {
    let node = started(plan, (collection, query), settings);
    if settings.timed { Box::new(timed::Timed::new(node)) } else { node }
}

fn started(
    plan: &Plan,
    (collection, query): (&Arc<Collection>, &CanonicalQuery),
    settings: &Settings,
) -> Box<dyn Node> {
    let timed = settings.timed;
    let duplicates_allowed = |plan: &Plan| {
        let node = duplicates_allowed(plan);
        if timed { Box::new(timed::Timed::new(node)) } else { node }
    };
    let at_end = if settings.is_tailable { Progress::Waiting } else { Progress::Over };
    let below = |plan: &Plan| start(plan, (collection, query), settings);
    match plan {
        Plan::Nothing => Box::new(Nothing),
        Plan::Id(key) => Box::new(by_id::ById::new(key.clone())),
        Plan::Records(scan) => {
            let tail = settings.is_tailable.then(Tail::default);
            let capped = settings.purpose == ReadPurpose::Result && collection.capped().is_some();
            Box::new(record_scan::Scan::new(scan, tail, capped))
        }
        Plan::Index(scan) if scan.one_per_value.is_some() => {
            Box::new(distinct_scan::Scan::new(scan.clone()))
        }
        Plan::Index(scan) => Box::new(index_scan::Scan::new(scan.clone(), settings.purpose)),
        Plan::Text(access) => Box::new(text::Search::new(access.clone())),
        Plan::Near(access) => Box::new(near::Search::new(access.clone(), settings.purpose)),
        Plan::And(inputs) => {
            let [first, second] = &**inputs;
            let first = below(first);
            Box::new(and_hash::AndHash::new([first, below(second)]))
        }
        Plan::Or(inputs) => Box::new(or::Or::new(inputs.iter().map(duplicates_allowed).collect())),
        Plan::Merge { inputs, pattern, disjoint } => {
            let input = |plan: &Plan| match plan {
                Plan::Index(scan) => {
                    SortKeys::of(scan, pattern).map(|keys| (duplicates_allowed(plan), keys))
                }
                _ => None,
            };
            let repeats = !disjoint || settings.purpose == ReadPurpose::Write;
            Box::new(merge::Merge::new(inputs.iter().filter_map(input).collect(), repeats))
        }
        Plan::Fetch(input) if settings.only_keys => Box::new(keys::Keys::new(below(input))),
        Plan::Fetch(input) => {
            let documents = |node: &Plan| matches!(node, Plan::Near(_) | Plan::Text(_));
            match input.any(&mut |node| documents(node)) {
                true => Box::new(fetch::Fetch::new(below(input))),
                false if input.is_exact() => Box::new(fetch::Fetch::of_results(below(input))),
                false => Box::new(fetch::Fetch::of_keys(below(input))),
            }
        }
        Plan::Covered(input) => {
            let fields = plan.index_scan().map(|scan| scan.index.spec.fields().to_vec());
            Box::new(covered::Covered::new(below(input), fields.unwrap_or_default()))
        }
        Plan::Keys(input) => Box::new(keys::Keys::new(below(input))),
        Plan::Sort { input, most } => {
            let input = below(input);
            Box::new(sort::Sort::new(input, *most, settings.keeps.clone()))
        }
        Plan::Skip { input, count } => Box::new(skip::Skip::new(below(input), *count)),
        Plan::Limit { input, count } => Box::new(skip::Limit::new(below(input), *count, at_end)),
    }
}

/// An input of a node that removes duplicates itself.
fn duplicates_allowed(plan: &Plan) -> Box<dyn Node> {
    match plan {
        Plan::Index(scan) => Box::new(index_scan::Scan::duplicates_allowed(scan.clone())),
        Plan::Records(scan) => Box::new(record_scan::Scan::new(scan, None, false)),
        _ => Box::new(Nothing),
    }
}

/// A node without rows.
struct Nothing;

impl Node for Nothing {
    fn run(&mut self, _: &Batch<'_>, _: &mut Rows<'_>) -> Result<Progress> {
        Ok(Progress::Over)
    }

    fn counters(&self) -> Counters {
        Counters { over: true, ..Counters::default() }
    }
}
