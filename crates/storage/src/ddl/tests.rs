//! Copies and replacements with writes, drops and creations in between. A clock makes them: units
//! read it when they begin, when they hold no lock.

use crate::isolation::ReadView;
use std::sync::{Arc, OnceLock, Weak};

use mayfly_base::testing::wait_until;
use mayfly_base::{Clock, ErrorCode, ManualClock, Namespace, Result};
use mayfly_kv::MemoryEngine;
use mayfly_value::DocBuf;
use mayfly_value::bson::{DateTime, Document, doc};
use mayfly_work::OpCtx;
use parking_lot::Mutex;

use crate::testing::{self, NOW};
use crate::{CreateIndexesOptions, IndexSelector, Store};

/// Called at each reading of the clock, until it returns true.
type Act = Box<dyn FnMut(&Store) -> bool + Send>;

struct ActingClock {
    time: ManualClock,
    store: OnceLock<Weak<Store>>,
    act: Mutex<Option<Act>>,
}

impl Clock for ActingClock {
    fn now_ms(&self) -> i64 {
        self.time.now_ms()
    }

    fn monotonic_micros(&self) -> i64 {
        // The call itself reads the clock.
        let act = self.act.lock().take();
        if let (Some(mut act), Some(store)) = (act, self.store.get().and_then(Weak::upgrade))
            && !act(&store)
        {
            *self.act.lock() = Some(act);
        }
        self.time.monotonic_micros()
    }
}

struct Fixture {
    clock: Arc<ActingClock>,
    store: Arc<Store>,
    op: Arc<OpCtx>,
}

fn fixture() -> Fixture {
    over(Arc::new(MemoryEngine::new()))
}

fn over(engine: Arc<MemoryEngine>) -> Fixture {
    let time = ManualClock::at_ms(NOW);
    let clock = Arc::new(ActingClock { time, store: OnceLock::new(), act: Mutex::new(None) });
    let testing::Fixture { store, op, .. } = testing::open(engine, clock.clone());
    clock.store.set(Arc::downgrade(&store)).unwrap();
    Fixture { clock, store, op }
}

fn ns(name: &str) -> Namespace {
    Namespace::new("d", name).unwrap()
}

impl Fixture {
    fn act(&self, act: impl FnMut(&Store) -> bool + Send + 'static) {
        *self.clock.act.lock() = Some(Box::new(act));
    }

    fn insert(&self, name: &str, document: &Document) {
        insert(&self.store, &self.op, name, document).unwrap();
    }

    fn index(&self, name: &str, index: &Document) {
        let index = DocBuf::from_bson(index);
        let options = CreateIndexesOptions::default();
        self.store
            .create_indexes((&self.op, &ReadView::now()), &ns(name), &[index.as_doc()], options)
            .unwrap();
    }

    fn count(&self, name: &str) -> i64 {
        let collection = self.store.collection(&ReadView::now(), &ns(name)).unwrap();
        self.store.count_documents(&self.op, &collection).unwrap()
    }
}

fn insert(store: &Store, op: &OpCtx, name: &str, document: &Document) -> Result<()> {
    let (collection, _) = store.get_or_create(&ReadView::now(), &ns(name))?;
    let document = DocBuf::from_bson(document);
    store.write(op, &ReadView::now(), &collection, |unit| unit.insert(document.as_doc()))
}

fn capped() -> DocBuf {
    DocBuf::from_bson(&doc! { "capped": true, "size": 1 << 20 })
}

#[test]
fn a_copy_that_fails_takes_nothing_away_but_itself() {
    let f = fixture();
    (0..10).for_each(|id| f.insert("from", &doc! { "_id": id }));
    let op = f.op.clone();
    f.act(move |store| {
        if store.collection(&ReadView::now(), &ns("to")).is_none() {
            return false;
        }
        store.drop_collection(&ns("to")).unwrap();
        insert(store, &op, "to", &doc! { "_id": "another" }).unwrap();
        true
    });
    let (from, to) = (ns("from"), ns("to"));
    let error = f.store.clone_collection(&f.op, &from, &to, capped().as_doc()).unwrap_err();
    assert_eq!(error.code(), ErrorCode::NamespaceNotFound);
    assert_eq!(f.count("to"), 1);
    f.store.drop_collection(&to).unwrap();
    // A copy fails as well if its source was dropped meanwhile.
    f.act(|store| {
        let begun = store.collection(&ReadView::now(), &ns("to")).is_some();
        begun && store.drop_collection(&ns("from")).unwrap().is_some()
    });
    let error = f.store.clone_collection(&f.op, &from, &to, capped().as_doc()).unwrap_err();
    assert_eq!(error.code(), ErrorCode::QueryPlanKilled);
    assert!(f.store.collection(&ReadView::now(), &to).is_none());
}

/// Writers are faster twice, and then wait. Hidden documents are determined before that.
#[test]
fn a_conversion_keeps_what_was_written_meanwhile_and_leaves_out_what_is_hidden() {
    let f = fixture();
    let ttl = doc! { "hideExpired": true };
    f.index("c", &doc! { "key": { "d": 1 }, "name": "d", "expireAfterSeconds": 10, "ttl": ttl });
    f.insert("c", &doc! { "_id": "due", "d": DateTime::from_millis(NOW - 20_000) });
    f.insert("c", &doc! { "_id": "not due", "d": DateTime::from_millis(NOW) });
    let (op, mut written) = (f.op.clone(), 0);
    f.act(move |store| {
        let copying = store.collections(Some("d")).len() == 2;
        if copying {
            written += 1;
            insert(store, &op, "c", &doc! { "_id": written }).unwrap();
        }
        written == 2
    });
    f.store.convert_collection(&f.op, &ns("c"), capped().as_doc()).unwrap();
    assert_eq!(f.count("c"), 3);
    assert_eq!(f.store.collections(Some("d")).len(), 1);
}

/// A command that waited for a conversion looks the collection up again by its name.
#[test]
fn indexes_that_are_asked_for_during_a_conversion_are_those_of_the_result() {
    for _ in 0..5 {
        let f = fixture();
        (0..1000).for_each(|id| f.insert("c", &doc! { "_id": id, "a": id }));
        std::thread::scope(|scope| {
            let converting =
                scope.spawn(|| f.store.convert_collection(&f.op, &ns("c"), capped().as_doc()));
            wait_until("the conversion begins", || {
                f.store.collections(Some("d")).len() > 1 || converting.is_finished()
            });
            f.index("c", &doc! { "key": { "a": 1 }, "name": "a" });
            converting.join().unwrap().unwrap();
        });
        let converted = f.store.collection(&ReadView::now(), &ns("c")).unwrap();
        assert!(converted.capped().is_some());
        assert!(converted.indexes().iter().any(|index| index.spec.name() == "a"));
        f.store.drop_indexes(&ns("c"), Some(&[IndexSelector::Name("a")])).unwrap();
    }
}

#[test]
fn no_conversion_while_an_index_is_built() {
    let f = fixture();
    (0..10).for_each(|id| f.insert("c", &doc! { "_id": id, "a": id }));
    let op = f.op.clone();
    *f.store.between_steps.lock() = Some(Box::new(move |store, _| {
        let refused = store.convert_collection(&op, &ns("c"), capped().as_doc()).unwrap_err();
        assert_eq!(refused.code(), ErrorCode::BackgroundOperationInProgressForNamespace);
        true
    }));
    f.index("c", &doc! { "key": { "a": 1 }, "name": "a" });
    assert!(f.store.between_steps.lock().is_none(), "the build ran before the steps had ended");
    assert!(f.store.collection(&ReadView::now(), &ns("c")).unwrap().capped().is_none());
}

#[test]
fn a_crash_before_a_replacement_has_its_name_leaves_the_target_whole() {
    let engine = Arc::new(MemoryEngine::new());
    let f = over(engine.clone());
    f.insert("c", &doc! { "_id": "old", "a": 1 });
    f.index("c", &doc! { "key": { "a": 1 }, "name": "a", "expireAfterSeconds": 10 });
    let target = f.store.collection(&ReadView::now(), &ns("c")).unwrap();
    let begun = f.store.begin_replacement(&ns("c"), Some(&target), DocBuf::empty()).unwrap();
    let name = begun.collection().namespace();
    f.insert(name.collection(), &doc! { "_id": "new", "a": 2 });
    let listed = target.list_indexes();
    drop((begun, target, f));
    let f = over(engine);
    let all = f.store.collections(Some("d"));
    assert_eq!(all.iter().map(|it| it.namespace()).collect::<Vec<_>>(), [ns("c")]);
    assert_eq!((f.count("c"), all[0].list_indexes()), (1, listed));
    // A finished replacement remains.
    let target = f.store.collection(&ReadView::now(), &ns("c")).unwrap();
    let begun = f.store.begin_replacement(&ns("c"), Some(&target), DocBuf::empty()).unwrap();
    let name = begun.collection().namespace();
    (0..2).for_each(|id| f.insert(name.collection(), &doc! { "_id": id, "a": id }));
    f.store.finish_replacement(&begun).unwrap();
    assert_eq!(f.count("c"), 2);
}
