//! The conformance suite on the memory engine, plain and wrapped in the chaos engine.

use std::ops::ControlFlow;
use std::sync::Arc;

use mayfly_base::clock::ManualClock;
use mayfly_kv::chaos::NARROW_LIMITS;
use mayfly_kv::{
    ChaosEngine, ChaosOptions, Direction, Engine, Guard, KeyRange, Keyspace, KvError, MemoryEngine,
    RoundTripCounter, RoundTrips, ScanEnd, ScanLimit, TxnOptions, conformance,
};

fn chaos(options: ChaosOptions) -> Arc<dyn Engine> {
    Arc::new(ChaosEngine::new(Arc::new(MemoryEngine::new()), options))
}

#[test]
fn memory_conforms() {
    conformance::run(&|| Arc::new(MemoryEngine::new()));
}

#[test]
fn chaos_without_chaos_conforms() {
    conformance::run(&|| chaos(ChaosOptions::default()));
    let limits = Some(NARROW_LIMITS);
    conformance::run(&|| chaos(ChaosOptions { limits, ..ChaosOptions::default() }));
}

#[test]
fn an_engine_with_counted_round_trips_conforms() {
    let counter = Arc::<RoundTripCounter>::default();
    conformance::run(&|| {
        Arc::new(RoundTrips::new(Arc::new(MemoryEngine::new()), counter.clone())) as Arc<dyn Engine>
    });
    assert!(counter.take() > 1_000);
}

#[test]
fn calls_that_cross_a_network_are_counted() {
    let counter = Arc::<RoundTripCounter>::default();
    let engine = RoundTrips::new(Arc::new(MemoryEngine::new()), counter.clone());
    let mut txn = engine.begin(TxnOptions::default()).unwrap();
    for n in 0..100_u8 {
        txn.put(Keyspace::Record, &[n], b"", Guard::Checked).unwrap();
    }
    txn.lock(Keyspace::Record, b"locked").unwrap();
    assert_eq!(counter.take(), 0, "writes are sent with the commit");
    txn.commit().unwrap();
    assert_eq!(counter.take(), 1);
    let txn = engine.begin(TxnOptions::READ_ONLY).unwrap();
    let whole = KeyRange { start: vec![], end: vec![0xFF] };
    let trips_of = |limit: ScanLimit, most: usize| {
        let mut seen = 0;
        txn.scan(Keyspace::Record, &whole, Direction::Forward, limit, &mut |_, _| {
            seen += 1;
            if seen == most { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        })
        .unwrap();
        counter.take()
    };
    assert_eq!(trips_of(ScanLimit::NONE, 16), 1);
    assert_eq!(trips_of(ScanLimit::NONE, 17), 2);
    assert_eq!(trips_of(ScanLimit::NONE, 100), 3, "16, 64, 256");
    assert_eq!(trips_of(ScanLimit::page(100), 100), 1);
    assert_eq!(trips_of(ScanLimit::rows(50), 100), 1);
    let keys: Vec<[u8; 1]> = (0..100).map(|n| [n]).collect();
    let keys: Vec<&[u8]> = keys.iter().map(|key| &key[..]).collect();
    txn.multi_get(Keyspace::Record, &keys, &mut |_, _| ControlFlow::Continue(())).unwrap();
    assert_eq!(counter.take(), 1);
    txn.multi_get(Keyspace::Record, &[], &mut |_, _| ControlFlow::Continue(())).unwrap();
    txn.commit().unwrap();
    assert_eq!(counter.take(), 0);
}

#[test]
fn retries_survive_chaos() {
    for seed in 0..5 {
        conformance::transfers(&*chaos(ChaosOptions {
            seed,
            conflict_probability: 0.1,
            unknown_commit_probability: 0.1,
            short_pages: true,
            limits: Some(NARROW_LIMITS),
            ..ChaosOptions::default()
        }));
    }
}

#[test]
fn half_of_the_unknown_commits_are_applied() {
    let engine = chaos(ChaosOptions { unknown_commit_probability: 1.0, ..ChaosOptions::default() });
    let mut applied = 0;
    for n in 0..100_u8 {
        let mut txn = engine.begin(TxnOptions::default()).unwrap();
        txn.put(Keyspace::Record, &[n], b"", Guard::Checked).unwrap();
        assert!(matches!(txn.commit(), Err(KvError::CommitUnknown(_))));
        applied += usize::from(engine.get_once(Keyspace::Record, &[n], &mut |_| ()).unwrap());
    }
    assert!((20..80).contains(&applied), "{applied} of 100");
}

#[test]
fn short_pages_continue_to_the_end() {
    let engine = chaos(ChaosOptions { short_pages: true, ..ChaosOptions::default() });
    let mut txn = engine.begin(TxnOptions::default()).unwrap();
    for n in 0..20_u8 {
        txn.put(Keyspace::Record, &[n], b"", Guard::Checked).unwrap();
    }
    let (mut range, mut seen, mut pages) = (KeyRange { start: vec![], end: vec![99] }, 0, 0);
    loop {
        pages += 1;
        let mut visit = |_: &[u8], _: &[u8]| {
            seen += 1;
            std::ops::ControlFlow::Continue(())
        };
        let (forward, none) = (Direction::Forward, ScanLimit::NONE);
        match txn.scan(Keyspace::Record, &range, forward, none, &mut visit).unwrap() {
            ScanEnd::Exhausted => break,
            ScanEnd::More { last_key } => range = range.after(&last_key, Direction::Forward),
        }
    }
    assert_eq!(seen, 20);
    assert!(pages >= 7);
}

#[test]
fn limits_of_other_engines_are_enforced() {
    let clock = Arc::new(ManualClock::at_ms(0));
    let options = ChaosOptions { limits: Some(NARROW_LIMITS), ..ChaosOptions::default() };
    let engine = ChaosEngine::with_clock(Arc::new(MemoryEngine::new()), options, clock.clone());
    let mut txn = engine.begin(TxnOptions::default()).unwrap();
    let long_key = txn.put(Keyspace::Record, &[0; 1025], b"", Guard::Checked);
    assert!(matches!(long_key, Err(KvError::TooLarge(_))));
    let long_value = txn.put(Keyspace::Record, b"k", &vec![0; 1_000_001], Guard::Checked);
    assert!(matches!(long_value, Err(KvError::TooLarge(_))));
    txn.put(Keyspace::Record, b"k", b"", Guard::Checked).unwrap();
    clock.advance_ms(5_001);
    assert_eq!(txn.get(Keyspace::Record, b"k", &mut |_| ()), Err(KvError::TooOld));
    assert_eq!(txn.commit(), Err(KvError::TooOld));
}
