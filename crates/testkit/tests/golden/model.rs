//! Random inserts, updates, deletes, moves of the clock, passes, restarts and crashes: the
//! remaining documents are those of a model that only uses the dates.

use std::collections::BTreeMap;

use mayfly_testkit::{Fixture, OpenEngine, clustered, expect, memory, memory_under_chaos};
use mayfly_value::RawValue;
use proptest::prelude::*;

use crate::properties::runner;
use crate::scripts::{postgres, rocksdb};

/// `expireAfterSeconds` of the policies on `d` and `e`.
const SECONDS: [i64; 2] = [10, 0];

/// One of the two fields: offsets of dates from the moment of the write, in seconds. `None` is no
/// date.
type Dates = Vec<i64>;

#[derive(Clone, Debug)]
enum Step {
    Put { id: u8, d: Dates, e: Option<i64> },
    Update { id: u8, e: Option<i64> },
    Delete { id: u8 },
    Advance { secs: i64 },
    SetPolicy { secs: i64 },
    Pass,
    Restart,
    Crash,
}

fn step() -> impl Strategy<Value = Step> {
    let id = 0..12u8;
    let offset = -30..30i64;
    let dates = prop::collection::vec(offset.clone(), 0..3);
    prop_oneof![
        6 => (id.clone(), dates, prop::option::of(offset.clone()))
            .prop_map(|(id, d, e)| Step::Put { id, d, e }),
        3 => (id.clone(), prop::option::of(offset)).prop_map(|(id, e)| Step::Update { id, e }),
        1 => id.prop_map(|id| Step::Delete { id }),
        4 => (0..15i64).prop_map(|secs| Step::Advance { secs }),
        1 => (0..20i64).prop_map(|secs| Step::SetPolicy { secs }),
        4 => Just(Step::Pass),
        1 => Just(Step::Restart),
        1 => Just(Step::Crash),
    ]
}

/// What is stored: absolute dates in milliseconds.
#[derive(Default)]
struct Model {
    documents: BTreeMap<u8, (Vec<i64>, Option<i64>)>,
    seconds: i64,
}

impl Model {
    fn pass(&mut self, now: i64) {
        let (cutoff_d, cutoff_e) = (now - self.seconds * 1000, now - SECONDS[1] * 1000);
        self.documents.retain(|_, (d, e)| {
            !d.iter().any(|date| *date <= cutoff_d) && e.is_none_or(|date| date > cutoff_e)
        });
    }
}

fn dialect_date(date: Option<i64>) -> String {
    date.map_or_else(|| "'no date'".to_owned(), |date| format!("Date({date})"))
}

fn run(fixture: &mut Fixture, model: &mut Model, step: &Step) {
    let now = fixture.env().now_ms;
    let at = |offset: &i64| now + offset * 1000;
    match step {
        Step::Put { id, d, e } => {
            let (d, e): (Vec<i64>, _) = (d.iter().map(at).collect(), e.as_ref().map(at));
            let dates: Vec<String> = d.iter().map(|date| dialect_date(Some(*date))).collect();
            let new =
                format!("{{d: [{}], e: {}, plain: @(now)}}", dates.join(", "), dialect_date(e));
            let put = format!("{{q: {{_id: {id}}}, u: {new}, upsert: true}}");
            fixture.ok("test", &format!("{{update: 'c', updates: [{put}]}}"));
            model.documents.insert(*id, (d, e));
        }
        Step::Update { id, e } => {
            let e = e.as_ref().map(at);
            let change = format!("{{q: {{_id: {id}}}, u: {{$set: {{e: {}}}}}}}", dialect_date(e));
            fixture.ok("test", &format!("{{update: 'c', updates: [{change}]}}"));
            if let Some(document) = model.documents.get_mut(id) {
                document.1 = e;
            }
        }
        Step::Delete { id } => {
            fixture
                .ok("test", &format!("{{delete: 'c', deletes: [{{q: {{_id: {id}}}, limit: 1}}]}}"));
            model.documents.remove(id);
        }
        Step::Advance { secs } => fixture.clock.advance_ms(secs * 1000),
        Step::SetPolicy { secs } => {
            let index = format!("{{name: 'd', expireAfterSeconds: {secs}}}");
            fixture.ok("test", &format!("{{collMod: 'c', index: {index}}}"));
            model.seconds = *secs;
        }
        Step::Pass => {
            fixture.ttl_pass();
            model.pass(now);
        }
        Step::Restart => fixture.restart(),
        Step::Crash => fixture.crash(),
    }
}

fn survivors(fixture: &Fixture, command: &str) -> Vec<u8> {
    let reply = fixture.ok("test", command);
    let batch = expect::batch(reply.as_doc()).and_then(RawValue::as_array).unwrap();
    let id = |document: RawValue<'_>| match document.as_document()?.get("_id") {
        Some(RawValue::Int32(id)) => u8::try_from(id).ok(),
        _ => None,
    };
    batch.iter().filter_map(|element| id(element.value())).collect()
}

fn agrees_with_model(cases: u32, steps: usize, open: impl Fn() -> OpenEngine) {
    let result = runner(cases).run(&prop::collection::vec(step(), 1..steps), |steps| {
        let mut fixture = Fixture::new(open());
        let indexes = format!(
            "[{{key: {{d: 1}}, name: 'd', expireAfterSeconds: {}}}, \
             {{key: {{e: -1}}, name: 'e', expireAfterSeconds: {}}}, \
             {{key: {{plain: 1}}, name: 'plain'}}]",
            SECONDS[0], SECONDS[1]
        );
        fixture.ok("test", &format!("{{createIndexes: 'c', indexes: {indexes}}}"));
        let mut model = Model { seconds: SECONDS[0], ..Model::default() };
        for step in &steps {
            run(&mut fixture, &mut model, step);
            let left: Vec<u8> = model.documents.keys().copied().collect();
            let found = survivors(&fixture, "{find: 'c', sort: {_id: 1}}");
            prop_assert_eq!(&found, &left, "after {:?}", step);
        }
        let left: Vec<u8> = model.documents.keys().copied().collect();
        // The other indexes and the kept count agree with the records.
        let mut by_index = survivors(&fixture, "{find: 'c', hint: 'plain'}");
        by_index.sort_unstable();
        prop_assert_eq!(&by_index, &left);
        let count = fixture.ok("test", "{count: 'c'}");
        prop_assert_eq!(count.as_doc().get("n"), Some(RawValue::Int32(left.len() as i32)));
        Ok(())
    });
    if let Err(failure) = result {
        panic!("{failure}");
    }
}

#[test]
fn expiry_agrees_with_a_model() {
    agrees_with_model(200, 50, memory);
}

#[test]
fn expiry_agrees_with_a_model_over_clustered_records() {
    agrees_with_model(100, 50, || clustered(memory()));
}

#[test]
fn expiry_agrees_with_a_model_under_chaos() {
    agrees_with_model(60, 40, || memory_under_chaos(5));
}

#[test]
fn expiry_agrees_with_a_model_on_postgres() {
    agrees_with_model(6, 40, postgres);
}

#[test]
fn expiry_agrees_with_a_model_on_rocksdb() {
    agrees_with_model(6, 40, rocksdb);
}
