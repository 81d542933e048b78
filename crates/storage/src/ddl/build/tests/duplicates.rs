//! Builds of unique indexes while duplicates come and go.

use super::*;

#[test]
fn duplicates_end_a_build_whenever_they_come() {
    for step in ["before", "page", "load", "loaded", "last"] {
        let f = fixture();
        (0..100).for_each(|id| f.put(&doc! { "_id": id, "u": id }));
        let again = DocBuf::from_bson(&doc! { "_id": 1000, "u": 5 });
        if step == "before" {
            f.put(&doc! { "_id": 1000, "u": 5 });
        }
        let op = f.op.clone();
        let done = Mutex::new(false);
        f.at(step, move |store| {
            let collection = store.collection(&ReadView::now(), &ns()).unwrap();
            if !std::mem::replace(&mut *done.lock(), true) {
                store
                    .write(&op, &ReadView::now(), &collection, |unit| unit.insert(again.as_doc()))
                    .unwrap();
            }
        });
        let error = f.build(&[unique()]).unwrap_err();
        assert_eq!(error.code(), ErrorCode::DuplicateKey, "{step}");
        let text = "E11000 duplicate key error collection: d.c index: u dup key: { u: 5 }";
        assert_eq!(error.message(), text);
        let extra = Document::from_reader(error.extra().unwrap()).unwrap();
        assert_eq!(extra, doc! { "keyPattern": { "u": 1 }, "keyValue": { "u": 5 } });
        assert!(f.names().is_empty());
        f.store.sweep_once().unwrap();
        assert_eq!(f.stored_entries(), 0);
    }
}

#[test]
fn duplicates_that_are_gone_again_end_nothing() {
    for (step, gone) in [("load", 5), ("load", 1000), ("page", 5), ("page", 1000)] {
        let f = fixture();
        (0..100).for_each(|id| f.put(&doc! { "_id": id, "u": id }));
        f.put(&doc! { "_id": 1000, "u": 5 });
        let (op, seen) = (f.op.clone(), AtomicUsize::new(0));
        f.at(step, move |store| {
            // The walk may or may not have read the last page.
            if seen.fetch_add(1, Ordering::Relaxed) == 0 {
                delete(store, &op, gone);
            }
        });
        f.build(&[unique()]).unwrap();
        f.check();
        let left = if gone == 5 { 1000 } else { 5 };
        let error = {
            let collection = f.store.collection(&ReadView::now(), &ns()).unwrap();
            let document = DocBuf::from_bson(&doc! { "_id": 2000, "u": 5 });
            f.store
                .write(&f.op, &ReadView::now(), &collection, |unit| unit.insert(document.as_doc()))
                .unwrap_err()
        };
        assert_eq!(error.code(), ErrorCode::DuplicateKey, "{left} has it");
    }
}

#[test]
fn a_key_goes_from_one_document_to_another() {
    // At every step the value moves to another document, so that the build sees it twice.
    let f = fixture();
    (0..50).for_each(|id| f.put(&doc! { "_id": id, "u": id }));
    let (op, next) = (f.op.clone(), AtomicUsize::new(0));
    f.between(move |store, _| {
        if next.load(Ordering::Relaxed) > 200 {
            return true;
        }
        let collection = store.collection(&ReadView::now(), &ns()).unwrap();
        for _ in 0..4 {
            let n = next.fetch_add(1, Ordering::Relaxed) as i32;
            let (from, to) = (n % 50, (n + 1) % 50);
            let set = |unit: &mut WriteUnit<'_>, id: i32, u: i32| {
                let key = unit.locate(id_key(RawValue::Int32(id)))?.unwrap();
                let old = unit.read(&key)?.unwrap();
                let new = DocBuf::from_bson(&doc! { "_id": id, "u": u });
                unit.update(&key, &old, new.as_doc(), UpdateStyle::Computed)
            };
            let number = |id: i32, unit: &mut WriteUnit<'_>| {
                let key = unit.locate(id_key(RawValue::Int32(id))).unwrap().unwrap();
                let old = unit.read(&key).unwrap().unwrap();
                old.as_doc().get("u").and_then(|u| match u {
                    RawValue::Int32(u) => Some(u),
                    _ => None,
                })
            };
            let swap = |unit: &mut WriteUnit<'_>| {
                let (a, b) = (number(from, unit).unwrap(), number(to, unit).unwrap());
                set(unit, from, b)?;
                set(unit, to, a)
            };
            store.write(&op, &ReadView::now(), &collection, swap).unwrap();
        }
        false
    });
    f.build(&[unique()]).unwrap();
    f.check();
}

#[test]
fn a_hidden_document_is_no_duplicate() {
    for step in ["before", "page", "loaded", "last"] {
        let f = fixture();
        let ttl = doc! { "hideExpired": true };
        let hiding = doc! { "key": { "d": 1 }, "name": "d", "expireAfterSeconds": 10, "ttl": ttl };
        f.put(&doc! { "_id": -1 });
        f.build(&[hiding]).unwrap();
        (0..100).for_each(|id| f.put(&doc! { "_id": id, "u": id }));
        let date = DateTime::from_millis(NOW);
        let early = doc! { "_id": 1000, "u": 5, "d": date };
        let late = DocBuf::from_bson(&doc! { "_id": -5, "u": 6, "d": date });
        f.put(&early);
        if step == "before" {
            f.clock.advance_ms(20_000);
        }
        let (op, clock, done) = (f.op.clone(), f.clock.clone(), Mutex::new(false));
        f.at(step, move |store| {
            let collection = store.collection(&ReadView::now(), &ns()).unwrap();
            if !std::mem::replace(&mut *done.lock(), true) {
                store
                    .write(&op, &ReadView::now(), &collection, |unit| unit.insert(late.as_doc()))
                    .unwrap();
                clock.advance_ms(20_000);
            }
        });
        if step == "loaded" || step == "last" {
            // Both documents are visible and have the key.
            let error = f.build(&[unique()]).unwrap_err();
            assert_eq!(error.code(), ErrorCode::DuplicateKey);
            f.clock.advance_ms(20_000);
        }
        f.build(&[unique()]).unwrap();
        f.check();
    }
}
