//! Random policies with all their options, random documents, writes, changes of policies, moves and
//! jumps of the clock, passes, restarts and crashes. After every step the visible, stored and
//! archived documents are compared with a model.

mod model;
mod step;

use std::collections::BTreeSet;

use mayfly_testkit::{Fixture, OpenEngine, dialect, expect, memory, memory_under_chaos};
use mayfly_value::{RawDoc, RawValue};
use proptest::prelude::*;
use proptest::sample::select;

use crate::properties::runner;
use crate::scripts::rocksdb;
use model::{Archived, Coverage, Id, Kind, Model, Policy};
use step::{Case, Step, options, seconds, step};

/// Parameters for small units and visits: documents per unit, documents per visit.
const PIECES: &[(i32, i32)] = &[(1, 1), (2, 3), (10, 50_000)];

fn policies() -> impl Strategy<Value = Vec<Policy>> {
    let coverage = || select(vec![Coverage::All, Coverage::Sparse, Coverage::Partial]);
    let policy = |kind: BoxedStrategy<Kind>, own_only: bool| {
        (kind, any::<bool>(), seconds(own_only), options()).prop_map(
            |(kind, descending, seconds, options)| Policy {
                kind,
                descending,
                seconds: Some(seconds),
                options,
            },
        )
    };
    let d = policy(coverage().prop_map(Kind::D).boxed(), false);
    let e = policy(coverage().prop_map(Kind::E).boxed(), false);
    let modified = policy(Just(Kind::Modified).boxed(), true);
    let clustered = (seconds(false), options()).prop_map(|(seconds, options)| Policy {
        kind: Kind::Clustered,
        descending: false,
        seconds: Some(seconds),
        options,
    });
    let some = prop::option::of;
    (some(d), some(e), some(modified), prop::option::weighted(0.3, clustered)).prop_map(
        |(d, e, modified, clustered)| {
            clustered.into_iter().chain(d).chain(e).chain(modified).collect()
        },
    )
}

fn case(steps: usize) -> impl Strategy<Value = Case> {
    let pieces = select(PIECES.to_vec());
    (policies(), pieces, prop::collection::vec(step(), 1..steps))
        .prop_map(|(policies, pieces, steps)| Case { policies, pieces, steps })
}

fn set_up(fixture: &Fixture, case: &Case) -> Model {
    if let Some(policy) = case.policies.iter().find(|policy| policy.kind == Kind::Clustered) {
        let (seconds, ttl) = (policy.seconds.unwrap_or(0), policy.options.show());
        let index = "{key: {_id: 1}, unique: true}";
        let expiry = format!("expireAfterSeconds: {seconds}, ttl: {ttl}");
        fixture.ok("test", &format!("{{create: 'c', clusteredIndex: {index}, {expiry}}}"));
    }
    let mut indexes = vec![
        "{key: {n: 1}, name: 'n'}".to_owned(),
        "{key: {u: 1}, name: 'u', unique: true, sparse: true}".to_owned(),
    ];
    let of_indexes = case.policies.iter().filter(|policy| policy.kind != Kind::Clustered);
    indexes.extend(of_indexes.map(Policy::show));
    fixture.ok("test", &format!("{{createIndexes: 'c', indexes: [{}]}}", indexes.join(", ")));
    Model {
        policies: case.policies.clone(),
        documents: Default::default(),
        archive: Default::default(),
        last_modified: true,
        jumped_ms: None,
    }
}

fn set_pieces(fixture: &Fixture, (unit, visit): (i32, i32)) {
    for (name, value) in
        [("batchedDeletesTargetBatchDocs", unit), ("ttlIndexDeleteTargetDocs", visit)]
    {
        fixture.ok("admin", &format!("{{setParameter: 1, {name}: {value}}}"));
    }
}

fn id_of(document: RawDoc<'_>) -> Id {
    match document.get("_id") {
        Some(RawValue::Int32(number)) => Id::Number(number),
        Some(RawValue::Date(date)) => Id::Date(date),
        other => panic!("_id {other:?}"),
    }
}

fn number_of(document: RawDoc<'_>, name: &str) -> i64 {
    match document.get(name) {
        Some(RawValue::Int32(number)) => i64::from(number),
        Some(RawValue::Int64(number)) => number,
        other => panic!("{name} {other:?}"),
    }
}

/// The documents of a query, each converted by `of`.
fn shown<T>(fixture: &Fixture, command: &str, of: impl Fn(RawDoc<'_>) -> T) -> Vec<T> {
    let reply = fixture.ok("test", command);
    let batch = expect::batch(reply.as_doc()).and_then(RawValue::as_array).unwrap();
    batch.iter().map(|element| of(element.value().as_document().unwrap())).collect()
}

fn check(fixture: &Fixture, model: &Model) -> Result<(), TestCaseError> {
    let now = fixture.env().now_ms;
    let expected: Vec<(Id, i64)> = model.visible(now).into_iter().collect();
    let pair = |document: RawDoc<'_>| (id_of(document), number_of(document, "n"));
    for query in ["sort: {_id: 1}", "hint: 'n'", "filter: {n: {$gte: 0}}"] {
        let mut found = shown(fixture, &format!("{{find: 'c', {query}, batchSize: 1000}}"), pair);
        found.sort();
        prop_assert_eq!(&found, &expected, "visible by {}", query);
    }
    let count = fixture.ok("test", "{count: 'c'}");
    prop_assert_eq!(number_of(count.as_doc(), "n"), expected.len() as i64, "count");
    let validated = fixture.ok("test", "{validate: 'c'}");
    let validated = validated.as_doc();
    let text = || dialect::show(validated);
    prop_assert_eq!(validated.get("valid"), Some(RawValue::Bool(true)), "{}", text());
    prop_assert_eq!(number_of(validated, "nrecords"), model.documents.len() as i64, "stored");

    let archived: Vec<i64> =
        shown(fixture, "{find: 'archive', batchSize: 1000}", |document| number_of(document, "n"));
    let archived_once: BTreeSet<i64> = archived.iter().copied().collect();
    prop_assert_eq!(archived.len(), archived_once.len(), "archived twice: {:?}", archived);
    for number in &archived_once {
        prop_assert!(model.archive.contains_key(number), "{} was not to be archived", number);
    }
    for (number, archived) in &model.archive {
        let found = archived_once.contains(number);
        prop_assert!(found || *archived == Archived::May, "{} is lost", number);
    }

    let status = "{aggregate: 'c', pipeline: [{$ttlStats: {}}], cursor: {}}";
    let due = shown(fixture, status, |document| {
        let name = document.get("index").and_then(RawValue::as_str).unwrap_or_default();
        (name.to_owned(), number_of(document, "due"))
    });
    for (name, due) in due {
        let policy = model.policies.iter().find(|policy| policy.name() == name).unwrap();
        let expected = model.documents.iter();
        let expected =
            expected.filter(|(id, stored)| model.is_due(policy, **id, stored, now)).count();
        prop_assert_eq!(due, expected as i64, "due by {}", name);
    }
    Ok(())
}

fn agrees(cases: u32, steps: usize, open: impl Fn() -> OpenEngine) {
    let result = runner(cases).run(&case(steps), |case| {
        let mut fixture = Fixture::new(open());
        let mut model = set_up(&fixture, &case);
        set_pieces(&fixture, case.pieces);
        for (at, step) in case.steps.iter().enumerate() {
            step.run(&mut fixture, &mut model, at as i64)?;
            if matches!(step, Step::Restart | Step::Crash) {
                set_pieces(&fixture, case.pieces);
            }
            check(&fixture, &model).map_err(|why| {
                TestCaseError::fail(format!("after step {at}, {step:?}: {why}\n{model:#?}"))
            })?;
        }
        Ok(())
    });
    if let Err(failure) = result {
        panic!("{failure}");
    }
}

#[test]
fn policies_agree_with_a_model() {
    agrees(200, 40, memory);
}

#[test]
fn policies_agree_with_a_model_under_chaos() {
    agrees(40, 30, || memory_under_chaos(9));
}

#[test]
fn policies_agree_with_a_model_on_rocksdb() {
    agrees(8, 40, rocksdb);
}
