//! Buckets over a store: several writers, an empty cache, deletions in between.

use crate::isolation::ReadView;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use mayfly_base::{ManualClock, Namespace};
use mayfly_buckets::{BucketView, MAX_MEASUREMENTS};
use mayfly_kv::{Direction, KeyRange, Keyspace, ScanLimit};
use mayfly_value::bson::{DateTime, doc};
use mayfly_value::{DocBuf, Number};
use mayfly_work::OpCtx;

use crate::read::whole_range;
use crate::testing::{self, NOW};
use crate::timeseries::open::OpenBuckets;
use crate::{Collection, Store};

struct Fixture {
    clock: Arc<ManualClock>,
    store: Arc<Store>,
    buckets: Arc<Collection>,
}

fn fixture() -> Fixture {
    let clock = testing::clock();
    let testing::Fixture { store, .. } = testing::open(testing::memory(), clock.clone());
    let ns = Namespace::parse("d.system.buckets.s").unwrap();
    let options =
        doc! { "expireAfterSeconds": 100i64, "timeseries": { "timeField": "t", "metaField": "m" } };
    let buckets =
        store.create_collection(&ReadView::now(), &ns, DocBuf::from_bson(&options)).unwrap();
    Fixture { clock, store, buckets }
}

impl Fixture {
    fn insert(&self, rows: &[(i64, i32, i32)]) {
        let op = OpCtx::detached(self.clock.clone());
        let documents: Vec<DocBuf> = rows
            .iter()
            .map(|(time, meta, id)| {
                let time = DateTime::from_millis(NOW + time);
                DocBuf::from_bson(&doc! { "_id": id, "t": time, "m": meta })
            })
            .collect();
        let measurements: Vec<_> = documents.iter().map(DocBuf::as_doc).collect();
        self.store
            .insert_measurements((&op, &ReadView::now()), &self.buckets, &measurements, |_| Ok(()))
            .unwrap();
    }

    /// The lengths of the log's entries, the oldest first.
    fn log(&self) -> Vec<usize> {
        let snapshot = self.store.snapshot(&ReadView::now()).unwrap();
        let mut bytes = Vec::new();
        let (all, limit) = (KeyRange { start: Vec::new(), end: vec![0xFF; 9] }, ScanLimit::NONE);
        let mut see = |_: &[u8], value: &[u8]| {
            bytes.push(value.len());
            ControlFlow::Continue(())
        };
        let txn = &snapshot.txn;
        txn.scan(Keyspace::Oplog, &all, Direction::Forward, limit, &mut see).unwrap();
        bytes
    }

    /// The number of measurements in each bucket, and the sorted `_id`s of all.
    fn all(&self) -> (Vec<usize>, Vec<i64>) {
        let fields = &self.buckets.time_series().unwrap().fields;
        let (mut rows, mut ids) = (Vec::new(), Vec::new());
        let (range, limit) = (whole_range(), ScanLimit::NONE);
        let snapshot = self.store.snapshot(&ReadView::now()).unwrap();
        let mut see = |_: &[u8], document: mayfly_value::RawDoc<'_>| {
            let view = BucketView::new(document)?;
            rows.push(view.rows());
            view.measurements(fields, &|_| true, &mut |_, measurement| {
                let id = measurement.get("_id").and_then(Number::from_value);
                ids.extend(id.and_then(Number::to_i64_exact));
                Ok(ControlFlow::Continue(()))
            })?;
            Ok(ControlFlow::Continue(()))
        };
        snapshot.scan_records(&self.buckets, &range, Direction::Forward, limit, &mut see).unwrap();
        ids.sort_unstable();
        (rows, ids)
    }
}

#[test]
fn writers_of_the_same_buckets_lose_nothing() {
    let fixture = fixture();
    std::thread::scope(|scope| {
        for writer in 0..4 {
            let fixture = &fixture;
            scope.spawn(move || {
                for batch in 0..60 {
                    let row = |at: i32| {
                        let id = writer * 600 + batch * 10 + at;
                        (i64::from(id % 1800) * 1000, at % 3, id)
                    };
                    fixture.insert(&(0..10).map(row).collect::<Vec<_>>());
                }
            });
        }
    });
    let (rows, ids) = fixture.all();
    assert_eq!(ids, (0..2400).collect::<Vec<i64>>());
    assert!(rows.iter().all(|rows| *rows <= MAX_MEASUREMENTS));
    assert!(rows.len() <= 12, "{rows:?}");
}

#[test]
fn a_bucket_is_full_at_a_thousand_and_what_was_forgotten_is_found_again() {
    let fixture = fixture();
    fixture.insert(&(0..1500).map(|id| (i64::from(id), 1, id)).collect::<Vec<_>>());
    assert_eq!(fixture.all().0, [1000, 500]);
    // The cache is empty, as after a restart.
    let open = fixture.buckets.open_buckets.as_ref().unwrap();
    open.lock(0..OpenBuckets::COUNT).values_mut().for_each(|stripe| stripe.clear());
    fixture.insert(&[(1501, 1, 1500), (1502, 1, 1501)]);
    let (mut rows, ids) = fixture.all();
    rows.sort_unstable();
    assert_eq!(rows, [502, 1000]);
    assert_eq!(ids.len(), 1502);
}

/// T-75 of the expiry contract: the log entry of a bucket's expiry does not depend on the bucket's
/// content.
#[test]
fn the_log_says_once_that_a_bucket_expired() {
    let fixture = fixture();
    fixture.insert(&(0..1000).map(|id| (i64::from(id), 1, id)).collect::<Vec<_>>());
    let before = fixture.log().len();
    fixture.clock.advance_ms(1_000_000);
    fixture.store.run_ttl_pass(&AtomicBool::new(false)).unwrap();
    assert_eq!(fixture.all().1, []);
    let after = fixture.log();
    assert_eq!(after.len(), before + 1);
    assert!(after[before] < 300, "{}", after[before]);
}

/// The log entry of a measurement that is added to a bucket contains only the addition.
#[test]
fn the_log_does_not_repeat_a_bucket_for_each_measurement() {
    let fixture = fixture();
    fixture.insert(&(0..500).map(|id| (i64::from(id * id % 1000), 1, id)).collect::<Vec<_>>());
    fixture.insert(&[(1000, 1, 500)]);
    let log = fixture.log();
    let [.., whole, added] = log.as_slice() else { panic!("two entries") };
    assert!(added * 2 < *whole, "{added} {whole}");
    assert_eq!(fixture.all().1.len(), 501);
}

#[test]
fn measurements_out_of_order_share_buckets_by_turns() {
    let fixture = fixture();
    for id in 0..40 {
        let time = if id % 2 == 0 { i64::from(id) } else { -9_000_000 + i64::from(id) };
        fixture.insert(&[(time, 1, id)]);
    }
    assert_eq!(fixture.all().0, [20, 20]);
}

#[test]
fn what_expired_is_begun_anew() {
    let fixture = fixture();
    fixture.insert(&[(0, 1, 1), (1000, 1, 2), (0, 2, 3)]);
    fixture.clock.advance_ms(100_000);
    fixture.store.run_ttl_pass(&AtomicBool::new(false)).unwrap();
    assert_eq!(fixture.all(), (vec![2], vec![1, 2]));
    fixture.insert(&[(500, 2, 4)]);
    assert_eq!(fixture.all().1, [1, 2, 4]);
    fixture.clock.advance_ms(10_000);
    fixture.store.run_ttl_pass(&AtomicBool::new(false)).unwrap();
    assert_eq!(fixture.all(), (vec![], vec![]));
    let deleted =
        fixture.store.ttl_stats().deleted_documents.load(std::sync::atomic::Ordering::Relaxed);
    assert_eq!(deleted, 3);
}

/// The counter of names is back at an earlier value: as after a restart over a copy, or after an
/// overflow.
#[test]
fn a_new_bucket_never_takes_the_place_of_another() {
    let fixture = fixture();
    let suffixes = &fixture.buckets.open_buckets.as_ref().unwrap().suffixes;
    for (meta, next) in [(1, 7), (2, 7), (3, u64::MAX), (4, u64::MAX), (5, 0)] {
        suffixes.go_on_from(next);
        fixture.insert(&[(0, meta, meta)]);
    }
    // Several in one unit.
    suffixes.go_on_from(7);
    fixture.insert(&[(0, 6, 6), (0, 7, 7), (1000, 6, 8)]);
    let (mut rows, ids) = fixture.all();
    rows.sort_unstable();
    assert_eq!((rows, ids), (vec![1, 1, 1, 1, 1, 1, 2], (1..9).collect()));
}

#[test]
fn buckets_whose_starts_wrap_to_equal_seconds_have_other_ids() {
    let fixture = fixture();
    let suffixes = &fixture.buckets.open_buckets.as_ref().unwrap().suffixes;
    // Starts of buckets are whole minutes.
    for (id, time) in [(1, 0), (2, 15i64 << 32)] {
        suffixes.go_on_from(7);
        fixture.insert(&[(time * 1000, 1, id)]);
    }
    assert_eq!(fixture.all().1, [1, 2]);
}

#[test]
fn makers_of_buckets_with_one_name_lose_nothing() {
    let fixture = fixture();
    std::thread::scope(|scope| {
        for writer in 0..4 {
            let fixture = &fixture;
            scope.spawn(move || {
                for meta in 0..100 {
                    fixture.buckets.open_buckets.as_ref().unwrap().suffixes.go_on_from(7);
                    let id = writer * 100 + meta;
                    fixture.insert(&[(0, id, id)]);
                }
            });
        }
    });
    assert_eq!(fixture.all().1, (0..400).collect::<Vec<i64>>());
}
