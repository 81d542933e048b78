//! Builds with writers on other threads, open transactions, and documents that come and go.

use super::*;

#[test]
fn writers_on_other_threads() {
    let f = fixture();
    f.fill(200);
    f.store.index_build_bytes.store(2_000, Ordering::Relaxed);
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for seed in 0..3 {
            let (f, over) = (&f, &over);
            scope.spawn(move || {
                let mut client = Client::new(seed, &f.op);
                client.first = 1_000 * (seed as i32 + 1);
                while !over.load(Ordering::Relaxed) {
                    client.act(&f.store);
                }
            });
        }
        let built = (0..3).try_for_each(|_| {
            f.build(&all_kinds())?;
            f.check();
            f.store.drop_indexes(&ns(), None).map(drop)
        });
        over.store(true, Ordering::Relaxed);
        built.unwrap();
    });
}

/// A document without valid keys ends the build only if it still exists at the end.
#[test]
fn a_document_without_keys_may_go_meanwhile() {
    let index = doc! { "key": { "a": 1, "b": 1 }, "name": "ab" };
    let parallel = doc! { "_id": 1000, "a": [1, 2], "b": [1, 2] };
    let f = fixture();
    f.fill(40);
    f.put(&parallel);
    let error = f.build(std::slice::from_ref(&index)).unwrap_err();
    assert_eq!(error.code(), ErrorCode::CannotIndexParallelArrays);
    let (op, done) = (f.op.clone(), Mutex::new(false));
    f.at("page", move |store| {
        if !std::mem::replace(&mut *done.lock(), true) {
            delete(store, &op, 1000);
        }
    });
    f.build(&[index]).unwrap();
    f.check();
}

/// The transaction is open at the start of the build, and commits during the build or after its
/// end.
#[test]
fn a_transaction_that_wrote_before_the_build_gets_its_keys() {
    let f = fixture();
    f.fill(20);
    let write = |open: OpenTransaction, id: i32| {
        let view = open.enter();
        let collection = f.store.collection(&view, &ns()).unwrap();
        let document = DocBuf::from_bson(&doc! { "_id": id, "u": id });
        f.store.write(&f.op, &view, &collection, |unit| unit.insert(document.as_doc())).unwrap();
        OpenTransaction::leave(view)
    };
    let begin = |id: i32| {
        let owner = TransactionOwner { session: [id as u8; 16], ..owner() };
        write(f.store.begin_transaction(owner).unwrap(), id).unwrap()
    };
    let mut open: Vec<(&str, OpenTransaction)> =
        ["page", "round", "last", "never"].into_iter().zip((500..).map(begin)).collect();
    let after = open.pop().unwrap().1;
    let op = f.op.clone();
    f.between(move |store, step| {
        // Enough notes for a round.
        (1000..1010).filter(|_| step == "page").for_each(|id| add(store, &op, id));
        if let Some(at) = open.iter().position(|(when, _)| *when == step) {
            store.commit_transaction(open.remove(at).1).unwrap();
        }
        open.is_empty()
    });
    f.build(&[unique()]).unwrap();
    assert!(f.store.between_steps.lock().is_none(), "all of them were committed");
    f.check();
    f.store.commit_transaction(after).unwrap();
    f.check();
    let collection = f.store.collection(&ReadView::now(), &ns()).unwrap();
    let entries = f.store.snapshot(&ReadView::now()).unwrap();
    let entries = entries.count_entries(&collection.indexes()[0], &whole_range(), usize::MAX);
    assert_eq!(entries.unwrap().0, 34);
}

#[test]
fn a_writer_that_waits_for_a_build_holds_no_locks() {
    current::announce_waits_by(|wait| {
        WHILE_WAITING.with_borrow_mut(|act| act.iter_mut().for_each(|act| act()));
        wait();
    });
    let waited = Arc::new(AtomicUsize::new(0));
    for capped in [false, true] {
        let f = fixture();
        if capped {
            f.store.drop_collection(&ns()).unwrap();
            let options = DocBuf::from_bson(&doc! { "capped": true, "size": 1 << 20 });
            f.store.create_collection(&ReadView::now(), &ns(), options).unwrap();
        }
        f.fill(40);
        let (op, waited) = (f.op.clone(), waited.clone());
        f.between(move |store, step| {
            if step != "loaded" {
                return false;
            }
            let collection = store.collection(&ReadView::now(), &ns()).unwrap();
            let indexes = collection.indexes();
            let building = indexes.iter().find_map(|index| index.building()).unwrap();
            building.notes.delay(1);
            let (of, waited) = (collection.clone(), waited.clone());
            WHILE_WAITING.set(Some(Box::new(move || {
                assert!(of.state.try_write().is_some(), "the collection's state");
                assert!(of.capped.writing.try_lock().is_some(), "the turn of a capped collection");
                waited.fetch_add(1, Ordering::Relaxed);
            })));
            let new = DocBuf::from_bson(&doc! { "_id": 1000, "a": 5, "u": 1000 });
            store
                .write(&op, &ReadView::now(), &collection, |unit| unit.insert(new.as_doc()))
                .unwrap();
            let owner = TransactionOwner {
                session: [1; 16],
                lsid: DocBuf::from_bson(&doc! {}),
                txn_number: 1,
            };
            if collection.capped().is_none() {
                let view = store.begin_transaction(owner).unwrap().enter();
                let new = DocBuf::from_bson(&doc! { "_id": 1001, "a": 5, "u": 1001 });
                store.write(&op, &view, &collection, |unit| unit.insert(new.as_doc())).unwrap();
                store.commit_transaction(OpenTransaction::leave(view).unwrap()).unwrap();
            }
            WHILE_WAITING.set(None);
            building.notes.delay(0);
            true
        });
        f.build(&two()).unwrap();
        f.check();
    }
    assert_eq!(waited.load(Ordering::Relaxed), 3);
}
