//! A sort by `$natural` is kept, whatever indexes the filter could use.

use mayfly_storage::ReadView;
use mayfly_storage::StoreSession;
use std::sync::Arc;

use mayfly_base::{ManualClock, Namespace};
use mayfly_kv::MemoryEngine;
use mayfly_query::{CanonicalQuery, Executor, FindOptions, Flow};
use mayfly_storage::{CreateIndexesOptions, Store, StoreOptions};
use mayfly_value::bson::{Document, doc};
use mayfly_value::{DocBuf, RawValue};
use mayfly_work::{OpCtx, OpRegistry};

#[test]
fn bounds_do_not_undo_a_natural_order() {
    let clock = Arc::new(ManualClock::at_ms(0));
    let options = StoreOptions { background: false, ..StoreOptions::default() };
    let ops = OpRegistry::new(clock.clone());
    let store = Store::open(Arc::new(MemoryEngine::new()), options, clock.clone(), ops).unwrap();
    let op = OpCtx::detached(clock);
    let ns = Namespace::parse("db.c").unwrap();
    let spec = DocBuf::from_bson(&doc! { "key": { "k": 1 }, "name": "i" });
    store
        .create_indexes(
            (&op, &ReadView::now()),
            &ns,
            &[spec.as_doc()],
            CreateIndexesOptions::default(),
        )
        .unwrap();
    let collection = store.collection(&ReadView::now(), &ns).unwrap();
    for n in 0..5 {
        let document = DocBuf::from_bson(&doc! { "_id": n, "k": (n * 3) % 5 });
        store
            .write(&op, &ReadView::now(), &collection, |unit| unit.insert(document.as_doc()))
            .unwrap();
    }
    let ids = |filter: &Document, order: i32| {
        let (filter, sort) =
            (DocBuf::from_bson(filter), DocBuf::from_bson(&doc! { "$natural": order }));
        let options = FindOptions { sort: Some(sort.as_doc()), ..FindOptions::default() };
        let query = CanonicalQuery::parse(filter.as_doc(), options).unwrap();
        let mut executor = Executor::new(&ReadView::now(), collection.clone(), query).unwrap();
        let mut ids = Vec::new();
        executor
            .run(StoreSession::new(&store, &op, &ReadView::now()), &mut |_, document, _| {
                if let Some(RawValue::Int32(id)) = document.get("_id") {
                    ids.push(id);
                }
                Ok(Flow::More)
            })
            .unwrap();
        ids
    };
    for filter in [doc! {}, doc! { "_id": { "$gte": 0 } }, doc! { "k": { "$gte": 0 } }] {
        assert_eq!(ids(&filter, -1), [4, 3, 2, 1, 0], "{filter}");
        assert_eq!(ids(&filter, 1), [0, 1, 2, 3, 4], "{filter}");
    }
}
