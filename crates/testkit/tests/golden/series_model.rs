//! Random measurements, changes of the time to live, passes, restarts and crashes under both
//! `ttlIndexRules`: the deletions from a time series are compared with the rules for whole buckets.
//!
//! The rules do not specify the bounds of buckets. A measurement must stay while it is not due, and
//! must be deleted when all measurements that may share its bucket are due.

use std::collections::BTreeMap;

use mayfly_testkit::{Fixture, OpenEngine, START_MS, expect, memory, memory_under_chaos};
use mayfly_value::RawValue;
use proptest::prelude::*;

use crate::properties::runner;
use crate::scripts::rocksdb;

/// The largest span of a bucket with the default granularity, in seconds.
const SPAN: i64 = 3600;
/// `expireAfterSeconds` of the policy on the time of source 1.
const PARTIAL: i64 = 1800;

#[derive(Clone, Debug)]
enum Step {
    /// Sources, and offsets of their times from now in seconds.
    Insert(Vec<(u8, i64)>),
    DeleteSource(u8),
    Advance(i64),
    /// The time to live, or none.
    Set(Option<i64>),
    /// Whether the time to live of the series is paused.
    Pause(bool),
    /// `ttlIndexRules`: "mongod8", or "manual".
    Rules(bool),
    Pass,
    Restart,
    Crash,
}

fn step() -> impl Strategy<Value = Step> {
    let measurement = (0..3u8, -3 * SPAN..2 * SPAN);
    prop_oneof![
        6 => prop::collection::vec(measurement, 1..6).prop_map(Step::Insert),
        1 => (0..3u8).prop_map(Step::DeleteSource),
        5 => (0..SPAN).prop_map(Step::Advance),
        2 => prop::option::weighted(0.8, 0..2 * SPAN).prop_map(Step::Set),
        1 => any::<bool>().prop_map(Step::Pause),
        1 => any::<bool>().prop_map(Step::Rules),
        5 => Just(Step::Pass),
        1 => Just(Step::Restart),
        1 => Just(Step::Crash),
    ]
}

/// By `_id`: source and time.
#[derive(Debug, Default)]
struct Model {
    measurements: BTreeMap<i32, (u8, i64)>,
    next: i32,
    seconds: Option<i64>,
    paused: bool,
    mongod8: bool,
    /// Whether source 1 has a policy of its own.
    partial: bool,
}

impl Model {
    /// The latest due time of a source; `None` without a policy.
    fn cutoff(&self, source: u8, now: i64) -> Option<i64> {
        let partial = (self.partial && source == 1).then_some(PARTIAL);
        let seconds = self.seconds.filter(|_| !self.paused);
        let seconds = seconds.into_iter().chain(partial).min()?;
        Some(now - seconds * 1000)
    }

    /// Whether a pass may delete a measurement.
    fn may_go(&self, source: u8, time: i64, now: i64) -> bool {
        self.cutoff(source, now).is_some_and(|cutoff| time <= cutoff)
    }

    /// Whether a pass must delete a measurement.
    fn must_go(&self, source: u8, time: i64, now: i64) -> bool {
        let Some(cutoff) = self.cutoff(source, now) else { return false };
        // A bucket's start is a whole minute.
        let whole_bucket = time + (SPAN + 60) * 1000 <= cutoff;
        let of_source = self.measurements.values().filter(|(other, _)| *other == source);
        let all = of_source.map(|(_, time)| *time).max().is_some_and(|latest| latest <= cutoff);
        whole_bucket || (all && !self.mongod8)
    }
}

fn stored(fixture: &Fixture) -> Vec<i32> {
    let reply = fixture.ok("test", "{find: 's', sort: {_id: 1}, batchSize: 1000}");
    let batch = expect::batch(reply.as_doc()).and_then(RawValue::as_array).unwrap();
    let id = |document: RawValue<'_>| match document.as_document()?.get("_id") {
        Some(RawValue::Int32(id)) => Some(id),
        _ => None,
    };
    batch.iter().filter_map(|element| id(element.value())).collect()
}

fn set_rules(fixture: &Fixture, mongod8: bool) {
    let rules = if mongod8 { "mongod8" } else { "manual" };
    fixture.ok("admin", &format!("{{setParameter: 1, ttlIndexRules: '{rules}'}}"));
}

fn run(fixture: &mut Fixture, model: &mut Model, step: &Step) -> Result<(), TestCaseError> {
    let now = fixture.env().now_ms;
    match step {
        Step::Insert(measurements) => {
            let mut documents = Vec::new();
            for (source, offset) in measurements {
                let (id, time) = (model.next, now + offset * 1000);
                documents.push(format!("{{_id: {id}, t: Date({time}), m: {source}}}"));
                model.measurements.insert(id, (*source, time));
                model.next += 1;
            }
            let documents = documents.join(", ");
            fixture.ok("test", &format!("{{insert: 's', documents: [{documents}]}}"));
        }
        Step::DeleteSource(source) => {
            let delete = format!("{{q: {{m: {source}}}, limit: 0}}");
            fixture.ok("test", &format!("{{delete: 's', deletes: [{delete}]}}"));
            model.measurements.retain(|_, (other, _)| other != source);
        }
        Step::Advance(secs) => fixture.clock.advance_ms(secs * 1000),
        Step::Set(seconds) => {
            let value = seconds.map_or("'off'".to_owned(), |seconds| seconds.to_string());
            fixture.ok("test", &format!("{{collMod: 's', expireAfterSeconds: {value}}}"));
            model.seconds = *seconds;
            // Disabling it removes its options, too.
            model.paused &= seconds.is_some();
        }
        Step::Pause(paused) => {
            if model.seconds.is_some() {
                fixture.ok("test", &format!("{{collMod: 's', ttl: {{paused: {paused}}}}}"));
                model.paused = *paused;
            }
        }
        Step::Rules(mongod8) => {
            set_rules(fixture, *mongod8);
            model.mongod8 = *mongod8;
        }
        Step::Pass => {
            fixture.ttl_pass();
            let left = stored(fixture);
            for (id, (source, time)) in &model.measurements {
                let is_left = left.binary_search(id).is_ok();
                let kept = !model.may_go(*source, *time, now);
                prop_assert!(is_left || !kept, "{} is not due and gone", id);
                let gone = model.must_go(*source, *time, now);
                prop_assert!(!is_left || !gone, "{} is due with all around it and there", id);
            }
            model.measurements.retain(|id, _| left.binary_search(id).is_ok());
        }
        Step::Restart => fixture.restart(),
        Step::Crash => fixture.crash(),
    }
    if matches!(step, Step::Restart | Step::Crash) {
        set_rules(fixture, model.mongod8);
    }
    Ok(())
}

fn agrees(cases: u32, steps: usize, open: impl Fn() -> OpenEngine) {
    let steps = (any::<bool>(), prop::collection::vec(step(), 1..steps));
    let result = runner(cases).run(&steps, |(partial, steps)| {
        let mut fixture = Fixture::new(open());
        let series = "{timeField: 't', metaField: 'm'}";
        let create = format!("create: 's', timeseries: {series}, expireAfterSeconds: {SPAN}");
        fixture.ok("test", &format!("{{{create}}}"));
        if partial {
            let filter = "partialFilterExpression: {m: 1}";
            let index =
                format!("{{key: {{t: 1}}, name: 't', expireAfterSeconds: {PARTIAL}, {filter}}}");
            fixture.ok("test", &format!("{{createIndexes: 's', indexes: [{index}]}}"));
        }
        let mut model = Model { seconds: Some(SPAN), partial, ..Model::default() };
        // Not at a whole minute.
        fixture.clock.advance_ms(START_MS % 60_000 + 12_345);
        for (at, step) in steps.iter().enumerate() {
            run(&mut fixture, &mut model, step)
                .map_err(|why| TestCaseError::fail(format!("in step {at}, {step:?}: {why}")))?;
            let expected: Vec<i32> = model.measurements.keys().copied().collect();
            prop_assert_eq!(stored(&fixture), expected, "after step {}, {:?}", at, step);
        }
        let checked = fixture.ok("test", "{validate: 's'}");
        prop_assert_eq!(checked.as_doc().get("valid"), Some(RawValue::Bool(true)));
        Ok(())
    });
    if let Err(failure) = result {
        panic!("{failure}");
    }
}

#[test]
fn expiry_of_time_series_agrees_with_a_model() {
    agrees(150, 30, memory);
}

#[test]
fn expiry_of_time_series_agrees_with_a_model_under_chaos() {
    agrees(40, 25, || memory_under_chaos(13));
}

#[test]
fn expiry_of_time_series_agrees_with_a_model_on_rocksdb() {
    agrees(8, 30, rocksdb);
}
