//! Reads and writes while indexes and collections change under them.

use std::sync::Arc;

use mayfly_base::{ErrorCode, ManualClock, Namespace, OpCtx, OpRegistry};
use mayfly_kv::MemoryEngine;
use mayfly_query::{CanonicalQuery, Executor, FindOptions, Flow};
use mayfly_storage::{Collection, IndexSelector, Store, StoreOptions};
use mayfly_value::DocBuf;
use mayfly_value::bson::{Document, doc};

struct Fixture {
    store: Arc<Store>,
    op: Arc<OpCtx>,
    ns: Namespace,
    collection: Arc<Collection>,
}

fn fixture(index: &Document) -> Fixture {
    let clock = Arc::new(ManualClock::at_ms(0));
    let options = StoreOptions { background: false, ..StoreOptions::default() };
    let ops = OpRegistry::new(clock.clone());
    let store = Store::open(Arc::new(MemoryEngine::new()), options, clock.clone(), ops).unwrap();
    let op = OpCtx::detached(clock);
    let ns = Namespace::parse("db.c").unwrap();
    let spec = DocBuf::from_bson(&doc! { "key": index, "name": "i" });
    store.create_indexes(&op, &ns, &[spec.as_doc()], false).unwrap();
    let collection = store.collection(&ns).unwrap();
    Fixture { store, op, ns, collection }
}

fn query(filter: &Document) -> CanonicalQuery {
    let filter = DocBuf::from_bson(filter);
    CanonicalQuery::parse(filter.as_doc(), FindOptions::default()).unwrap()
}

impl Fixture {
    fn insert(&self, document: &Document) {
        let document = DocBuf::from_bson(document);
        let insert = |unit: &mut mayfly_storage::WriteUnit<'_>| unit.insert(document.as_doc());
        self.store.write(&self.op, &self.collection, insert).unwrap();
    }

    fn executor(&self, filter: &Document) -> Executor {
        Executor::new(self.collection.clone(), query(filter)).unwrap()
    }
}

#[test]
fn a_scan_over_what_is_dropped_meanwhile_is_no_answer() {
    for (filter, drop_all) in [(doc! { "k": 1 }, false), (doc! { "k": 1 }, true), (doc! {}, true)] {
        let f = fixture(&doc! { "k": 1 });
        (0..10).for_each(|n| f.insert(&doc! { "_id": n, "k": 1 }));
        let mut executor = f.executor(&filter);
        let mut dropped = false;
        let result = executor.run(&f.store, &f.op, &mut |_, _| {
            if !std::mem::replace(&mut dropped, true) {
                if drop_all {
                    f.store.drop_collection(&f.ns).unwrap();
                } else {
                    f.store.drop_indexes(&f.ns, Some(&[IndexSelector::Name("i")])).unwrap();
                }
                f.store.sweep_once().unwrap();
            }
            Ok(Flow::More)
        });
        assert_eq!(result.unwrap_err().code(), ErrorCode::QueryPlanKilled, "{filter} {drop_all}");
    }
}

#[test]
fn a_plan_older_than_the_first_array_shows_its_document_once() {
    let f = fixture(&doc! { "k": 1 });
    let mut executor = f.executor(&doc! { "k": { "$gte": 0 } });
    f.insert(&doc! { "_id": 1, "k": [1, 2, 3] });
    let mut count = 0;
    let mut counting = f.executor(&doc! { "k": { "$gte": 0 } });
    counting.count_only();
    for executor in [&mut executor, &mut counting] {
        executor
            .run(&f.store, &f.op, &mut |_, _| {
                count += 1;
                Ok(Flow::More)
            })
            .unwrap();
    }
    assert_eq!(count, 2);
}
