//! Builds that a kill, a drop, a crash or a close interrupts; full disks, and engines that refuse
//! writes.

use super::*;

#[test]
fn a_killed_build_leaves_nothing() {
    at_each_step(|f, at| {
        let op = OpCtx::detached(f.clock.clone());
        let killed = op.clone();
        let steps = once(f, at, move |_| killed.kill(ErrorCode::Interrupted));
        let indexes = two().map(|index| DocBuf::from_bson(&index));
        let indexes = [indexes[0].as_doc(), indexes[1].as_doc()];
        let built = f.store.create_indexes(
            (&op, &ReadView::now()),
            &ns(),
            &indexes,
            CreateIndexesOptions::default(),
        );
        if let Err(error) = built {
            assert_eq!(error.code(), ErrorCode::Interrupted);
            assert!(f.names().is_empty());
            f.store.sweep_once().unwrap();
            assert_eq!(f.stored_entries(), 0);
            *f.store.between_steps.lock() = None;
            f.build(&two()).unwrap();
        }
        assert_eq!(op.info().progress, None);
        f.check();
        steps
    });
}

#[test]
fn nothing_follows_what_is_dropped_meanwhile() {
    at_each_step(|f, at| {
        let steps = once(f, at, |store| {
            store.drop_indexes(&ns(), Some(&[IndexSelector::Name("a")])).unwrap();
            store.sweep_once().unwrap();
        });
        if let Err(error) = f.build(&two()) {
            assert_eq!(error.code(), ErrorCode::IndexBuildAborted);
            f.store.sweep_once().unwrap();
            assert_eq!(f.stored_entries(), 0);
        }
        steps
    });
    at_each_step(|f, at| {
        let steps = once(f, at, |store| {
            store.drop_collection(&ns()).unwrap();
            store.sweep_once().unwrap();
        });
        if let Err(error) = f.build(&two()) {
            assert_eq!(error.code(), ErrorCode::IndexBuildAborted);
            assert_eq!(f.stored_entries(), 0);
            assert_eq!(copied(&*f.engine, Keyspace::Record).len(), 0);
        }
        steps
    });
}

#[test]
fn a_rebuild_goes_on_without_what_is_dropped() {
    at_each_step(|f, at| {
        f.build(&two()).unwrap();
        let steps = once(f, at, |store| {
            // A drop by name would be ambiguous: there are two indexes.
            store.drop_indexes(&ns(), None).unwrap();
            store.sweep_once().unwrap();
        });
        let collection = f.store.collection(&ReadView::now(), &ns()).unwrap();
        f.store.rebuild_indexes(&f.op, &collection).unwrap();
        f.check();
        f.store.drop_indexes(&ns(), None).unwrap();
        f.store.sweep_once().unwrap();
        assert_eq!(f.stored_entries(), 0);
        steps
    });
}

#[test]
fn a_crash_leaves_no_half_index() {
    at_each_step(|f, at| {
        let survivor = Arc::new(Mutex::new(None));
        let (crashed, engine) = (survivor.clone(), f.engine.clone());
        let steps = once(f, at, move |_| *crashed.lock() = Some(copy(&*engine)));
        f.build(&two()).unwrap();
        f.check();
        let crashed = survivor.lock().take();
        if let Some(crashed) = crashed {
            let g = over(crashed);
            assert!(g.names().is_empty());
            g.store.sweep_once().unwrap();
            assert_eq!(g.stored_entries(), 0);
            g.build(&two()).unwrap();
            g.check();
        }
        steps
    });
}

#[test]
fn a_store_that_closes_ends_its_builds() {
    at_each_step(|f, at| {
        let steps = once(f, at, |store| store.close().unwrap());
        let _ = f.build(&two());
        steps
    });
}

/// A memory engine whose disk for temporary files is full after some of them.
struct FullDisk {
    inner: MemoryEngine,
    left: AtomicUsize,
    folder: std::path::PathBuf,
}

impl EngineWrapper for FullDisk {
    fn inner(&self) -> &dyn Engine {
        &self.inner
    }

    fn scratch(&self, _: u64) -> mayfly_kv::KvResult<Option<std::path::PathBuf>> {
        let left = |left: usize| left.checked_sub(1);
        match self.left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, left) {
            Ok(_) => Ok(Some(self.folder.clone())),
            Err(_) => Err(mayfly_kv::KvError::Unavailable("the disk is full".to_owned())),
        }
    }
}

#[test]
fn a_full_disk_ends_a_build_and_no_write() {
    let mut built = 0;
    for left in 0..60 {
        let folder = std::env::temp_dir();
        let left = AtomicUsize::new(left);
        let f = over(Arc::new(FullDisk { inner: MemoryEngine::new(), left, folder }));
        f.fill(60);
        f.store.index_build_bytes.store(2_000, Ordering::Relaxed);
        let (op, mut random, mut id) = (f.op.clone(), SmallRng::seed_from_u64(9), 1000);
        f.between(move |store, step| {
            let collection = store.collection(&ReadView::now(), &ns()).unwrap();
            for _ in 0..if step == "page" { 5 } else { 0 } {
                id += 1;
                let new = DocBuf::from_bson(&document(&mut random, id));
                store
                    .write(&op, &ReadView::now(), &collection, |unit| unit.insert(new.as_doc()))
                    .unwrap();
            }
            false
        });
        match f.build(&two()) {
            Ok(()) => built += 1,
            Err(error) => {
                assert_eq!(error.code(), ErrorCode::OutOfDiskSpace);
                assert!(f.names().is_empty());
                f.store.sweep_once().unwrap();
                assert_eq!(f.stored_entries(), 0);
            }
        }
        f.check();
    }
    assert!((1..60).contains(&built), "{built} were built");
}

/// An engine that refuses writes on command.
struct Unwritable {
    inner: MemoryEngine,
    refuses: Arc<AtomicBool>,
}

impl EngineWrapper for Unwritable {
    fn inner(&self) -> &dyn Engine {
        &self.inner
    }

    fn begin(
        &self,
        options: mayfly_kv::TxnOptions,
    ) -> mayfly_kv::KvResult<Box<dyn mayfly_kv::Txn>> {
        match self.refuses.load(Ordering::Relaxed) && !options.read_only {
            true => Err(mayfly_kv::KvError::Unavailable("the disk is full".to_owned())),
            false => self.inner.begin(options),
        }
    }
}

/// The failed build is reported although its index cannot be dropped; the index is dropped when
/// that is possible.
#[test]
fn a_build_that_cannot_be_taken_back_is_taken_back_later() {
    for by_sweeper in [true, false] {
        let refuses = Arc::new(AtomicBool::new(false));
        let inner = MemoryEngine::new();
        let f = over(Arc::new(Unwritable { inner, refuses: refuses.clone() }));
        f.fill(60);
        let refused = refuses.clone();
        f.at("last", move |_| refused.store(true, Ordering::Relaxed));
        let error = f.build(&two()).unwrap_err();
        assert_eq!(error.code(), ErrorCode::OutOfDiskSpace);
        assert_eq!(f.names().len(), 2, "they cannot be dropped yet");
        let listed = f.store.collection(&ReadView::now(), &ns()).unwrap().list_indexes();
        assert_eq!(listed.len(), 1, "only that on _id");
        f.at("none", |_| ());
        assert!(f.store.sweep_once().is_err());
        refuses.store(false, Ordering::Relaxed);
        if by_sweeper {
            f.store.sweep_once().unwrap();
            assert!(f.names().is_empty());
            assert_eq!(f.stored_entries(), 0);
        }
        f.build(&two()).unwrap();
        f.store.sweep_once().unwrap();
        assert_eq!(f.names().len(), 2);
        f.check();
    }
}
