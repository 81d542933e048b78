//! TTL indexes and passes: the cutoff, arrays of dates, fairness, restarts.

use super::*;

#[test]
fn t_30_hourly_documents_and_two_policies() {
    let f = fixture();
    for hour in 0..24 {
        let at = date(NOW - hour * 3_600_000);
        f.insert("d.c", &doc! { "_id": hour, "x": at.clone(), "y": at }).unwrap();
    }
    let others = [Bson::Null, Bson::from(1), Bson::from("x"), Bson::from(true), doc! {}.into()];
    for (at, other) in others.into_iter().enumerate() {
        f.insert("d.c", &doc! { "_id": format!("o{at}"), "x": other }).unwrap();
    }
    f.insert("d.c", &doc! { "_id": "none" }).unwrap();
    f.index("d.c", &ttl("x", 20_000)).unwrap();
    f.pass();
    assert_eq!(f.count("d.c"), 12);
    f.index("d.c", &ttl("y", 10_000)).unwrap();
    f.pass();
    assert_eq!(f.count("d.c"), 9);
}

#[test]
fn t_31_the_cutoff_is_inclusive_and_t_39_future_dates_wait() {
    let f = fixture();
    f.index("d.c", &ttl("x", 0)).unwrap();
    f.insert("d.c", &doc! { "_id": 1, "x": date(NOW) }).unwrap();
    f.insert("d.c", &doc! { "_id": 2, "x": date(NOW + 1) }).unwrap();
    f.pass();
    assert_eq!(f.count("d.c"), 1);
    f.clock.advance_ms(1);
    f.pass();
    assert_eq!(f.count("d.c"), 0);
}

#[test]
fn t_33_the_earliest_date_of_an_array_decides() {
    let f = fixture();
    f.index("d.c", &ttl("x", 0)).unwrap();
    let (past, future) = (date(NOW - 1), date(NOW + 1));
    f.insert("d.c", &doc! { "_id": "go1", "x": [future.clone(), past.clone()] }).unwrap();
    f.insert("d.c", &doc! { "_id": "stay", "x": [future.clone(), future] }).unwrap();
    f.insert("d.c", &doc! { "_id": "go2", "x": ["x", past.clone()] }).unwrap();
    f.insert("d.c", &doc! { "_id": "stay2", "x": [] }).unwrap();
    f.insert("d.c", &doc! { "_id": "stay3", "x": [[past]] }).unwrap();
    f.pass();
    assert_eq!(f.count("d.c"), 3);
}

#[test]
fn t_36_dates_before_1970() {
    let f = fixture();
    f.index("d.c", &ttl("x", 3600)).unwrap();
    f.insert("d.c", &doc! { "_id": 1900, "x": date(-2_208_988_800_000) }).unwrap();
    f.insert("d.c", &doc! { "_id": 1, "x": date(i64::MIN) }).unwrap();
    f.pass();
    assert_eq!(f.count("d.c"), 0);
    f.index("d.e", &ttl("x", i32::MAX)).unwrap();
    f.insert("d.e", &doc! { "_id": 1950, "x": date(-631_152_000_000) }).unwrap();
    f.insert("d.e", &doc! { "_id": 1970, "x": date(0) }).unwrap();
    f.pass();
    assert_eq!(f.count("d.e"), 1);
}

#[test]
fn t_35_a_descending_index_expires_oldest_first() {
    let f = fixture();
    let spec = doc! { "key": { "x": -1 }, "name": "x_-1", "expireAfterSeconds": 0 };
    f.index("d.c", &spec).unwrap();
    for back in 0..50 {
        f.insert("d.c", &doc! { "_id": back, "x": date(NOW - back) }).unwrap();
    }
    f.insert("d.c", &doc! { "_id": "later", "x": date(NOW + 1) }).unwrap();
    f.store.ttl_params().index_target_docs.store(20, Ordering::Relaxed);
    f.store.ttl_params().sub_pass_target_secs.store(0, Ordering::Relaxed);
    let never = AtomicBool::new(false);
    assert!(f.store.run_ttl_sub_pass(&mut PassState::default(), &never).unwrap());
    assert_eq!(f.count("d.c"), 31);
    let collection = f.store.collection(&ReadView::now(), &ns("d.c")).unwrap();
    assert!(f.store.locate(&ReadView::now(), &collection, RawValue::Int32(49)).unwrap().is_none());
    f.pass();
    assert_eq!(f.count("d.c"), 1);
}

#[test]
fn t_45_one_sub_pass_is_fair() {
    let f = fixture();
    for id in 0..40 {
        f.insert("d.x", &doc! { "_id": id, "x": date(NOW - 1000) }).unwrap();
    }
    f.insert("d.y", &doc! { "_id": 1, "y": date(NOW - 1000) }).unwrap();
    f.index("d.x", &ttl("x", 0)).unwrap();
    f.index("d.y", &ttl("y", 0)).unwrap();
    f.store.ttl_params().index_target_docs.store(20, Ordering::Relaxed);
    f.store.ttl_params().sub_pass_target_secs.store(0, Ordering::Relaxed);
    let never = AtomicBool::new(false);
    assert!(f.store.run_ttl_sub_pass(&mut PassState::default(), &never).unwrap());
    assert_eq!((f.count("d.x"), f.count("d.y")), (20, 0));
}

#[test]
fn t_48_an_invalid_policy_does_not_stop_the_others() {
    let f = fixture();
    for name in ["d.x", "d.y"] {
        f.insert(name, &doc! { "_id": 1, "x": date(NOW - 1000) }).unwrap();
        f.index(name, &ttl("x", 0)).unwrap();
    }
    // The catalog as an old server may have left it.
    let broken = doc! { "v": 2, "key": { "x": 1 }, "name": "x_1", "expireAfterSeconds": f64::NAN };
    let collection = f.store.collection(&ReadView::now(), &ns("d.x")).unwrap();
    {
        let mut state = collection.state.write();
        let mut changed = state.clone();
        let old = state.indexes[0].clone();
        changed.indexes[0] = Arc::new(Index {
            id: old.id,
            spec: IndexSpec::from_catalog(DocBuf::from_bson(&broken)).unwrap(),
            filter: None,
            runtime: old.runtime.clone(),
        });
        collection.install(&mut state, changed);
    }
    f.pass();
    assert_eq!((f.count("d.x"), f.count("d.y")), (1, 0));
    assert_eq!(f.store.ttl_stats().invalid_ttl_index_skips.load(Ordering::Relaxed), 1);
    let listed = collection.list_indexes()[1].clone();
    assert_eq!(listed.as_doc().get("expireAfterSeconds"), Some(RawValue::Int32(i32::MAX)));
}

#[test]
fn t_49_rename_keeps_and_recreate_forgets_the_policy() {
    let f = fixture();
    f.index("d.c", &ttl("x", 0)).unwrap();
    f.insert("d.c", &doc! { "_id": 1, "x": date(NOW - 1) }).unwrap();
    f.store.rename_collection(&ns("d.c"), &ns("d.e"), RenameTarget::MustNotExist).unwrap();
    f.pass();
    assert_eq!(f.count("d.e"), 0);
    f.store.drop_collection(&ns("d.e")).unwrap();
    f.insert("d.e", &doc! { "_id": 1, "x": date(NOW - 1) }).unwrap();
    f.pass();
    f.store.sweep_once().unwrap();
    assert_eq!(f.count("d.e"), 1);
}

#[test]
fn t_50_policies_survive_a_restart() {
    let f = fixture();
    f.index("d.c", &ttl("x", 0)).unwrap();
    f.insert("d.c", &doc! { "_id": 1, "x": date(NOW + 5) }).unwrap();
    let g = testing::open(f.engine.clone(), f.clock.clone());
    g.clock.advance_ms(5);
    g.pass();
    assert_eq!(g.count("d.c"), 0);
}
