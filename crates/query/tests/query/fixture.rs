//! A store with one collection and its indexes.

use mayfly_storage::ReadView;
use std::sync::Arc;

use mayfly_base::{ManualClock, Namespace, Result};
use mayfly_kv::{Engine, MemoryEngine};
use mayfly_query::{CanonicalQuery, Executor, FindOptions};
use mayfly_storage::{Collection, CreateIndexesOptions, Store, StoreOptions, WriteUnit};
use mayfly_value::bson::Document;
use mayfly_value::{DocBuf, RawDoc, RawValue};
use mayfly_work::{OpCtx, OpRegistry};

pub(crate) struct Fixture {
    pub(crate) store: Arc<Store>,
    pub(crate) op: Arc<OpCtx>,
    pub(crate) clock: Arc<ManualClock>,
    pub(crate) ns: Namespace,
    pub(crate) collection: Arc<Collection>,
}

/// The `_id` of a document, which is a number.
pub(crate) fn id_of(document: RawDoc<'_>) -> i32 {
    match document.get("_id") {
        Some(RawValue::Int32(id)) => id,
        other => panic!("{other:?}"),
    }
}

/// A query with a filter.
pub(crate) fn query(filter: &Document) -> CanonicalQuery {
    let filter = DocBuf::from_bson(filter);
    CanonicalQuery::parse(filter.as_doc(), FindOptions::default()).unwrap()
}

impl Fixture {
    /// A fixture over the memory engine.
    pub(crate) fn new(indexes: &[Document]) -> Fixture {
        Fixture::over(Arc::new(MemoryEngine::new()), indexes)
    }

    /// A fixture over an engine.
    pub(crate) fn over(engine: Arc<dyn Engine>, indexes: &[Document]) -> Fixture {
        Fixture::with_options(engine, &Document::new(), indexes)
    }

    /// A fixture over an engine, with options of the collection.
    pub(crate) fn with_options(
        engine: Arc<dyn Engine>,
        options: &Document,
        indexes: &[Document],
    ) -> Fixture {
        let clock = Arc::new(ManualClock::at_ms(1_000_000));
        let unattended = StoreOptions { background: false, ..StoreOptions::default() };
        let ops = OpRegistry::new(clock.clone());
        let store = Store::open(engine, unattended, clock.clone(), ops).unwrap();
        let op = OpCtx::detached(clock.clone());
        let ns = Namespace::parse("db.c").unwrap();
        let collection =
            store.create_collection(&ReadView::now(), &ns, DocBuf::from_bson(options)).unwrap();
        for index in indexes {
            let spec = DocBuf::from_bson(index);
            let options = CreateIndexesOptions::default();
            store.create_indexes((&op, &ReadView::now()), &ns, &[spec.as_doc()], options).unwrap();
        }
        Fixture { store, op, clock, ns, collection }
    }

    pub(crate) fn insert(&self, document: &Document) {
        self.try_insert(document).unwrap();
    }

    pub(crate) fn try_insert(&self, document: &Document) -> Result<()> {
        let document = DocBuf::from_bson(document);
        let insert = |unit: &mut WriteUnit<'_>| unit.insert(document.as_doc());
        self.store.write(&self.op, &ReadView::now(), &self.collection, insert)
    }

    /// An executor for a filter.
    pub(crate) fn find(&self, filter: &Document) -> Executor {
        Executor::new(&ReadView::now(), self.collection.clone(), query(filter)).unwrap()
    }
}
