//! Crashes at every commit, and random work with crashes in between.

use std::sync::atomic::{AtomicUsize, Ordering};

use mayfly_base::ManualClock;
use mayfly_kv::{
    ChaosEngine, ChaosOptions, Engine, EngineWrapper, KvError, KvResult, LogEntries, LoggedCommit,
    MemoryEngine, Txn,
};
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};

use super::*;

/// An engine that stops at a commit: that one and all later calls fail, and what was committed
/// before remains. A close leaves it open, so that a test can open its store again.
pub(super) struct Stops {
    inner: Arc<MemoryEngine>,
    /// The number of commits that succeed.
    left: Arc<AtomicUsize>,
}

impl Stops {
    /// An engine that does not stop.
    pub(super) fn never() -> Arc<Stops> {
        let left = Arc::new(AtomicUsize::new(usize::MAX));
        Arc::new(Stops { inner: Arc::default(), left })
    }
}

impl EngineWrapper for Stops {
    fn inner(&self) -> &dyn Engine {
        &*self.inner
    }

    fn close(&self) -> KvResult<()> {
        Ok(())
    }

    fn begin(&self, options: TxnOptions) -> KvResult<Box<dyn Txn>> {
        Ok(Box::new(StopsTxn { inner: self.inner.begin(options)?, left: self.left.clone() }))
    }
}

struct StopsTxn {
    inner: Box<dyn Txn>,
    left: Arc<AtomicUsize>,
}

impl Txn for StopsTxn {
    mayfly_kv::forward_txn!(inner: scan, scan_retired, put, put_with_gaps, delete, retire, lock, size, written_keys);

    fn get(&self, keyspace: Keyspace, key: &[u8], see: &mut dyn FnMut(&[u8])) -> KvResult<bool> {
        self.inner.get(keyspace, key, see)
    }

    fn commit_logged(self: Box<Self>, entries: LogEntries) -> LoggedCommit {
        let StopsTxn { inner, left } = *self;
        let counted =
            left.fetch_update(Ordering::AcqRel, Ordering::Acquire, |left| left.checked_sub(1));
        match counted {
            Ok(_) => inner.commit_logged(entries),
            Err(_) => LoggedCommit::failed(KvError::Unavailable("stopped by the test".into())),
        }
    }
}

/// Work that leads through filling, following, a rename, a rebuild and a drop.
fn work(f: &Fixture<ManualClock>) -> Result<()> {
    let set = |id: i32, text: &str| {
        f.set(&ReadView::now(), "d.c", id, Some(doc! { "_id": id, "a": text }))
    };
    for id in 0..12 {
        set(id, "red pen")?;
    }
    f.index("d.c", &words())?;
    for id in 4..18 {
        set(id, "blue ink")?;
    }
    f.set(&ReadView::now(), "d.c", 3, None)?;
    f.try_follow()?;
    f.set(&ReadView::now(), "d.c", 4, None)?;
    f.store.cut_log_whole()?;
    set(5, "paper")?;
    f.try_follow()?;
    f.store.rename_collection(&ns("d.c"), &ns("d.b"), RenameTarget::MustNotExist)?;
    f.store.rename_collection(&ns("d.b"), &ns("d.c"), RenameTarget::MustNotExist)?;
    set(6, "clip")?;
    f.try_follow()?;
    f.store.rebuild_indexes(&f.op, &f.of("d.c"))?;
    set(7, "after")?;
    f.try_follow()
}

#[test]
fn a_crash_at_any_commit_leaves_an_index_that_catches_up() {
    for commits in 0.. {
        let memory = Arc::new(MemoryEngine::new());
        let left = Arc::new(AtomicUsize::new(commits + 2));
        let stops = Stops { inner: memory.clone(), left };
        let f = testing::open(Arc::new(stops), testing::clock());
        let done = work(&f);
        let again = testing::open(memory as Arc<dyn Engine>, f.clock.clone());
        let found = again.store.collection(&ReadView::now(), &ns("d.c"));
        let found = found.or_else(|| again.store.collection(&ReadView::now(), &ns("d.b")));
        if let Some(collection) = found {
            let name = collection.namespace();
            // A build that was interrupted is gone.
            if !collection.log_fed().is_empty() {
                again.follow();
                again.check_words(name.as_str());
            }
            again.store.sweep_once().unwrap();
        }
        if done.is_ok() {
            assert!(commits > 50, "{commits}");
            return;
        }
    }
}

/// Conflicts, unknown results of commits, and short pages.
#[test]
fn random_work_over_a_chaotic_engine_with_crashes_is_indexed() {
    for seed in 0..6 {
        let mut random = SmallRng::seed_from_u64(seed);
        let memory: Arc<dyn Engine> = Arc::new(MemoryEngine::new());
        let clock = testing::clock();
        let open = |seed: u64| {
            let options = ChaosOptions { seed, ..ChaosOptions::default() };
            let engine = ChaosEngine::with_clock(memory.clone(), options, clock.clone());
            testing::open_with(
                Arc::new(engine),
                clock.clone(),
                StoreOptions { background: false, oplog_bytes: 16_384, ..StoreOptions::default() },
            )
        };
        let mut f = open(seed);
        let retried = |f: &Fixture, act: &dyn Fn(&Fixture) -> Result<()>| {
            // A commit whose result is unknown.
            (0..50).any(|_| act(f).is_ok()).then_some(()).expect("a success in the end");
        };
        retried(&f, &|f| f.index("d.c", &words()).map(drop));
        for round in 0..250u64 {
            let id = random.random_range(0..40);
            let text = format!("w{} w{}", random.random_range(0..9), random.random_range(0..9));
            match random.random_range(0..20) {
                0..10 => retried(&f, &|f| {
                    f.set(&ReadView::now(), "d.c", id, Some(doc! { "_id": id, "a": &text }))
                }),
                10..14 => retried(&f, &|f| f.set(&ReadView::now(), "d.c", id, None)),
                14..17 => {
                    // A failed step is repeated later.
                    let _ = f.store.feed(&f.op, &f.of("d.c"));
                }
                17 => drop(f.store.trim_oplog()),
                18 => retried(&f, &|f| f.insert("d.x", &doc! { "x": &text, "_id": round as i64 })),
                _ => f = open(seed + round),
            }
        }
        retried(&f, &|f| f.try_follow());
        let calm = testing::open(memory.clone(), clock.clone());
        calm.follow();
        calm.check_words("d.c");
    }
}
