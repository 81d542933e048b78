//! Stores for tests of this crate: without background threads, and with a clock that tests move.

use std::ops::ControlFlow;
use std::sync::Arc;

use mayfly_base::{Clock, ManualClock, Namespace, Result};
use mayfly_kv::{Engine, MemoryEngine};
use mayfly_value::DocBuf;
use mayfly_value::bson::Document;
use mayfly_work::{OpCtx, OpRegistry};

use crate::isolation::ReadView;
use crate::*;

/// The start of clocks of [`clock`]: 2027-01-15T08:00:00Z.
pub(crate) const NOW: i64 = 1_800_000_000_000;

/// An open store, and an operation on it.
pub(crate) struct Fixture<C = ManualClock> {
    pub(crate) store: Arc<Store>,
    pub(crate) engine: Arc<dyn Engine>,
    pub(crate) clock: Arc<C>,
    pub(crate) ops: Arc<OpRegistry>,
    pub(crate) op: Arc<OpCtx>,
}

/// A manual clock at [`NOW`].
pub(crate) fn clock() -> Arc<ManualClock> {
    Arc::new(ManualClock::at_ms(NOW))
}

/// An empty engine in memory.
pub(crate) fn memory() -> Arc<dyn Engine> {
    Arc::new(MemoryEngine::new())
}

/// A store over an empty engine in memory.
pub(crate) fn fixture() -> Fixture {
    open(memory(), clock())
}

/// Opens a store over an engine.
pub(crate) fn open<C: Clock + 'static>(engine: Arc<dyn Engine>, clock: Arc<C>) -> Fixture<C> {
    open_with(engine, clock, StoreOptions { background: false, ..StoreOptions::default() })
}

/// Opens a store with these options.
pub(crate) fn open_with<C: Clock + 'static>(
    engine: Arc<dyn Engine>,
    clock: Arc<C>,
    options: StoreOptions,
) -> Fixture<C> {
    let ops = OpRegistry::new(clock.clone());
    let store = Store::open(engine.clone(), options, clock.clone(), ops.clone()).unwrap();
    let op = OpCtx::detached(clock.clone());
    Fixture { store, engine, clock, ops, op }
}

/// The namespace of this name, for example `d.c`.
pub(crate) fn ns(name: &str) -> Namespace {
    Namespace::parse(name).unwrap()
}

impl<C> Fixture<C> {
    /// Inserts a document, and creates a missing collection.
    pub(crate) fn insert(&self, name: &str, document: &Document) -> Result<()> {
        self.insert_in(&ReadView::now(), name, document)
    }

    pub(crate) fn insert_in(&self, view: &ReadView, name: &str, document: &Document) -> Result<()> {
        let (collection, _) = self.store.get_or_create(view, &ns(name))?;
        let document = DocBuf::from_bson(document);
        self.store.write(&self.op, view, &collection, |unit| unit.insert(document.as_doc()))
    }

    /// Creates an index.
    pub(crate) fn index(&self, name: &str, spec: &Document) -> Result<CreateIndexesResult> {
        self.index_in(&ReadView::now(), name, spec)
    }

    pub(crate) fn index_in(
        &self,
        view: &ReadView,
        name: &str,
        spec: &Document,
    ) -> Result<CreateIndexesResult> {
        let spec = DocBuf::from_bson(spec);
        let options = CreateIndexesOptions::default();
        self.store.create_indexes((&self.op, view), &ns(name), &[spec.as_doc()], options)
    }

    /// The number of records. Checks that the kept count agrees with it, and that every entry of an
    /// index has its record.
    pub(crate) fn count(&self, name: &str) -> usize {
        self.count_in(&ReadView::now(), name)
    }

    pub(crate) fn count_in(&self, view: &ReadView, name: &str) -> usize {
        let Some(collection) = self.store.collection(view, &ns(name)) else { return 0 };
        let mut count = 0;
        let (all, forward) = (whole_range(), Direction::Forward);
        let snapshot = self.store.snapshot(view).unwrap();
        snapshot
            .scan_records(&collection, &all, forward, ScanLimit::NONE, &mut |_, _| {
                count += 1;
                Ok(ControlFlow::Continue(()))
            })
            .unwrap();
        if view.is_now() {
            let counted = self.store.count_documents(&self.op, &collection).unwrap();
            assert_eq!(counted, count as i64, "the kept count agrees with the records");
            self.check_indexes(view, &collection);
        }
        count
    }

    fn check_indexes(&self, view: &ReadView, collection: &Collection) {
        let snapshot = self.store.snapshot(view).unwrap();
        for index in collection.ready_indexes() {
            let mut orphans = 0;
            let (all, forward) = (whole_range(), Direction::Forward);
            snapshot
                .scan_index(&index, &all, forward, ScanLimit::NONE, &mut |entry| {
                    if snapshot.record_owned(collection, entry.record_key)?.is_none() {
                        orphans += 1;
                    }
                    Ok(ControlFlow::Continue(()))
                })
                .unwrap();
            assert_eq!(orphans, 0, "index {}", index.spec.name());
        }
    }

    /// The number of entries of the index at this position.
    pub(crate) fn entries(&self, name: &str, index: usize) -> usize {
        self.entries_in(&ReadView::now(), name, index)
    }

    pub(crate) fn entries_in(&self, view: &ReadView, name: &str, index: usize) -> usize {
        let collection = self.store.collection(view, &ns(name)).unwrap();
        let index = collection.indexes()[index].clone();
        let snapshot = self.store.snapshot(view).unwrap();
        let counted = snapshot.count_entries(&index, &whole_range(), usize::MAX);
        counted.unwrap().0 as usize
    }

    /// Entries of the log, at most so many.
    pub(crate) fn log(&self, direction: Direction, most: usize) -> Vec<Document> {
        let mut found = Vec::new();
        let see = &mut |entry: &LogEntry<'_>| {
            let whole = entry.whole()?.into_owned();
            assert_eq!(entry.bytes(), whole.as_bytes().len() as u64);
            found.push(Document::from_reader(whole.as_bytes()).unwrap());
            let enough = found.len() == most;
            Ok(if enough { ControlFlow::Break(()) } else { ControlFlow::Continue(()) })
        };
        self.store.oplog().read(LogRange { first: 1, last: u64::MAX }, direction, see).unwrap();
        found
    }
}
