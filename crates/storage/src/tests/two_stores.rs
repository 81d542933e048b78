//! Two stores over one engine, as two servers have them that share a database.

use std::collections::BTreeSet;

use mayfly_value::bson::doc;

use super::*;

/// Two stores over one engine, with the same clock.
fn two() -> [Fixture; 2] {
    let (engine, clock) = (testing::memory(), testing::clock());
    [testing::open(engine.clone(), clock.clone()), testing::open(engine, clock)]
}

#[test]
fn documents_of_one_store_do_not_replace_those_of_the_other() {
    let (engine, clock) = (testing::memory(), testing::clock());
    let first = testing::open(engine.clone(), clock.clone());
    first.insert("d.c", &doc! { "_id": -1 }).unwrap();
    let stores = [first, testing::open(engine.clone(), clock.clone())];
    std::thread::scope(|scope| {
        for (at, store) in stores.iter().enumerate() {
            scope.spawn(move || {
                for number in 0..3_000 {
                    store.insert("d.c", &doc! { "_id": number * 2 + at as i32 }).unwrap();
                }
            });
        }
    });
    assert_eq!(testing::open(engine, clock).count("d.c"), 6_001);
}

#[test]
fn both_stores_note_which_fields_contain_arrays() {
    let (engine, clock) = (testing::memory(), testing::clock());
    let first = testing::open(engine.clone(), clock.clone());
    first.index("d.c", &doc! { "key": { "a": 1, "b": 1 }, "name": "ab" }).unwrap();
    let second = testing::open(engine.clone(), clock.clone());
    first.insert("d.c", &doc! { "_id": 1, "a": [1, 2], "b": 3 }).unwrap();
    second.insert("d.c", &doc! { "_id": 2, "a": 1, "b": [2, 3] }).unwrap();
    let again = testing::open(engine, clock);
    let collection = again.store.collection(&ReadView::now(), &ns("d.c")).unwrap();
    assert_eq!(collection.indexes()[0].multikey_mask(), 0b11);
}

#[test]
fn objects_of_two_stores_have_different_ids() {
    let stores = two();
    let mut ids = BTreeSet::new();
    for round in 0..100 {
        for (at, store) in stores.iter().enumerate() {
            let name = format!("d.c{at}_{round}");
            store.insert(&name, &doc! { "_id": 1 }).unwrap();
            let collection = store.store.collection(&ReadView::now(), &ns(&name)).unwrap();
            assert!(ids.insert(collection.id()));
            assert!(ids.insert(collection.id_index().unwrap().id));
        }
    }
}
