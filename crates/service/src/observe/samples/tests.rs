//! Samples of a service with a clock that the tests move.

use std::sync::Arc;

use mayfly_base::{Clock, ManualClock};
use mayfly_kv::MemoryEngine;
use mayfly_storage::{Store, StoreOptions};
use mayfly_value::DocBuf;
use mayfly_work::OpRegistry;

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
