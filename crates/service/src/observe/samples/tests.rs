//! Samples of a service with a clock that the tests move.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use mayfly_base::{Clock, ManualClock, Namespace};
use mayfly_kv::MemoryEngine;
use mayfly_storage::{CreateIndexesOptions, ReadView, Store, StoreOptions};
use mayfly_value::DocBuf;
use mayfly_value::bson::{DateTime, doc};
use mayfly_work::{OpCtx, OpRegistry};

use super::*;
use crate::process::LogRing;
use crate::server::{CommandLine, Service, ServiceOptions};
use crate::top::{Done, Scan, Use};

fn service(clock: &Arc<ManualClock>) -> Arc<Service> {
    let clock: Arc<dyn Clock> = clock.clone();
    let ops = OpRegistry::new(clock.clone());
    let options = StoreOptions { background: false, ..StoreOptions::default() };
    let engine = Arc::new(MemoryEngine::default());
    let store = Store::open(engine, options, clock.clone(), ops.clone()).unwrap();
    Service::new(ServiceOptions {
        store,
        ops,
        clock,
        log: Arc::new(LogRing::default()),
        command_line: CommandLine { argv: Vec::new(), parsed: DocBuf::empty() },
        host: "localhost:0".into(),
        engine_name: "memory",
        max_connections: 10,
    })
}

struct Sampled {
    clock: Arc<ManualClock>,
    service: Arc<Service>,
    samples: Samples,
}

impl Sampled {
    fn new() -> Sampled {
        let clock = Arc::new(ManualClock::at_ms(1_800_000_000_000));
        Sampled { service: service(&clock), clock, samples: Samples::default() }
    }

    fn step(&self) {
        self.clock.advance_ms(2000);
        self.samples.record(&Reading::new(&self.service, &[]));
    }

    fn one(&self, name: &str, since_ms: i64) -> (Vec<i64>, Vec<Series>) {
        let window = self.samples.series(&[name], since_ms, i64::MAX);
        (window.times, window.series)
    }
}

fn labelled<'s>(series: &'s [Series], label: &str) -> &'s Series {
    series.iter().find(|series| series.labels.iter().any(|(_, value)| value == label)).unwrap()
}

#[test]
fn counters_are_rates_and_gauges_are_values() {
    let it = Sampled::new();
    it.step();
    it.service.metrics.opcounters.insert.add(10);
    it.step();
    it.step();
    let (times, series) = it.one("mayflydb_operations_total", 0);
    let start = 1_800_000_000_000;
    assert_eq!(times, [start + 2000, start + 4000, start + 6000]);
    let inserts = labelled(&series, "insert");
    assert_eq!((inserts.kind, inserts.labels[0].0), (FigureKind::Counter, "kind"));
    assert!(inserts.values[0].is_nan());
    assert_eq!(inserts.values[1..], [5.0, 0.0]);
    let (_, series) = it.one("mayflydb_uptime_seconds", 0);
    assert_eq!(series[0].values, [2.0, 4.0, 6.0]);
    let (times, _) = it.one("mayflydb_uptime_seconds", start + 4001);
    assert_eq!(times, [start + 6000]);
    assert!(it.one("mayflydb_unknown", 0).1.is_empty());
}

#[test]
fn after_an_hour_the_coarse_axis_goes_further_back() {
    let it = Sampled::new();
    it.step();
    for _ in 0..2000 {
        it.service.metrics.opcounters.insert.add(2);
        it.step();
    }
    let now = it.clock.now_ms();
    let hour = it.samples.series(&["mayflydb_operations_total"], now - 3_600_000, now);
    assert_eq!((hour.step_ms, hour.times.len()), (2000, 1800));
    assert!(labelled(&hour.series, "insert").values.iter().all(|value| *value == 1.0));
    let day = it.samples.series(&["mayflydb_operations_total"], now - 86_400_000, now);
    assert_eq!((day.step_ms, day.times.len()), (300_000, 13));
    assert!(labelled(&day.series, "insert").values.iter().all(|value| *value == 1.0));
    assert!(day.times.is_sorted() && *day.times.last().unwrap() <= now);
    let uptime = it.samples.series(&["mayflydb_uptime_seconds"], now - 86_400_000, now);
    assert_eq!(uptime.series[0].values[1], 453.0, "the mean from 304 to 602 seconds");
}

#[test]
fn a_changed_wall_clock_does_not_reorder_points() {
    let it = Sampled::new();
    it.step();
    it.clock.set_wall_ms(1_700_000_000_000);
    it.step();
    let (times, _) = it.one("mayflydb_uptime_seconds", 0);
    assert_eq!(times, [1_700_000_000_000, 1_700_000_002_000]);
}

#[test]
fn quantiles_are_those_of_each_step() {
    let it = Sampled::new();
    let ends = |kind, micros| {
        let done = Done { kind, reads: false, micros, scan: Scan::None };
        it.service.top.record(None, done, |_| true);
    };
    ends(Use::Insert, 1_000_000);
    it.step();
    (0..1000).for_each(|_| ends(Use::Queries, 70));
    it.step();
    it.step();
    let (_, series) = it.one(LATENCY_QUANTILES, 0);
    let reads: Vec<&Series> = series.iter().filter(|it| it.labels[0].1 == "reads").collect();
    let of = |at: usize| (reads[at].labels[1].1.as_str(), reads[at].values[1]);
    assert_eq!((reads.len(), of(0)), (3, ("0.5", 96e-6)));
    assert!(of(1).0 == "0.99" && of(1).1 > 127e-6 && of(1).1 < 128e-6);
    assert!(reads[0].values[0].is_nan() && reads[0].values[2].is_nan());
    assert!(labelled(&series, "writes").values[0] > 0.7);
}

#[test]
fn memory_is_limited() {
    let it = Sampled::new();
    it.step();
    let (count, _) = it.samples.size();
    assert!(count < 250, "{count} series leave no room for those of policies");
    let mut rows: Vec<Row> = (0..20).map(|_| Row::new("x", vec!["y"], FigureKind::Gauge)).collect();
    let (mut axis, mut count) = (Axis::new(FINE_POINTS), 0);
    let step = axis.advance(1);
    for row in &mut rows {
        row.begin(step);
        (0..1000).for_each(|label| row.put(&[&format!("{label:0>64}")], 0.0, step, &mut count));
    }
    assert_eq!((count, rows[0].len()), (MAX_SERIES, MAX_SERIES_OF_A_ROW));
    let bytes: usize = rows.iter().map(Row::bytes).sum();
    assert!(bytes < 8_000_000, "{bytes}");
}

#[test]
fn a_series_without_values_is_replaced_after_a_minute() {
    let mut row = Row::new("x", vec!["y"], FigureKind::Gauge);
    let (mut axis, mut count) = (Axis::new(FINE_POINTS), 0);
    let mut step = |secs: i64, labels: std::ops::Range<usize>| {
        let step = axis.advance(secs * 1_000_000);
        row.begin(step);
        labels.for_each(|label| row.put(&[&format!("{label:0>3}")], 1.0, step, &mut count));
        let series = row.fine_series(&[step.slot]);
        series.into_iter().map(|series| series.labels[0].1.clone()).collect::<Vec<_>>()
    };
    assert_eq!(step(1, 0..70).len(), 64);
    assert_eq!(step(31, 1..65).len(), 63, "000 may come back");
    assert_eq!(step(61, 1..65).last().unwrap(), "064");
}

/// Makes a collection with a TTL index, and documents that became due so many seconds ago.
fn fill(service: &Service, name: &str, due_secs: &[i64]) {
    let op = OpCtx::detached(service.clock.clone());
    let ns = Namespace::new("db", name).unwrap();
    let view = ReadView::now();
    let spec = doc! { "key": { "at": 1 }, "name": "at_1", "expireAfterSeconds": 10 };
    let spec = DocBuf::from_bson(&spec);
    let options = CreateIndexesOptions::default();
    service.store.create_indexes((&op, &view), &ns, &[spec.as_doc()], options).unwrap();
    let collection = service.store.collection(&view, &ns).unwrap();
    for secs in due_secs {
        let at = DateTime::from_millis(service.clock.now_ms() - 10_000 - secs * 1000);
        let document = DocBuf::from_bson(&doc! { "_id": secs, "at": at });
        let insert = |unit: &mut mayfly_storage::WriteUnit<'_>| unit.insert(document.as_doc());
        service.store.write(&op, &view, &collection, insert).unwrap();
    }
}

#[test]
fn policies_have_series_of_their_own() {
    let it = Sampled::new();
    fill(&it.service, "a", &[3, 1]);
    fill(&it.service, "b", &[7, 6, 5]);
    fill(&it.service, "c", &[-60]);
    it.step();
    let (_, overdue) = it.one("mayflydb_ttl_overdue_seconds", 0);
    let labels: Vec<&str> = overdue[0].labels.iter().map(|(name, _)| *name).collect();
    assert_eq!((labels, overdue.len()), (vec!["db", "collection", "index"], 3));
    let of = |name: &str| it.one(name, 0).1.iter().map(|it| it.values[0]).collect::<Vec<_>>();
    assert_eq!(of("mayflydb_ttl_overdue_seconds"), [5.0, 9.0, 0.0]);
    assert_eq!(of("mayflydb_ttl_due_documents"), [2.0, 3.0, 0.0]);
    it.service.store.run_ttl_pass(&AtomicBool::new(false)).unwrap();
    it.step();
    let (_, deleted) = it.one("mayflydb_ttl_policy_deleted_documents_total", 0);
    assert_eq!((deleted[0].values[1], deleted[1].values[1]), (1.0, 1.5));
    let mut listed = Vec::new();
    let row = figures().find(|row| row.name == "mayflydb_ttl_overdue_seconds").unwrap();
    fill(&it.service, "d", &[100]);
    it.clock.advance_ms(1000);
    row.read(&Reading::new(&it.service, &[]), &mut |labels, value| {
        listed.push((labels.join("."), value));
    });
    assert_eq!(listed[0], ("db.d.at_1".to_owned(), 101_000), "most lag first");
}
