//! Capped collections with concurrent writers and tailable cursors.

use mayfly_storage::ReadView;
use mayfly_storage::StoreSession;
use std::sync::Arc;

use mayfly_base::ErrorCode;
use mayfly_base::testing::wait_until;
use mayfly_kv::{ChaosEngine, ChaosOptions, Engine, MemoryEngine};
use mayfly_query::{CanonicalQuery, Executor, FindOptions, Flow};
use mayfly_value::bson::doc;
use mayfly_value::{RawDoc, RawValue};

use crate::fixture::Fixture;

fn fixture(engine: Arc<dyn Engine>, max: i32) -> Fixture {
    Fixture::with_options(engine, &doc! { "capped": true, "size": 1 << 20, "max": max }, &[])
}

impl Fixture {
    fn insert_id(&self, id: i32) {
        self.insert(&doc! { "_id": id });
    }

    fn follower(&self) -> Executor {
        let query = CanonicalQuery::parse(RawDoc::EMPTY, FindOptions::default()).unwrap();
        let mut executor = Executor::new(&ReadView::now(), self.collection.clone(), query).unwrap();
        executor.make_tailable().unwrap();
        executor
    }

    fn next(&self, executor: &mut Executor) -> mayfly_base::Result<Vec<i32>> {
        let mut ids = Vec::new();
        executor.run(
            StoreSession::new(&self.store, &self.op, &ReadView::now()),
            &mut |_, document, _| {
                if let Some(RawValue::Int32(id)) = document.get("_id") {
                    ids.push(id);
                }
                Ok(Flow::More)
            },
        )?;
        Ok(ids)
    }
}

#[test]
fn racing_writers_keep_the_limit_and_followers_miss_nothing() {
    let memory = Arc::new(MemoryEngine::new());
    let chaos = ChaosEngine::new(memory, ChaosOptions::default());
    let f = fixture(Arc::new(chaos), 10_000);
    f.insert_id(-1);
    let mut follower = f.follower();
    let mut seen = f.next(&mut follower).unwrap();
    std::thread::scope(|scope| {
        for writer in 0..4 {
            let f = &f;
            scope.spawn(move || (0..100).for_each(|n| f.insert_id(writer * 1000 + n)));
        }
        while seen.len() < 401 {
            let commits = f.collection.commits_seen();
            let found = f.next(&mut follower).unwrap();
            wait_until("a commit", || !found.is_empty() || f.collection.commits_seen() != commits);
            seen.extend(found);
        }
    });
    // The documents of each writer are in order, without duplicates.
    for writer in 0..4 {
        let own: Vec<i32> =
            seen.iter().copied().filter(|id| *id >= 0 && id / 1000 == writer).collect();
        assert_eq!(own, (0..100).map(|n| writer * 1000 + n).collect::<Vec<_>>());
    }
    assert_eq!(f.store.count_documents(&f.op, &f.collection).unwrap(), 401);
}

#[test]
fn the_oldest_go_and_a_follower_that_was_overtaken_fails() {
    let f = fixture(Arc::new(MemoryEngine::new()), 5);
    f.insert_id(0);
    let mut follower = f.follower();
    assert_eq!(f.next(&mut follower).unwrap(), [0]);
    (1..5).for_each(|id| f.insert_id(id));
    assert_eq!(f.next(&mut follower).unwrap(), [1, 2, 3, 4]);
    (5..20).for_each(|id| f.insert_id(id));
    assert_eq!(f.store.count_documents(&f.op, &f.collection).unwrap(), 5);
    let lost = f.next(&mut follower).unwrap_err();
    assert_eq!(lost.code(), ErrorCode::CappedPositionLost);
    assert_eq!(f.next(&mut f.follower()).unwrap(), [15, 16, 17, 18, 19]);
    let there = |id: i32| {
        f.store.locate(&ReadView::now(), &f.collection, RawValue::Int32(id)).unwrap().is_some()
    };
    assert!(there(15) && !there(14), "the entries of _id go with their records");
}

#[test]
fn a_follower_of_an_empty_collection_is_done() {
    let f = fixture(Arc::new(MemoryEngine::new()), 5);
    let mut follower = f.follower();
    assert!(f.next(&mut follower).unwrap().is_empty());
    assert!(follower.is_done());
}
