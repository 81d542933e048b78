//! Conversions of indexes to unique ones, with kills, crashes and changes between any two steps.

use super::*;
use crate::{CollModChange, CollModResult};

fn convert(f: &Fixture, op: &OpCtx) -> Result<CollModResult> {
    let change = CollModChange { unique: true, ..CollModChange::default() };
    f.store.make_index_unique(op, &ns(), IndexSelector::Name("u"), change)
}

fn prepare(store: &Store, prepare: bool) {
    let prepare_unique = Some(prepare);
    let change = CollModChange { prepare_unique, ..CollModChange::default() };
    store.modify_index(&ns(), IndexSelector::Name("u"), change).unwrap();
}

fn prepared(f: &Fixture) {
    f.build(&[doc! { "key": { "u": 1 }, "name": "u" }]).unwrap();
    prepare(&f.store, true);
}

fn listed(store: &Store) -> Vec<DocBuf> {
    let collection = store.collection(&ReadView::now(), &ns()).unwrap();
    collection.list_indexes()[1..].to_vec()
}

fn with(option: &str) -> Vec<DocBuf> {
    vec![DocBuf::from_bson(&doc! { "v": 2, "key": { "u": 1 }, "name": "u", option: true })]
}

fn violations(error: &Error) -> Vec<Vec<i32>> {
    assert_eq!(error.code(), ErrorCode::CannotConvertIndexToUnique);
    let extra = Document::from_reader(error.extra().unwrap()).unwrap();
    let ids = |item: &Bson| {
        let ids = item.as_document().unwrap().get_array("ids").unwrap();
        ids.iter().map(|id| id.as_i32().unwrap()).collect()
    };
    extra.get_array("violations").unwrap().iter().map(ids).collect()
}

/// The store is copied at each step, and opened again: it has the old index until the conversion
/// has ended, and nothing of the new one.
#[test]
fn a_crash_leaves_the_old_index_or_the_new_one() {
    let [mut old, mut new] = [0, 0];
    at_each_step(|f, at| {
        prepared(f);
        let survivor = Arc::new(Mutex::new(None));
        let (crashed, engine) = (survivor.clone(), f.engine.clone());
        let steps = once(f, at, move |store| {
            assert_eq!(listed(store), with("prepareUnique"));
            *crashed.lock() = Some(copy(&*engine));
        });
        assert!(convert(f, &f.op).unwrap().became_unique);
        assert_eq!(listed(&f.store), with("unique"));
        f.check();
        let after = over(copy(&*f.engine));
        assert_eq!(listed(&after.store), with("unique"));
        after.check();
        new += 1;
        let crashed = survivor.lock().take();
        if let Some(crashed) = crashed {
            let g = over(crashed);
            assert_eq!(listed(&g.store), with("prepareUnique"));
            g.store.sweep_once().unwrap();
            g.check();
            assert!(convert(&g, &g.op).unwrap().became_unique);
            assert_eq!(listed(&g.store), with("unique"));
            g.check();
            old += 1;
        }
        f.store.drop_indexes(&ns(), None).unwrap();
        f.store.sweep_once().unwrap();
        assert_eq!(f.stored_entries(), 0);
        steps
    });
    assert!(old > 10 && new > 10, "{old} {new}");
}

#[test]
fn a_killed_conversion_changes_nothing() {
    at_each_step(|f, at| {
        prepared(f);
        let op = OpCtx::detached(f.clock.clone());
        let killed = op.clone();
        let steps = once(f, at, move |_| killed.kill(ErrorCode::Interrupted));
        if let Err(error) = convert(f, &op) {
            assert_eq!(error.code(), ErrorCode::Interrupted);
            assert_eq!(listed(&f.store), with("prepareUnique"));
            *f.store.between_steps.lock() = None;
            convert(f, &f.op).unwrap();
        }
        assert_eq!(listed(&f.store), with("unique"));
        f.check();
        steps
    });
}

#[test]
fn a_drop_of_the_index_ends_its_conversion() {
    at_each_step(|f, at| {
        prepared(f);
        let steps = once(f, at, |store| {
            store.drop_indexes(&ns(), Some(&[IndexSelector::Name("u")])).unwrap();
        });
        if let Err(error) = convert(f, &f.op) {
            assert_eq!(error.code(), ErrorCode::IndexBuildAborted);
            assert!(f.names().is_empty());
            f.store.sweep_once().unwrap();
            assert_eq!(f.stored_entries(), 0);
        }
        steps
    });
}

#[test]
fn violations_have_the_ids_of_their_documents() {
    let f = fixture();
    let values = [(1, 7), (2, 3), (3, 7), (4, 4), (5, 7), (6, 3), (7, 9)];
    for (id, value) in values {
        f.put(&doc! { "_id": id, "u": value });
    }
    f.put(&doc! { "_id": 8, "u": [4, 4, 9, 20] });
    f.put(&doc! { "_id": 9, "u": [30, 30] });
    prepared(&f);
    let found = violations(&convert(&f, &f.op).unwrap_err());
    assert_eq!(found, [vec![2, 6], vec![4, 8], vec![1, 3, 5], vec![7, 8]]);
    assert_eq!(listed(&f.store), with("prepareUnique"));
    f.check();
    for id in [1, 3, 6, 8] {
        delete(&f.store, &f.op, id);
    }
    let change = CollModChange { unique: true, ..CollModChange::default() };
    let selector = IndexSelector::Name("u");
    f.store.dry_run_unique(&f.op, &ns(), selector, change).unwrap();
    assert_eq!(listed(&f.store), with("prepareUnique"));
    assert!(convert(&f, &f.op).unwrap().became_unique);
    assert!(!convert(&f, &f.op).unwrap().became_unique);
    f.check();
}

/// Keys that come twice after the scan, because `prepareUnique` was taken away.
#[test]
fn an_index_that_is_no_longer_prepared_is_not_converted() {
    for (duplicates, prepared_again) in [(false, false), (true, false), (true, true)] {
        let f = fixture();
        (0..50).for_each(|id| f.put(&doc! { "_id": id, "u": id }));
        prepared(&f);
        let (op, done) = (f.op.clone(), Mutex::new(false));
        f.at("loaded", move |store| {
            if std::mem::replace(&mut *done.lock(), true) {
                return;
            }
            prepare(store, false);
            if duplicates {
                let collection = store.collection(&ReadView::now(), &ns()).unwrap();
                let new = DocBuf::from_bson(&doc! { "_id": 100, "u": 5 });
                let view = ReadView::now();
                store.write(&op, &view, &collection, |unit| unit.insert(new.as_doc())).unwrap();
            }
            prepare(store, prepared_again);
        });
        let error = convert(&f, &f.op).unwrap_err();
        match duplicates {
            true => assert_eq!(violations(&error), [[5, 100]]),
            false => assert_eq!(error.code(), ErrorCode::InvalidOptions),
        }
        let left = match prepared_again {
            true => with("prepareUnique"),
            false => vec![DocBuf::from_bson(&doc! { "v": 2, "key": { "u": 1 }, "name": "u" })],
        };
        assert_eq!(listed(&f.store), left);
        f.check();
    }
}
