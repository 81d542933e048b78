//! Panics of background threads, filters that fail, slow units, damaged bytes, and closed stores.

use super::*;

#[test]
fn a_dropped_store_lets_go_of_its_engine() {
    let f = fixture();
    f.insert("d.c", &doc! { "_id": 1 }).unwrap();
    let engine = f.engine.clone();
    drop(f);
    assert_eq!(Arc::strong_count(&engine), 1, "no thread keeps the engine");
}

#[test]
fn a_closed_store_refuses_writes_and_ends_waits() {
    let f = fixture();
    f.insert("d.c", &doc! { "_id": 1 }).unwrap();
    f.store.close().unwrap();
    let late = f.insert("d.c", &doc! { "_id": 2 }).unwrap_err();
    assert_eq!(late.code(), ErrorCode::InterruptedAtShutdown);
    // A wait for durability ends.
    let mut waiting = std::pin::pin!(f.store.wait_durable());
    let mut context = std::task::Context::from_waker(std::task::Waker::noop());
    assert!(waiting.as_mut().poll(&mut context).is_ready());
}

/// Filters that match everything, and panic at their second evaluation.
#[derive(Default)]
struct PanicOnce(Arc<std::sync::atomic::AtomicUsize>);

impl FilterCompiler for PanicOnce {
    fn compile(
        &self,
        _: RawDoc<'_>,
        _: Option<&Arc<Collation>>,
    ) -> mayfly_base::Result<Arc<dyn RecordFilter>> {
        Ok(Arc::new(PanicOnce(self.0.clone())))
    }
}

impl RecordFilter for PanicOnce {
    fn matches(&self, _: RawDoc<'_>) -> mayfly_base::Result<bool> {
        assert_ne!(self.0.fetch_add(1, Ordering::Relaxed), 1, "on purpose");
        Ok(true)
    }

    fn as_any(&self) -> &dyn std::any::Any {
        self
    }
}

#[test]
fn the_monitor_outlives_a_panic_of_a_pass() {
    let clock = testing::clock();
    let filters = Arc::new(PanicOnce::default());
    let asked = filters.0.clone();
    let options = StoreOptions { background: true, filters, ..StoreOptions::default() };
    let engine = testing::memory();
    let f = testing::open_with(engine.clone(), clock, options);
    let mut spec = ttl("x", 0);
    spec.insert("partialFilterExpression", doc! { "y": 1 });
    f.index("d.c", &spec).unwrap();
    f.insert("d.c", &doc! { "_id": 1, "x": date(NOW - 1) }).unwrap();
    let collection = f.store.collection(&ReadView::now(), &ns("d.c")).unwrap();
    wait_until("the document goes", || {
        assert!(asked.load(Ordering::Relaxed) < 2 || f.store.ttl_running(), "expiry has ended");
        f.clock.advance_ms(60_000);
        f.store.ttl_params().wake();
        f.store.count_documents(&f.op, &collection).unwrap() == 0
    });
    f.store.close().unwrap();
}

/// Its first sweep panics.
struct SweepsLater(std::sync::atomic::AtomicUsize, MemoryEngine);

impl EngineWrapper for SweepsLater {
    fn inner(&self) -> &dyn Engine {
        &self.1
    }

    fn sweep_range(&self, keyspace: Keyspace, range: &KeyRange, max: usize) -> KvResult<SweepEnd> {
        assert_ne!(self.0.fetch_add(1, Ordering::AcqRel), 0, "on purpose");
        self.1.sweep_range(keyspace, range, max)
    }
}

#[test]
fn the_sweeper_outlives_a_panic() {
    let clock = testing::clock();
    let sweeps = Arc::new(SweepsLater(Default::default(), MemoryEngine::new()));
    let engine: Arc<dyn Engine> = sweeps.clone();
    let options = StoreOptions::default();
    let f = testing::open_with(engine.clone(), clock, options);
    f.insert("d.c", &doc! { "_id": 1 }).unwrap();
    let all = KeyRange { start: Vec::new(), end: vec![0xFF; 16] };
    let stored = || f.engine.approximate_bytes(Keyspace::Record, &all).unwrap();
    assert!(stored() > 0);
    f.store.drop_collection(&ns("d.c")).unwrap();
    wait_until("the record is cleared", || {
        assert!(sweeps.0.load(Ordering::Acquire) < 1 || f.store.sweeper_running(), "it has ended");
        f.store.wake_sweeper();
        stored() == 0
    });
    f.store.close().unwrap();
}

/// Filters that fail on documents with a field `hard` while a flag is set.
#[derive(Clone, Default)]
struct Unsure(Arc<AtomicBool>);

impl FilterCompiler for Unsure {
    fn compile(
        &self,
        _: RawDoc<'_>,
        _: Option<&Arc<Collation>>,
    ) -> mayfly_base::Result<Arc<dyn RecordFilter>> {
        Ok(Arc::new(self.clone()))
    }
}

impl RecordFilter for Unsure {
    fn matches(&self, document: RawDoc<'_>) -> mayfly_base::Result<bool> {
        match document.get("hard").is_some() && self.0.load(Ordering::Relaxed) {
            true => Err(Error::new(ErrorCode(51156), "not finished")),
            false => Ok(true),
        }
    }

    fn as_any(&self) -> &dyn std::any::Any {
        self
    }
}

/// If it is unknown whether the document belongs into the index, it is neither left out of it nor
/// removed.
#[test]
fn a_filter_that_fails_decides_nothing() {
    let clock = testing::clock();
    let filters = Unsure::default();
    let fails = filters.0.clone();
    let options =
        StoreOptions { background: false, filters: Arc::new(filters), ..StoreOptions::default() };
    let engine = testing::memory();
    let f = testing::open_with(engine.clone(), clock, options);
    let mut spec = ttl("x", 0);
    spec.insert("partialFilterExpression", doc! { "y": 1 });
    f.index("d.c", &spec).unwrap();
    let old = doc! { "_id": 1, "x": date(NOW - 1), "hard": 1 };
    f.insert("d.c", &old).unwrap();
    let unfinished = ErrorCode(51156);

    fails.store(true, Ordering::Relaxed);
    // Expiry leaves the document.
    f.pass();
    assert_eq!((f.count("d.c"), f.entries("d.c", 0)), (1, 1));
    // Documents are not written, replaced or removed either.
    let another = doc! { "_id": 2, "hard": 1 };
    assert_eq!(f.insert("d.c", &another).unwrap_err().code(), unfinished);
    let collection = f.store.collection(&ReadView::now(), &ns("d.c")).unwrap();
    let key = f.key(1);
    let new = DocBuf::from_bson(&doc! { "_id": 1 });
    let update = |unit: &mut WriteUnit<'_>| {
        let old = unit.read(&key)?.unwrap();
        unit.update(&key, &old, new.as_doc(), UpdateStyle::Computed)
    };
    let updated = f.store.write(&f.op, &ReadView::now(), &collection, update);
    assert_eq!(updated.unwrap_err().code(), unfinished);
    let deleted = f.store.write(&f.op, &ReadView::now(), &collection, |unit| {
        let old = unit.read(&key)?.unwrap();
        unit.delete(&key, &old)
    });
    assert_eq!(deleted.unwrap_err().code(), unfinished);
    // An index build fails as well.
    let partial = doc! { "key": { "z": 1 }, "name": "z_1", "partialFilterExpression": { "y": 1 } };
    assert_eq!(f.index("d.c", &partial).unwrap_err().code(), unfinished);
    assert_eq!(f.store.collection(&ReadView::now(), &ns("d.c")).unwrap().ready_indexes().len(), 2);
    assert_eq!((f.count("d.c"), f.entries("d.c", 0)), (1, 1));

    fails.store(false, Ordering::Relaxed);
    f.pass();
    assert_eq!((f.count("d.c"), f.entries("d.c", 0)), (0, 0));
}

#[test]
fn a_unit_that_was_too_slow_once_is_tried_again() {
    let clock = testing::clock();
    let memory = Arc::new(MemoryEngine::new());
    let limits = Some(Caps { max_txn_age_ms: 1000, ..memory.caps() });
    let options = ChaosOptions { limits, ..ChaosOptions::default() };
    let engine = ChaosEngine::with_clock(memory, options, clock.clone());
    let f = testing::open(Arc::new(engine), clock);
    let (collection, _) = f.store.get_or_create(&ReadView::now(), &ns("d.c")).unwrap();
    let document = DocBuf::from_bson(&doc! { "_id": 1 });
    let insert = |wait: &mut i64| {
        f.store.write(&f.op, &ReadView::now(), &collection, |unit| {
            f.clock.advance_ms(std::mem::take(wait));
            unit.insert(document.as_doc())
        })
    };
    insert(&mut 5000).unwrap();
    assert_eq!(f.count("d.c"), 1);
}

/// The document with a name `abc` in it that ends after its first letter, so that the next byte is
/// no type.
fn with_early_end(document: &Document) -> DocBuf {
    let mut bytes = DocBuf::from_bson(document).into_bytes();
    let at = bytes.windows(3).position(|name| name == b"abc").unwrap();
    bytes[at + 1] = 0;
    DocBuf::from_bytes(bytes).unwrap()
}

#[test]
fn damaged_bytes_are_not_stored() {
    let fixture = fixture();
    let whole = doc! {"_id": 1, "a": {"b": 1}, "c": [{"d": 1}]};
    fixture.insert("test.c", &whole).unwrap();
    let collection = fixture.store.collection(&ReadView::now(), &ns("test.c")).unwrap();
    let key =
        fixture.store.locate(&ReadView::now(), &collection, RawValue::Int32(1)).unwrap().unwrap();
    let write = |act: &dyn Fn(&mut WriteUnit<'_>) -> mayfly_base::Result<()>| {
        fixture.store.write(&fixture.op, &ReadView::now(), &collection, act).unwrap_err().code()
    };
    let inserted = with_early_end(&doc! {"_id": 2, "abc": 1});
    assert_eq!(write(&|unit| unit.insert(inserted.as_doc())), ErrorCode::InvalidBSON);
    // At the top level, in a document, in an array, and with the damage in the last field and
    // before it.
    let updated = [
        doc! {"_id": 1, "a": {"b": 1}, "c": [{"d": 1}], "abc": 1},
        doc! {"_id": 1, "abc": 1, "a": {"b": 1}, "c": [{"d": 1}]},
        doc! {"_id": 1, "a": {"b": 1, "abc": 1}, "c": [{"d": 1}]},
        doc! {"_id": 1, "a": {"abc": 1}, "c": [{"d": 1}]},
        doc! {"_id": 1, "a": {"b": 1}, "c": [{"d": 1, "abc": 1}]},
        doc! {"_id": 1, "a": {"b": 1}, "c": [{"d": 1}, {"abc": 1}]},
    ];
    for style in [UpdateStyle::Replacement, UpdateStyle::Computed, UpdateStyle::Growth] {
        for damaged in &updated {
            let new = with_early_end(damaged);
            let code = write(&|unit| {
                let old = unit.read(&key)?.unwrap();
                unit.update(&key, &old, new.as_doc(), style)
            });
            assert_eq!(code, ErrorCode::InvalidBSON, "{style:?} {damaged}");
        }
    }
    assert_eq!(fixture.count("test.c"), 1);
}
