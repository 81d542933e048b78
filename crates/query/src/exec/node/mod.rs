//! The nodes of a running plan, one file for each kind.
//!
//! A node gives rows to whoever runs it, until that has enough or nothing is left. It keeps positions and what it has to remember,
//! no object of an engine: each batch has a snapshot of its own, over which all nodes of a plan go on.

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
use mayfly_storage::{Collection, Entry, Snapshot};
use mayfly_value::RawDoc;

use super::tail::Tail;
use crate::language::CanonicalQuery;
use crate::language::metadata::Metadata;
use crate::language::needed::Fields;
use crate::memory::{Budget, SortStats};
use crate::plan::{Plan, SortKeys};

/// Entries looked at between two checks of the deadline.
pub(super) const CHUNK_ENTRIES: usize = 256;

/// Documents that are larger, in bytes, are looked at one by one.
pub(super) const LARGE_BYTES: usize = 64 << 10;

/// What a node gives.
pub(super) struct Row<'r> {
    /// The key of the record; empty where results were sorted.
    pub(super) record: &'r [u8],
    /// The document, where it was read.
    pub(super) document: Option<RawDoc<'r>>,
    /// The entry that led to the record, where keys say of documents what they said when the plan was made.
    pub(super) entry: Option<&'r Entry<'r>>,
    /// What is known about the document beside its fields.
    pub(super) metadata: &'r Metadata,
    /// Keys that were looked at since the last row.
    pub(super) keys: u64,
    /// Where its reader may go back to.
    pub(super) place: Option<Place<'r>>,
}

/// A place in a scan: the range, and the position of an entry in it.
#[derive(Clone, Copy)]
pub(super) struct Place<'r> {
    pub(super) range: usize,
    pub(super) position: &'r [u8],
}

impl<'r> Row<'r> {
    /// A document that was read.
    pub(super) fn read(record: &'r [u8], document: RawDoc<'r>, metadata: &'r Metadata) -> Row<'r> {
        Row { record, document: Some(document), entry: None, metadata, keys: 0, place: None }
    }

    /// The key of a record.
    fn key(record: &'r [u8], keys: u64) -> Row<'r> {
        Row { record, document: None, entry: None, metadata: &Metadata::NONE, keys, place: None }
    }
}

/// Takes rows; breaks off when it has enough for now, the last one included.
pub(super) type Rows<'s> = dyn FnMut(&Row<'_>) -> Result<ControlFlow<()>> + 's;

/// How far a node came.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Progress {
    /// It was broken off.
    Stopped,
    /// It was broken off, because no more may be spent on it. Only said of the whole plan.
    Spent,
    /// There is nothing for now.
    Waiting,
    /// Nothing is left.
    Over,
}

/// What a node did.
#[derive(Clone, Debug, Default)]
pub(crate) struct Counters {
    /// Rows that it gave.
    pub(crate) returned: u64,
    /// Rows, keys or documents that it looked at for them.
    pub(crate) looked: u64,
    /// Keys of an index.
    pub(crate) keys: u64,
    /// Documents.
    pub(crate) documents: u64,
    /// Records that were told apart from those before.
    pub(crate) tested: u64,
    /// Those that had been there.
    pub(crate) dropped: u64,
    /// Nothing is left.
    pub(crate) over: bool,
    /// The time that it took with those below it, where that was asked for.
    pub(crate) micros: u64,
    /// Bytes that it keeps of records.
    pub(crate) held: u64,
    /// What a sort took.
    pub(crate) sort: SortStats,
}

impl Counters {
    /// So many rows were for nothing, and so many keys.
    fn take_back(&mut self, (rows, keys): (u64, u64)) {
        self.returned = self.returned.saturating_sub(rows);
        self.keys = self.keys.saturating_sub(keys);
        self.looked = self.looked.saturating_sub(keys);
        self.over = false;
    }
}

/// What the nodes of a plan did, in its shape.
#[derive(Clone, Debug, Default)]
pub(crate) struct Ran {
    pub(crate) counters: Counters,
    pub(crate) inputs: Vec<Ran>,
}

/// A running node.
pub(super) trait Node: Send {
    /// Gives its next rows.
    ///
    /// # Errors
    /// Those of whoever takes the rows, of the store, and of the operation's deadline.
    fn run(&mut self, batch: &Batch<'_>, rows: &mut Rows<'_>) -> Result<Progress>;

    /// What it did.
    fn counters(&self) -> Counters;

    /// Shows what it takes from.
    fn each_input(&self, _: &mut dyn FnMut(&dyn Node)) {}

    /// What it and those below it did.
    fn ran(&self) -> Ran {
        let mut inputs = Vec::new();
        self.each_input(&mut |input| inputs.push(input.ran()));
        Ran { counters: self.counters(), inputs }
    }

    /// Goes on behind this place, which the last run came by. So many rows behind it were for nothing, and so many keys.
    fn go_back(&mut self, _: Place<'_>, _: (u64, u64)) {}

    /// Reads the record keys that are left over the snapshot of this batch, so that later batches do not depend on the places of
    /// index entries. What gives documents instead of keys is left as it is.
    ///
    /// # Errors
    /// Errors of the store, of the operation's deadline, and of files for the keys.
    fn collect_keys(&mut self, _: &Batch<'_>) -> Result<()> {
        Ok(())
    }

    /// Fails when what it or those below it read was dropped.
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

/// What all nodes have in a batch.
pub(super) struct Batch<'b> {
    pub(super) session: StoreSession<'b>,
    pub(super) collection: &'b Arc<Collection>,
    pub(super) query: &'b CanonicalQuery,
    pub(super) budget: &'b Budget,
    pub(super) failures: Failures<'b>,
    /// How many documents are taken at most, where that is known.
    pub(super) wanted: Cell<Option<u64>>,
    /// What may be spent on it: keys and documents that are looked at. Whoever looks stops when nothing is left.
    works: Cell<u64>,
    /// It is tried, and counts for nobody.
    trial: bool,
    snapshot: OnceCell<Snapshot>,
}

impl<'b> Batch<'b> {
    pub(super) fn new(
        session: StoreSession<'b>,
        collection: &'b Arc<Collection>,
        query: &'b CanonicalQuery,
        (budget, command): (&'b Budget, Option<&'static str>),
    ) -> Batch<'b> {
        let failures = Failures::of(command, collection);
        let (wanted, snapshot) = (Cell::new(None), OnceCell::new());
        let (works, trial) = (Cell::new(u64::MAX), false);
        Batch { session, collection, query, budget, failures, wanted, works, trial, snapshot }
    }

    /// The same with so much to spend.
    pub(super) fn with_works(mut self, works: u64, trial: bool) -> Batch<'b> {
        (self.works, self.trial) = (Cell::new(works), trial);
        self
    }

    /// The same over a snapshot that was taken before.
    pub(super) fn over(mut self, snapshot: Option<Snapshot>) -> Batch<'b> {
        self.snapshot = snapshot.map_or_else(OnceCell::new, OnceCell::from);
        self
    }

    /// Its snapshot, if it was taken.
    pub(super) fn into_snapshot(self) -> Option<Snapshot> {
        self.snapshot.into_inner()
    }

    /// What is left to be spent.
    pub(super) fn works_left(&self) -> u64 {
        self.works.get()
    }

    /// Spends so much; false when nothing is left.
    fn spend(&self, works: u64) -> bool {
        let left = self.works.get().saturating_sub(works);
        self.works.set(left);
        left > 0
    }

    /// The snapshot of this batch.
    pub(super) fn snapshot(&self) -> Result<&Snapshot> {
        if let Some(snapshot) = self.snapshot.get() {
            return Ok(snapshot);
        }
        let taken = self.session.snapshot()?;
        Ok(self.snapshot.get_or_init(|| taken))
    }

    /// Whether a document satisfies the filter.
    pub(super) fn matches(&self, document: RawDoc<'_>) -> Result<bool> {
        let matches = self.query.matcher.matches(document);
        matches.map_err(|error| self.failures.named(error))
    }

    /// Whether a row is a result by what its key says, without a look at its document.
    fn tells(&self, row: &Row<'_>) -> bool {
        row.document.is_some() || row.entry.is_some() && !self.collection.hides_expired()
    }

    /// Reads a record; true when there is one that satisfies the filter, which is shown then.
    fn read(&self, record: &[u8], see: &mut dyn FnMut(RawDoc<'_>) -> Result<()>) -> Result<bool> {
        let mut matched = false;
        self.snapshot()?.record(self.collection, record, &mut |document| {
            self.count(0, 1);
            matched = self.matches(document)?;
            if matched { see(document) } else { Ok(()) }
        })?;
        Ok(matched)
    }

    /// So many keys, which were counted, count for a later batch.
    fn give_back(&self, keys: u64) {
        if !self.trial {
            self.session.op.keys_examined.fetch_sub(keys, Relaxed);
        }
    }

    /// Keys and documents were looked at.
    pub(super) fn count(&self, keys: u64, documents: u64) {
        if !self.trial {
            self.session.op.keys_examined.fetch_add(keys, Relaxed);
            self.session.op.docs_examined.fetch_add(documents, Relaxed);
        }
    }
}

/// Names failures that documents cause.
#[derive(Clone, Copy)]
pub(crate) struct Failures<'b> {
    command: Option<&'static str>,
    collection: &'b Collection,
}

impl<'b> Failures<'b> {
    /// Of this command, when there is one.
    pub(crate) fn of(command: Option<&'static str>, collection: &'b Collection) -> Failures<'b> {
        Failures { command, collection }
    }

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

/// What is said of a run before it begins.
#[derive(Default)]
pub(super) struct Settings {
    /// It finds records for a write, which reads them again and may move their keys.
    pub(super) for_write: bool,
    /// The position of a scan that does not end with the collection.
    pub(super) tail: Option<Tail>,
    /// What a sort keeps of documents; nothing: all.
    pub(super) keeps: Option<Fields>,
    /// Nodes say how long they took.
    pub(super) timed: bool,
}

/// The running nodes of a plan.
pub(super) fn start(
    plan: &Plan,
    (collection, query): (&Arc<Collection>, &CanonicalQuery),
    settings: &mut Settings,
) -> Box<dyn Node> {
    let node = started(plan, (collection, query), settings);
    if settings.timed { Box::new(timed::Timed::new(node)) } else { node }
}

fn started(
    plan: &Plan,
    (collection, query): (&Arc<Collection>, &CanonicalQuery),
    settings: &mut Settings,
) -> Box<dyn Node> {
    let timed = settings.timed;
    let one_of_several = |plan: &Plan| {
        let node = one_of_several(plan);
        if timed { Box::new(timed::Timed::new(node)) } else { node }
    };
    let mut below = |plan: &Plan| start(plan, (collection, query), settings);
    match plan {
        Plan::Nothing => Box::new(Nothing),
        Plan::Id(key) => Box::new(by_id::ById::new(key.clone())),
        Plan::Records(scan) => {
            let tail = settings.tail.take();
            let capped = !settings.for_write && collection.capped().is_some();
            Box::new(record_scan::Scan::new(scan, tail, capped))
        }
        Plan::Index(scan) if scan.one_per_value.is_some() => {
            Box::new(distinct_scan::Scan::new(scan.clone()))
        }
        Plan::Index(scan) => Box::new(index_scan::Scan::new(scan.clone(), settings.for_write)),
        Plan::Text(access) => Box::new(text::Search::new(access.clone())),
        Plan::Near(access) => Box::new(near::Search::new(access.clone(), settings.for_write)),
        Plan::And(inputs) => {
            let [first, second] = &**inputs;
            let first = below(first);
            Box::new(and_hash::AndHash::new([first, below(second)]))
        }
        Plan::Or(inputs) => Box::new(or::Or::new(inputs.iter().map(one_of_several).collect())),
        Plan::Merge { inputs, pattern, disjoint } => {
            let input = |plan: &Plan| match plan {
                Plan::Index(scan) => {
                    SortKeys::of(scan, pattern).map(|keys| (one_of_several(plan), keys))
                }
                _ => None,
            };
            let repeats = !disjoint || settings.for_write;
            Box::new(merge::Merge::new(inputs.iter().filter_map(input).collect(), repeats))
        }
        Plan::Fetch(input) => {
            let documents = |node: &Plan| matches!(node, Plan::Near(_) | Plan::Text(_));
            match input.any(&mut |node| documents(node)) {
                true => Box::new(fetch::Fetch::new(below(input))),
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
            Box::new(sort::Sort::new(input, *most, settings.keeps.take()))
        }
        Plan::Skip { input, count } => Box::new(skip::Skip::new(below(input), *count)),
        Plan::Limit { input, count } => Box::new(skip::Limit::new(below(input), *count)),
    }
}

/// An input of a node that tells records apart itself.
fn one_of_several(plan: &Plan) -> Box<dyn Node> {
    match plan {
        Plan::Index(scan) => Box::new(index_scan::Scan::one_of_several(scan.clone())),
        Plan::Records(scan) => Box::new(record_scan::Scan::new(scan, None, false)),
        _ => Box::new(Nothing),
    }
}

/// A node that gives nothing.
struct Nothing;

impl Node for Nothing {
    fn run(&mut self, _: &Batch<'_>, _: &mut Rows<'_>) -> Result<Progress> {
        Ok(Progress::Over)
    }

    fn counters(&self) -> Counters {
        Counters { over: true, ..Counters::default() }
    }
}
