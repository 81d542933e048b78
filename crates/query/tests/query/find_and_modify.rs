//! Concurrent `find_and_modify`.

use mayfly_storage::ReadView;
use mayfly_storage::StoreSession;
use std::collections::HashSet;
use std::sync::Arc;

use mayfly_kv::{ChaosEngine, ChaosOptions, Engine, MemoryEngine};
use mayfly_mql::{ParseContext, Update};
use mayfly_query::{
    Budget, CanonicalQuery, DeleteSpec, FindAndModifySpec, FindOptions, Image, UpdateSpec,
    find_and_modify,
};
use mayfly_value::bson::{Document, doc};
use mayfly_value::{DocBuf, RawValue};

use crate::fixture::Fixture;

const CLIENTS: usize = 8;
const JOBS: i32 = 400;

/// A queue of jobs, with or without an index on their order.
fn queue(engine: Arc<dyn Engine>, indexed: bool) -> Fixture {
    let index = indexed.then(|| doc! { "key": { "n": 1 }, "name": "n" });
    let fixture = Fixture::over(engine, index.as_slice());
    for n in 0..JOBS {
        fixture.insert(&doc! { "_id": n, "n": (n * 7) % JOBS, "state": "new" });
    }
    fixture
}

fn query(filter: &Document, sort: &Document) -> CanonicalQuery {
    let (filter, sort) = (DocBuf::from_bson(filter), DocBuf::from_bson(sort));
    let options = FindOptions { sort: Some(sort.as_doc()), ..FindOptions::default() };
    CanonicalQuery::parse(filter.as_doc(), options).unwrap()
}

fn take() -> FindAndModifySpec {
    let update = DocBuf::from_bson(&doc! { "$set": { "state": "taken" } });
    let context = ParseContext::default();
    FindAndModifySpec::Update(UpdateSpec {
        query: query(&doc! { "state": "new" }, &doc! { "n": 1 }),
        update: Update::parse_value(RawValue::Document(update.as_doc()), &context).unwrap(),
        multi: false,
        upsert: false,
        supplied: None,
        new_id: [0; 12],
        bypass_validation: false,
        repeatable: None,
        budget: Budget::default(),
        encrypted: None,
    })
}

fn remove() -> FindAndModifySpec {
    let query = query(&doc! { "state": "new" }, &doc! { "n": 1 });
    FindAndModifySpec::Remove(DeleteSpec {
        query,
        multi: false,
        repeatable: None,
        budget: Budget::default(),
    })
}

fn memory() -> Arc<dyn Engine> {
    Arc::new(MemoryEngine::new())
}

fn chaos() -> Arc<dyn Engine> {
    let options = ChaosOptions {
        seed: 7,
        conflict_probability: 0.05,
        short_pages: true,
        ..ChaosOptions::default()
    };
    Arc::new(ChaosEngine::new(memory(), options))
}

/// Clients take jobs until none are left; each job must be taken exactly once.
fn check(engine: Arc<dyn Engine>, indexed: bool, spec: fn() -> FindAndModifySpec) {
    let f = queue(engine, indexed);
    let taken: Vec<i32> = std::thread::scope(|scope| {
        let client = || {
            let mut mine = Vec::new();
            while let Some(job) = find_and_modify(
                StoreSession::new(&f.store, &f.op, &ReadView::now()),
                &f.collection,
                &spec(),
                Image::Before,
            )
            .unwrap()
            .before
            {
                match job.as_doc().get("_id") {
                    Some(RawValue::Int32(id)) => mine.push(id),
                    other => panic!("no job: {other:?}"),
                }
            }
            mine
        };
        let clients: Vec<_> = (0..CLIENTS).map(|_| scope.spawn(client)).collect();
        clients.into_iter().flat_map(|client| client.join().unwrap()).collect()
    });
    let different: HashSet<i32> = taken.iter().copied().collect();
    assert_eq!((taken.len(), different.len()), (JOBS as usize, JOBS as usize));
}

#[test]
fn clients_that_update_a_queue_get_different_documents() {
    check(memory(), true, take);
    check(memory(), false, take);
    check(chaos(), true, take);
}

#[test]
fn clients_that_pop_a_queue_get_different_documents() {
    check(memory(), true, remove);
    check(memory(), false, remove);
    check(chaos(), false, remove);
}
