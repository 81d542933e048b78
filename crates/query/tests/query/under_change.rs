//! Reads and writes while indexes and collections change.

use mayfly_base::ErrorCode;
use mayfly_base::testing::wait_until;
use mayfly_mql::{ParseContext, Update};
use mayfly_query::{Budget, DeleteSpec, Flow, UpdateSpec};
use mayfly_storage::ReadView;
use mayfly_storage::StoreSession;
use mayfly_storage::{CreateIndexesOptions, IndexSelector};
use mayfly_value::bson::{Document, doc};
use mayfly_value::{DocBuf, RawValue};

use crate::fixture::{Fixture, query};

fn fixture(index: &Document) -> Fixture {
    Fixture::new(&[doc! { "key": index, "name": "i" }])
}

#[test]
fn a_scan_over_what_is_dropped_meanwhile_is_no_answer() {
    for (filter, drop_all) in [(doc! { "k": 1 }, false), (doc! { "k": 1 }, true), (doc! {}, true)] {
        let f = fixture(&doc! { "k": 1 });
        (0..10).for_each(|n| f.insert(&doc! { "_id": n, "k": 1 }));
        let mut executor = f.find(&filter);
        let mut dropped = false;
        let result =
            executor.run(StoreSession::new(&f.store, &f.op, &ReadView::now()), &mut |_, _, _| {
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
    let mut executor = f.find(&doc! { "k": { "$gte": 0 } });
    f.insert(&doc! { "_id": 1, "k": [1, 2, 3] });
    let mut count = 0;
    let mut counting = f.find(&doc! { "k": { "$gte": 0 } });
    counting.count_only();
    for executor in [&mut executor, &mut counting] {
        executor
            .run(StoreSession::new(&f.store, &f.op, &ReadView::now()), &mut |_, _, _| {
                count += 1;
                Ok(Flow::More)
            })
            .unwrap();
    }
    assert_eq!(count, 2);
}

fn update_spec(filter: &Document, update: &Document) -> UpdateSpec {
    let update = DocBuf::from_bson(update);
    let context = ParseContext::default();
    let update = Update::parse_value(RawValue::Document(update.as_doc()), &context).unwrap();
    UpdateSpec {
        query: query(filter),
        update,
        multi: true,
        upsert: false,
        supplied: None,
        new_id: [0; 12],
        bypass_validation: false,
        repeatable: None,
        budget: Budget::default(),
        encrypted: None,
    }
}

/// Calls `act` on documents 0 to 1999 with `n` 0, while another thread drops the index after the
/// first change.
fn while_the_index_goes<T: Send>(act: impl FnOnce(&Fixture) -> T + Send) -> (Fixture, T) {
    let f = fixture(&doc! { "k": 1 });
    (0..2000).for_each(|n| f.insert(&doc! { "_id": n, "k": 1, "n": 0 }));
    let counted = f.collection.clone();
    let done = std::thread::scope(|scope| {
        let acting = scope.spawn(|| act(&f));
        let changed = || {
            let first = f.store.read_by_id(
                &ReadView::now(),
                &counted,
                &mayfly_storage::id_key(RawValue::Int32(0)),
                |_, d| d.get("n") != Some(RawValue::Int32(0)),
            );
            first.unwrap() != Some(false)
        };
        wait_until("the first document changes", changed);
        f.store.drop_indexes(&f.ns, Some(&[IndexSelector::Name("i")])).unwrap();
        acting.join().unwrap()
    });
    (f, done)
}

#[test]
fn a_delete_goes_on_without_the_index_that_led_to_its_documents() {
    let (f, deleted) = while_the_index_goes(|f| {
        let spec = DeleteSpec {
            query: query(&doc! { "k": 1 }),
            multi: true,
            repeatable: None,
            budget: Budget::default(),
        };
        mayfly_query::delete(
            StoreSession::new(&f.store, &f.op, &ReadView::now()),
            &f.collection,
            &spec,
        )
        .unwrap()
    });
    assert_eq!(deleted, 2000);
    assert_eq!(f.store.count_documents(&f.op, &f.collection).unwrap(), 0);
}

#[test]
fn an_update_never_changes_a_document_twice_because_its_index_goes() {
    let (f, result) = while_the_index_goes(|f| {
        let spec = update_spec(&doc! { "k": 1 }, &doc! { "$inc": { "n": 1 } });
        mayfly_query::update(
            StoreSession::new(&f.store, &f.op, &ReadView::now()),
            &f.collection,
            &spec,
        )
    });
    match result {
        Ok(outcome) => assert_eq!(outcome.modified, 2000),
        Err(error) => assert_eq!(error.code(), ErrorCode::QueryPlanKilled),
    }
    let mut twice = f.find(&doc! { "n": { "$gt": 1 } });
    twice
        .run(StoreSession::new(&f.store, &f.op, &ReadView::now()), &mut |_, document, _| {
            panic!("changed twice: {document:?}")
        })
        .unwrap();
}

#[test]
fn upserts_by_a_unique_key_never_meet_each_other() {
    let f = fixture(&doc! { "other": 1 });
    let spec = DocBuf::from_bson(&doc! { "key": { "u": 1 }, "name": "u", "unique": true });
    f.store
        .create_indexes(
            (&f.op, &ReadView::now()),
            &f.ns,
            &[spec.as_doc()],
            CreateIndexesOptions::default(),
        )
        .unwrap();
    std::thread::scope(|scope| {
        for thread in 0..4_u8 {
            let f = &f;
            scope.spawn(move || {
                for n in 0..500_u16 {
                    let filter = doc! { "u": i32::from(n / 5) };
                    if thread == 3 {
                        let spec = DeleteSpec {
                            query: query(&filter),
                            multi: true,
                            repeatable: None,
                            budget: Budget::default(),
                        };
                        mayfly_query::delete(
                            StoreSession::new(&f.store, &f.op, &ReadView::now()),
                            &f.collection,
                            &spec,
                        )
                        .unwrap();
                        continue;
                    }
                    let mut spec = update_spec(&filter, &doc! { "$inc": { "n": 1 } });
                    let [high, low] = n.to_be_bytes();
                    (spec.upsert, spec.new_id) =
                        (true, [thread, high, low, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
                    let outcome = mayfly_query::update(
                        StoreSession::new(&f.store, &f.op, &ReadView::now()),
                        &f.collection,
                        &spec,
                    )
                    .unwrap();
                    assert!(outcome.matched > 0 || outcome.upserted.is_some());
                }
            });
        }
    });
    let spec = update_spec(&doc! { "u": 1000 }, &doc! { "$set": { "u": 777 } });
    f.insert(&doc! { "_id": 1, "u": 777 });
    let spec = UpdateSpec { upsert: true, ..spec };
    let error = mayfly_query::update(
        StoreSession::new(&f.store, &f.op, &ReadView::now()),
        &f.collection,
        &spec,
    )
    .unwrap_err();
    assert_eq!(error.code(), ErrorCode::DuplicateKey);
}

#[test]
fn a_kill_ends_a_scan_of_many_short_ranges() {
    for (index, field) in [("k", "k"), ("k", "_id")] {
        let f = fixture(&doc! { index: 1 });
        (0..100).for_each(|n| f.insert(&doc! { "_id": n, "k": n }));
        let all: Vec<i32> = (0..100).collect();
        let mut executor = f.find(&doc! { field: { "$in": all } });
        let mut seen = 0;
        let killed =
            executor.run(StoreSession::new(&f.store, &f.op, &ReadView::now()), &mut |_, _, _| {
                seen += 1;
                f.op.kill(ErrorCode::Interrupted);
                Ok(Flow::More)
            });
        assert_eq!(killed.unwrap_err().code(), ErrorCode::Interrupted, "{field}");
        assert!(seen < 20, "{field}: {seen}");
    }
}
