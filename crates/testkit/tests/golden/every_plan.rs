//! With any indexes and any plan, a query finds the same documents as a collection scan: on every
//! engine, and after a restart.

use mayfly_storage::ReadView;
use mayfly_storage::StoreSession;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use mayfly_base::{ManualClock, Namespace};
use mayfly_mql::SortPattern;
use mayfly_query::{
    CanonicalQuery, Executor, FindOptions, Flow, Hint, Metadata, Plan, PlannerSettings, plans,
};
use mayfly_storage::{Collection, CreateIndexesOptions, Store, StoreOptions};
use mayfly_testkit::{OpenEngine, environment, memory, memory_under_chaos};
use mayfly_value::extjson::parse_document;
use mayfly_value::keys::{self, TypeBits};
use mayfly_value::shell::Shell;
use mayfly_value::{Collation, DocBuf, RawDoc, RawValue, SortOrder};
use mayfly_work::{OpCtx, OpRegistry};

use crate::chance::Chance;
use crate::scripts::rocksdb;

const SCALARS: &[&str] = &[
    "1",
    "2",
    "1.5",
    "{\"$numberLong\": \"2\"}",
    "{\"$numberDouble\": \"NaN\"}",
    "{\"$numberDouble\": \"-Infinity\"}",
    "{\"$numberDecimal\": \"1.5\"}",
    "null",
    "\"\"",
    "\"ab\"",
    "\"Ab\"",
    "\"abc\"",
    "\"b\"",
    "true",
    "false",
    "{\"$date\": \"2020-01-01T00:00:00Z\"}",
    "{\"$oid\": \"0102030405060708090a0b0c\"}",
    "{\"$minKey\": 1}",
    "{\"$maxKey\": 1}",
    "{\"$regularExpression\": {\"pattern\": \"^ab\", \"options\": \"\"}}",
];
const NESTED: &[&str] = &[
    "[]",
    "[1, 2]",
    "[1, null]",
    "[[1, 2], 2]",
    "[\"ab\", \"b\"]",
    "{}",
    "{\"x\": 1}",
    "{\"x\": 1, \"y\": 2}",
    "{\"x\": [1, 2]}",
    "[{\"x\": 1, \"y\": 2}, {\"x\": 2, \"y\": 1}]",
    "[{\"x\": 1}, {\"y\": \"ab\"}, 3]",
    "[{\"x\": [1, 5]}, {\"x\": null}]",
    "[[{\"x\": 1}]]",
];
const PATHS: &[&str] = &["a", "a", "b", "c", "a.x", "c.x", "c.y", "_id", "a.0"];
const INDEXES: &[&str] = &[
    r#"{"key": {"a": 1}, "name": "a"}"#,
    r#"{"key": {"a": -1, "b": 1}, "name": "ab"}"#,
    r#"{"key": {"b": 1, "a": -1, "c": 1}, "name": "bac"}"#,
    r#"{"key": {"a.x": 1}, "name": "ax"}"#,
    r#"{"key": {"c.x": 1, "c.y": -1}, "name": "cxy"}"#,
    r#"{"key": {"c": -1}, "name": "c"}"#,
    r#"{"key": {"a": "hashed"}, "name": "h"}"#,
    r#"{"key": {"$**": 1}, "name": "w"}"#,
    r#"{"key": {"a": 1}, "name": "sparse", "sparse": true}"#,
    r#"{"key": {"b": 1}, "name": "partial", "partialFilterExpression": {"a": {"$gt": 1}}}"#,
    r#"{"key": {"a": 1, "c": 1}, "name": "collated", "collation": {"locale": "en", "strength": 2}}"#,
];
/// Indexes with an entry for every document.
const COMPLETE: &[&str] = &["a", "ab", "bac", "ax", "cxy", "c", "collated"];

fn value(chance: &mut Chance) -> &'static str {
    if chance.below(3) == 0 { chance.pick(NESTED) } else { chance.pick(SCALARS) }
}

fn list(chance: &mut Chance) -> String {
    let count = chance.below(4);
    let items: Vec<&str> = (0..count).map(|_| value(chance)).collect();
    format!("[{}]", items.join(", "))
}

/// `{op: value}` for a path.
fn operators(chance: &mut Chance, depth: usize) -> String {
    let v = value(chance);
    let scalar = chance.pick(SCALARS);
    match chance.below(18) {
        0..3 => format!("{{\"$eq\": {v}}}"),
        3 => format!("{{\"$gt\": {v}}}"),
        4 => format!("{{\"$gte\": {v}}}"),
        5 => format!("{{\"$lt\": {v}}}"),
        6 => format!("{{\"$lte\": {v}}}"),
        7 => format!("{{\"$gte\": {scalar}, \"$lt\": {}}}", chance.pick(SCALARS)),
        8 => format!("{{\"$in\": {}}}", list(chance)),
        9 => format!("{{\"$nin\": {}}}", list(chance)),
        10 => format!("{{\"$ne\": {scalar}}}"),
        11 => format!("{{\"$exists\": {}}}", chance.pick(&["true", "false"])),
        12 => {
            let types = ["\"number\"", "\"string\"", "\"array\"", "\"object\"", "10", "[2, 16, 8]"];
            format!("{{\"$type\": {}}}", chance.pick(&types))
        }
        13 => "{\"$mod\": [2, 0]}".to_owned(),
        14 => {
            let patterns = ["^ab", "^ab$", "b", "^Ab", "^(ab|b)", "^"];
            format!("{{\"$regex\": \"{}\"}}", chance.pick(&patterns))
        }
        15 => format!("{{\"$size\": {}}}", chance.below(3)),
        16 if depth < 2 => format!("{{\"$not\": {}}}", operators(chance, depth + 1)),
        17 if depth < 2 => match chance.below(2) {
            0 => format!("{{\"$elemMatch\": {}}}", operators(chance, depth + 1)),
            _ => {
                let (x, y) = (operators(chance, depth + 1), operators(chance, depth + 1));
                format!("{{\"$elemMatch\": {{\"x\": {x}, \"y\": {y}}}}}")
            }
        },
        _ => format!("{{\"$eq\": {scalar}}}"),
    }
}

fn filter(chance: &mut Chance, depth: usize) -> String {
    let logical = |chance: &mut Chance, name: &str| {
        let parts: Vec<String> =
            (0..2 + chance.below(2)).map(|_| filter(chance, depth + 1)).collect();
        format!("{{\"{name}\": [{}]}}", parts.join(", "))
    };
    match chance.below(10) {
        0 if depth < 2 => logical(chance, "$or"),
        1 if depth < 2 => logical(chance, "$and"),
        2 if depth < 2 => logical(chance, "$nor"),
        3 if depth < 2 => {
            let path = chance.pick(PATHS);
            let parts: Vec<String> =
                (0..3).map(|_| format!("{{\"{path}\": {}}}", operators(chance, 1))).collect();
            format!("{{\"$or\": [{}]}}", parts.join(", "))
        }
        4..7 => {
            let (one, two) = (chance.pick(&["a", "b", "c.x"]), chance.pick(&["c", "a.x", "c.y"]));
            let (first, second) = (operators(chance, 0), operators(chance, 0));
            format!("{{\"{one}\": {first}, \"{two}\": {second}}}")
        }
        7 => format!("{{\"{}\": {}}}", chance.pick(PATHS), value(chance)),
        _ => format!("{{\"{}\": {}}}", chance.pick(PATHS), operators(chance, 0)),
    }
}

/// Documents, each with its text.
type Found = Vec<(String, DocBuf)>;

struct Fixture {
    store: Arc<Store>,
    op: Arc<OpCtx>,
    collection: Arc<Collection>,
}

fn open(engine: &OpenEngine) -> (Arc<Store>, Arc<OpCtx>) {
    let clock = Arc::new(ManualClock::at_ms(0));
    let options = StoreOptions { background: false, ..StoreOptions::default() };
    let ops = OpRegistry::new(clock.clone());
    (Store::open(engine(), options, clock.clone(), ops).unwrap(), OpCtx::detached(clock))
}

impl Fixture {
    fn new(engine: &OpenEngine, chance: &mut Chance, with_arrays: bool) -> Fixture {
        let (store, op) = open(engine);
        // Half of the cases allow intersections of two indexes.
        PlannerSettings::of_store(&store).hash_intersection.store(chance.below(2) == 0, Relaxed);
        let (collection, _) =
            store.get_or_create(&ReadView::now(), &Namespace::parse("db.c").unwrap()).unwrap();
        for id in 0..60 {
            let mut fields = vec![format!("\"_id\": {id}")];
            for name in ["a", "b", "c"] {
                // Two fields of one index may not both be arrays.
                let nested =
                    with_arrays && (name == "c" && id % 2 == 0 || name == "a" && id % 2 == 1);
                let value = match chance.below(5) {
                    0 => continue,
                    _ if nested => value(chance),
                    _ => chance.pick(SCALARS),
                };
                fields.push(format!("\"{name}\": {value}"));
            }
            let document: DocBuf = parse_document(&format!("{{{}}}", fields.join(", "))).unwrap();
            store
                .write(&op, &ReadView::now(), &collection, |unit| unit.insert(document.as_doc()))
                .unwrap();
        }
        Fixture { store, op, collection }
    }

    /// The same server after a restart.
    fn opened_again(self, engine: &OpenEngine) -> Fixture {
        let intersects = PlannerSettings::of_store(&self.store).hash_intersection.load(Relaxed);
        self.store.close().unwrap();
        drop(self);
        let (store, op) = open(engine);
        PlannerSettings::of_store(&store).hash_intersection.store(intersects, Relaxed);
        let collection =
            store.collection(&ReadView::now(), &Namespace::parse("db.c").unwrap()).unwrap();
        Fixture { store, op, collection }
    }

    fn index(&self, chance: &mut Chance) -> Vec<&'static str> {
        let mut made = Vec::new();
        for _ in 0..1 + chance.below(4) {
            let text = chance.pick(INDEXES);
            let spec: DocBuf = parse_document(text).unwrap();
            let options = CreateIndexesOptions { ignore_unknown: false, update_policies: false };
            let ns = self.collection.namespace();
            if self
                .store
                .create_indexes((&self.op, &ReadView::now()), &ns, &[spec.as_doc()], options)
                .is_ok()
            {
                made.push(text);
            }
        }
        made
    }

    /// The results in their order, with the plan summary: for the chosen plan, and then for every
    /// other candidate.
    fn run(&self, filter: RawDoc<'_>, options: FindOptions<'_>) -> Option<Vec<(Found, String)>> {
        let query = CanonicalQuery::parse(filter, options).ok()?;
        let chosen =
            Executor::new(&ReadView::now(), self.collection.clone(), query.clone()).ok()?;
        let plans = plans(&self.collection, &query).unwrap();
        let others = plans.into_iter().skip(1);
        let with_plan = |plan| Executor::with_plan(self.collection.clone(), query.clone(), plan);
        let all = std::iter::once(chosen).chain(others.map(with_plan));
        Some(all.map(|executor| self.run_one(executor)).collect())
    }

    fn run_one(&self, mut executor: Executor) -> (Found, String) {
        let mut found = Vec::new();
        while !executor.is_done() {
            let mut sink = |_: &[u8], document: RawDoc<'_>, _: &Metadata| {
                found.push((Shell(document).to_string(), document.to_owned()));
                // Small batches, so that scans pause everywhere.
                Ok(if found.len().is_multiple_of(3) { Flow::Pause } else { Flow::More })
            };
            executor
                .run(StoreSession::new(&self.store, &self.op, &ReadView::now()), &mut sink)
                .unwrap();
        }
        let mut summary = String::from(executor.plan().summary());
        if executor.plan().any(&mut |node| matches!(node, Plan::And(_))) {
            summary.push_str(" in both");
        }
        (found, summary)
    }

    /// The results of a find by every plan, with sort, skip, limit and projection.
    fn shown(&self, filter: RawDoc<'_>, options: FindOptions<'_>) -> Vec<(Vec<String>, String)> {
        let query = CanonicalQuery::parse(filter, options).unwrap();
        let with_plan = |plan| Executor::with_plan(self.collection.clone(), query.clone(), plan);
        let plans = plans(&self.collection, &query).unwrap().into_iter();
        let shown = |executor| {
            let (found, summary) = self.run_one(executor);
            let projected = found.iter().map(|(_, document)| match &query.projection {
                None => Shell(document.as_doc()).to_string(),
                Some(it) => Shell(it.project(document.as_doc()).unwrap().as_doc()).to_string(),
            });
            (projected.collect(), summary)
        };
        plans.map(with_plan).map(shown).collect()
    }

    /// The distinct values of a field, as ordered keys, with the plan summary.
    fn values(
        &self,
        filter: RawDoc<'_>,
        field: &str,
        options: FindOptions<'_>,
    ) -> (BTreeSet<Vec<u8>>, String) {
        let query = CanonicalQuery::parse(filter, options).unwrap().for_values_of(field);
        let executor = Executor::new(&ReadView::now(), self.collection.clone(), query).unwrap();
        let (found, summary) = self.run_one(executor);
        let mut values = BTreeSet::new();
        let mut take = |value: RawValue<'_>| {
            let mut key = Vec::new();
            keys::append_value(&mut key, &mut TypeBits::default(), value, SortOrder::Ascending);
            values.insert(key);
        };
        for (_, document) in &found {
            match document.as_doc().get(field) {
                Some(RawValue::Array(items)) => items.iter().for_each(|item| take(item.value())),
                Some(value) => take(value),
                None => {}
            }
        }
        (values, summary)
    }

    /// The number of results by every plan.
    fn counts(&self, filter: RawDoc<'_>, options: FindOptions<'_>) -> Vec<u64> {
        let query = CanonicalQuery::parse(filter, options).unwrap();
        let with_plan = |plan| Executor::with_plan(self.collection.clone(), query.clone(), plan);
        let plans = plans(&self.collection, &query).unwrap().into_iter();
        plans
            .map(|plan| {
                with_plan(plan)
                    .count(StoreSession::new(&self.store, &self.op, &ReadView::now()))
                    .unwrap()
            })
            .collect()
    }
}

/// Compares skips, limits and projections, with a sort without equal keys.
fn compare_parts<'o>(
    fixture: &Fixture,
    chance: &mut Chance,
    filter: RawDoc<'_>,
    options: &dyn Fn() -> FindOptions<'o>,
) {
    let orders = [
        r#"{"a": 1, "_id": 1}"#,
        r#"{"b": -1, "a": 1, "_id": 1}"#,
        r#"{"b": 1, "_id": -1}"#,
        r#"{"_id": 1}"#,
    ];
    let order: DocBuf = parse_document(chance.pick(&orders)).unwrap();
    let projections = [r#"{"a": 1, "_id": 0}"#, r#"{"_id": 1}"#, r#"{"b": 1, "a": 1, "_id": 0}"#];
    let projection: DocBuf = parse_document(chance.pick(&projections)).unwrap();
    let (skip, limit) = (chance.below(8) as u64, chance.below(8) as u64);
    let options_with = |hint| FindOptions { skip, limit, hint, ..options() };
    let natural = || Some(Hint::Natural { backward: false });
    let expect = |hint, shown: bool| {
        let query = FindOptions { sort: Some(order.as_doc()), ..options_with(hint) };
        let projection = shown.then_some(projection.as_doc());
        fixture.shown(filter, FindOptions { projection, ..query })
    };
    for shown in [false, true] {
        let expected = expect(natural(), shown);
        for (found, summary) in expect(None, shown) {
            assert_eq!(
                found,
                expected[0].0,
                "{} in order {} skip {skip} limit {limit} by {summary}",
                Shell(filter),
                Shell(order.as_doc())
            );
        }
    }
}

/// Compares this many collections; returns the number of comparisons, and of those with an index.
fn compare(new_engine: &dyn Fn() -> OpenEngine, rounds: usize, restarts: bool) -> (usize, usize) {
    let mut chance = Chance::from_seed(environment::number("PLANS_SEED").unwrap_or(1));
    let english: DocBuf = parse_document(r#"{"locale": "en", "strength": 2}"#).unwrap();
    let english = Collation::parse(english.as_doc(), "collation").unwrap();
    let (mut compared, mut by_index, mut once, mut both) = (0, 0, 0, 0);
    for round in 0..rounds {
        let engine = new_engine();
        let mut fixture = Fixture::new(&engine, &mut chance, round % 3 > 0);
        let made = fixture.index(&mut chance);
        if restarts {
            fixture = fixture.opened_again(&engine);
        }
        for _ in 0..50 {
            let text = filter(&mut chance, 0);
            let document: DocBuf = parse_document(&text).unwrap_or_else(|_| panic!("{text}"));
            let collation = if chance.below(3) == 0 { english.clone() } else { None };
            let options = || FindOptions { collation: collation.clone(), ..FindOptions::default() };
            let natural = Some(Hint::Natural { backward: false });
            let scan = FindOptions { hint: natural, ..options() };
            let Some(expected) = fixture.run(document.as_doc(), scan) else { continue };
            let expected = expected.into_iter().flat_map(|(found, _)| found);
            let mut expected: Vec<String> = expected.map(|(text, _)| text).collect();
            expected.sort();
            for counted in fixture.counts(document.as_doc(), options()) {
                assert_eq!(counted, expected.len() as u64, "{text} counted, of {made:?}");
            }
            let order = [
                r#"{"a": 1}"#,
                r#"{"a": -1, "b": 1}"#,
                r#"{"b": 1, "a": -1}"#,
                r#"{"c.x": 1}"#,
                r#"{"_id": -1}"#,
            ];
            let order: DocBuf = parse_document(chance.pick(&order)).unwrap();
            for field in ["a", "b", "c"] {
                let natural = Some(Hint::Natural { backward: false });
                let scan = FindOptions { hint: natural, ..options() };
                let (expected, _) = fixture.values(document.as_doc(), field, scan);
                let (found, summary) = fixture.values(document.as_doc(), field, options());
                assert_eq!(found, expected, "{field} of {text} by {summary} of {made:?}");
                once += usize::from(summary.starts_with("DISTINCT_SCAN"));
            }
            compare_parts(&fixture, &mut chance, document.as_doc(), &options);
            let hints = COMPLETE.iter().filter(|name| {
                made.iter().any(|text| text.contains(&format!("\"name\": \"{name}\"")))
            });
            let hints = hints.map(|name| Some(Hint::Name((*name).to_owned())));
            for hint in std::iter::once(None).chain(hints) {
                for sort in [None, Some(order.as_doc())] {
                    let options = FindOptions { hint: hint.clone(), sort, ..options() };
                    let all = fixture.run(document.as_doc(), options);
                    for (found, summary) in all.unwrap_or_else(|| panic!("{text}")) {
                        if let Some(sort) = sort {
                            let pattern = SortPattern::parse(sort).unwrap();
                            let pattern = pattern.collated(collation.clone());
                            let keys = found.iter().map(|(_, it)| pattern.sort_key(it.as_doc()));
                            let sort = Shell(sort);
                            assert!(keys.is_sorted(), "{text} by {summary} of {made:?}, {sort}");
                        }
                        let found = found.into_iter().map(|(text, _)| text);
                        let mut found: Vec<String> = found.collect();
                        found.sort();
                        assert_eq!(
                            found, expected,
                            "{text} sorted {sort:?} under {collation:?} by {summary} of {made:?}"
                        );
                        compared += 1;
                        by_index += usize::from(!summary.starts_with("COLLSCAN"));
                        both += usize::from(summary.ends_with("in both"));
                    }
                }
            }
        }
    }
    // Plans of each kind have occurred.
    assert!(once > rounds && both > 10, "{once} {both} in {rounds}");
    (compared, by_index)
}

#[test]
fn every_plan_finds_what_a_scan_finds() {
    let (compared, by_index) = compare(&memory, 60, false);
    assert!(compared > 10_000 && by_index > 5_000, "{compared} {by_index}");
}

#[test]
fn every_plan_finds_what_a_scan_finds_under_chaos() {
    let (compared, by_index) = compare(&|| memory_under_chaos(11), 20, true);
    assert!(compared > 3_000 && by_index > 1_500, "{compared} {by_index}");
}

#[test]
fn every_plan_finds_what_a_scan_finds_in_files() {
    let (compared, by_index) = compare(&rocksdb, 20, true);
    assert!(compared > 3_000 && by_index > 1_500, "{compared} {by_index}");
}
