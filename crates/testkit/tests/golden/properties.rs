//! Random documents and filters: results are the same with and without indexes, on the memory
//! engine and the chaos engine.

use mayfly_testkit::{Fixture, environment, expect, memory, memory_under_chaos};
use mayfly_value::{DocBuf, DocBuilder, RawDoc, RawValue, ValueBuf, compare_values};
use proptest::prelude::*;
use proptest::sample::select;
use proptest::test_runner::{Config, RngAlgorithm, TestRng, TestRunner};

/// A runner whose cases are the same every time. `MORE=20` runs twenty times as many.
pub(crate) fn runner(cases: u32) -> TestRunner {
    let cases = cases * environment::number("MORE").unwrap_or(1) as u32;
    let config = Config { cases, failure_persistence: None, ..Config::default() };
    TestRunner::new_with_rng(config, TestRng::from_seed(RngAlgorithm::ChaCha, &[7; 32]))
}

/// Values in the shell dialect, many of which are equal or in the same array.
pub(crate) fn value() -> BoxedStrategy<String> {
    let leaf = select(vec![
        "null",
        "1",
        "1.0",
        "NumberLong(2)",
        "NumberDecimal('2.5')",
        "3",
        "NaN",
        "''",
        "'a'",
        "'A'",
        "'b'",
        "true",
        "false",
        "Date(0)",
        "Date(5)",
        "NumberLong(1)",
        "NumberDecimal('1')",
        "-0.0",
        "MinKey",
        "MaxKey",
        "Timestamp(0, 1)",
        "ObjectId('000000000000000000000001')",
        "[]",
        "{}",
    ])
    .prop_map(str::to_owned);
    leaf.prop_recursive(2, 8, 3, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 1..4)
                .prop_map(|items| format!("[{}]", items.join(", "))),
            (select(vec!["x", "y", "0"]), inner)
                .prop_map(|(name, value)| format!("{{{name}: {value}}}")),
        ]
    })
    .boxed()
}

/// Fields of a document: `a`, `b` and `c`, each of them optional.
pub(crate) fn document() -> impl Strategy<Value = String> {
    let field = || prop::option::weighted(0.8, value());
    (field(), field(), field()).prop_map(|(a, b, c)| {
        let named = [("a", a), ("b", b), ("c", c)];
        let fields: Vec<String> = named
            .into_iter()
            .filter_map(|(name, value)| value.map(|value| format!("{name}: {value}")))
            .collect();
        fields.join(", ")
    })
}

fn list(operator: &'static str) -> BoxedStrategy<String> {
    prop::collection::vec(value(), 0..4)
        .prop_map(move |list| format!("{{{operator}: [{}]}}", list.join(", ")))
        .boxed()
}

pub(crate) fn predicate() -> BoxedStrategy<String> {
    let comparison = (select(vec!["$eq", "$gt", "$gte", "$lt", "$lte", "$ne"]), value())
        .prop_map(|(op, value)| format!("{{{op}: {value}}}"));
    let plain = prop_oneof![
        4 => comparison,
        1 => (value(), value()).prop_map(|(low, high)| format!("{{$gte: {low}, $lt: {high}}}")),
        2 => list("$in"),
        1 => list("$nin"),
        1 => any::<bool>().prop_map(|there| format!("{{$exists: {there}}}")),
        1 => select(vec!["number", "string", "null", "array", "object"])
            .prop_map(|kind| format!("{{$type: '{kind}'}}")),
        1 => (0..3).prop_map(|size| format!("{{$size: {size}}}")),
        1 => value().prop_map(|value| format!("{{$elemMatch: {{$gte: {value}}}}}")),
    ];
    prop_oneof![5 => plain.clone(), 1 => plain.prop_map(|inner| format!("{{$not: {inner}}}"))]
        .boxed()
}

pub(crate) fn filter() -> BoxedStrategy<String> {
    let path = select(vec!["a", "b", "c", "a.x", "b.x", "a.y", "a.0"]);
    let field = prop_oneof![
        3 => (path.clone(), predicate())
            .prop_map(|(path, predicate)| format!("{{'{path}': {predicate}}}")),
        1 => (path, value()).prop_map(|(path, value)| format!("{{'{path}': {value}}}")),
    ];
    let computed = (select(vec!["$eq", "$gt", "$lte"]), value())
        .prop_map(|(op, value)| format!("{{$expr: {{{op}: ['$a', {{$literal: {value}}}]}}}}"));
    let field = prop_oneof![12 => field, 1 => computed];
    field
        .prop_recursive(2, 6, 3, |inner| {
            (select(vec!["$and", "$or", "$nor"]), prop::collection::vec(inner, 1..4))
                .prop_map(|(op, parts)| format!("{{{op}: [{}]}}", parts.join(", ")))
        })
        .boxed()
}

pub(crate) fn sort() -> impl Strategy<Value = String> {
    select(vec![
        "{_id: 1}",
        "{_id: -1}",
        "{a: 1, _id: 1}",
        "{a: -1, b: 1, _id: 1}",
        "{'a.x': 1, _id: 1}",
        "{b: 1, _id: -1}",
    ])
    .prop_map(str::to_owned)
}

const INDEXES: &str = "[{key: {a: 1}, name: '1'}, {key: {b: -1, a: 1}, name: '2'},
  {key: {'a.x': 1}, name: '3'}, {key: {c: 1}, name: '4', sparse: true},
  {key: {b: 1}, name: '5', partialFilterExpression: {a: {$gte: 1}}},
  {key: {'b.x': 1, c: -1}, name: '6'}, {key: {a: 1, c: 1, _id: 1}, name: '7'}]";

pub(crate) fn ids(reply: &DocBuf) -> Vec<ValueBuf> {
    let batch = expect::batch(reply.as_doc()).and_then(RawValue::as_array).unwrap_or(RawDoc::EMPTY);
    let id = |document: RawValue<'_>| document.as_document()?.get("_id").map(RawValue::to_owned);
    batch.iter().filter_map(|element| id(element.value())).collect()
}

/// A document that an index refuses (arrays in two of its fields) is in neither collection.
pub(crate) fn load(fixture: &Fixture, documents: &[String], indexes_first: bool) {
    let create = format!("{{createIndexes: 'indexed', indexes: {INDEXES}}}");
    fixture.ok("test", "{create: 'plain'}");
    if indexes_first {
        fixture.ok("test", &create);
    }
    let mut taken = Vec::new();
    for (id, fields) in documents.iter().enumerate() {
        let text = format!("{{insert: 'indexed', documents: [{{_id: {id}, {fields}}}]}}");
        let reply = fixture.run("test", &text);
        if reply.as_doc().get("n") == Some(RawValue::Int32(1)) {
            taken.push(text.replace("'indexed'", "'plain'"));
        }
    }
    if !indexes_first
        && fixture.run("test", &create).as_doc().get("ok") == Some(RawValue::Double(0.0))
    {
        // Some document cannot be indexed: the build left no entries, as the comparison shows.
        let fewer = "[{key: {a: 1}, name: '1'}, {key: {c: 1}, name: '4', sparse: true}]";
        fixture.ok("test", &format!("{{createIndexes: 'indexed', indexes: {fewer}}}"));
    }
    for text in taken {
        fixture.ok("test", &text);
    }
}

pub(crate) fn agree(fixture: &Fixture, filter: &str, sort: &str) -> Result<(), TestCaseError> {
    let find = |collection: &str, more: &str| {
        let reply = fixture.run(
            "test",
            &format!("{{find: '{collection}', filter: {filter}, batchSize: 1000{more}}}"),
        );
        let mut answer = DocBuilder::new();
        // The error, if it is one, must be the same, too.
        for field in ["ok", "code", "errmsg"] {
            if let Some(value) = reply.as_doc().get(field) {
                answer.append(field, value);
            }
        }
        (ids(&reply), answer.finish())
    };
    let sorted = |mut ids: Vec<ValueBuf>| {
        ids.sort_by(|a, b| compare_values(a.as_raw(), b.as_raw()));
        ids
    };
    let ((plain, plain_end), (indexed, indexed_end)) = (find("plain", ""), find("indexed", ""));
    prop_assert_eq!(plain_end, indexed_end, "{}", filter);
    prop_assert_eq!(sorted(plain), sorted(indexed), "{}", filter);
    let more = format!(", sort: {sort}");
    prop_assert_eq!(find("plain", &more), find("indexed", &more), "{} {}", filter, sort);
    let more = format!(", sort: {sort}, skip: 1, limit: 3");
    prop_assert_eq!(find("plain", &more), find("indexed", &more), "{} {}", filter, sort);
    Ok(())
}

/// Compares the distinct values of a field, of all documents and of those that match the filter.
fn agree_on_values(fixture: &Fixture, filter: &str) -> Result<(), TestCaseError> {
    for key in ["a", "b", "c", "a.x", "b.x", "a.0"] {
        for query in ["{}", filter] {
            let distinct = |collection: &str| {
                let text = format!("{{distinct: '{collection}', key: '{key}', query: {query}}}");
                let reply = fixture.run("test", &text);
                let values = reply.as_doc().get("values").and_then(RawValue::as_array);
                let values = values.unwrap_or(RawDoc::EMPTY).iter();
                let mut values: Vec<ValueBuf> =
                    values.map(|value| value.value().to_owned()).collect();
                values.sort_by(|a, b| compare_values(a.as_raw(), b.as_raw()));
                values
            };
            let (plain, indexed) = (distinct("plain"), distinct("indexed"));
            // Any of several equal values may be returned.
            let same = plain.len() == indexed.len()
                && plain
                    .iter()
                    .zip(&indexed)
                    .all(|(a, b)| compare_values(a.as_raw(), b.as_raw()).is_eq());
            prop_assert!(same, "{} {}: {:?} {:?}", key, query, plain, indexed);
        }
    }
    Ok(())
}

/// Runs the same writes on both collections, and compares counts and documents. Returns false if an
/// index refused one of them; the collections differ then.
fn write_alike(fixture: &Fixture, filter: &str, value: &str) -> Result<bool, TestCaseError> {
    let update = format!("updates: [{{q: {filter}, u: {{$set: {{b: {value}}}}}, multi: true}}]");
    let delete = format!("deletes: [{{q: {filter}, limit: 0}}]");
    let one = format!("deletes: [{{q: {{_id: {{$in: [3]}}, b: {value}}}, limit: 1}}]");
    for (verb, statements) in [("update", update), ("delete", one), ("delete", delete)] {
        let run = |collection: &str| {
            fixture.run("test", &format!("{{{verb}: '{collection}', {statements}}}"))
        };
        let indexed = run("indexed");
        if indexed.as_doc().get("writeErrors").is_some() {
            // Arrays in two fields of one index; earlier changes stay.
            return Ok(false);
        }
        prop_assert_eq!(run("plain"), indexed, "{} {}", verb, statements);
    }
    agree(fixture, "{}", "{b: 1, _id: 1}").map(|()| true)
}

fn indexed_equals_unindexed(cases: u32, fixture: impl Fn() -> Fixture) {
    let documents = prop::collection::vec(document(), 1..25);
    let queries = prop::collection::vec((filter(), sort()), 12);
    let writes = prop::collection::vec((filter(), value()), 2);
    let case = (documents, queries, writes, any::<bool>());
    let result = runner(cases).run(&case, |(documents, queries, writes, indexes_first)| {
        let fixture = fixture();
        load(&fixture, &documents, indexes_first);
        queries.iter().try_for_each(|(filter, sort)| agree(&fixture, filter, sort))?;
        queries.iter().take(2).try_for_each(|(filter, _)| agree_on_values(&fixture, filter))?;
        for (filter, value) in &writes {
            if !write_alike(&fixture, filter, value)? {
                break;
            }
        }
        Ok(())
    });
    if let Err(failure) = result {
        panic!("{failure}");
    }
}

#[test]
fn queries_answer_the_same_with_and_without_indexes() {
    indexed_equals_unindexed(150, || Fixture::new(memory()));
}

#[test]
fn queries_answer_the_same_with_and_without_indexes_under_chaos() {
    indexed_equals_unindexed(40, || Fixture::new(memory_under_chaos(3)));
}

/// A condition that partial indexes support.
fn partial_predicate() -> BoxedStrategy<String> {
    let comparison = (select(vec!["$eq", "$gt", "$gte", "$lt", "$lte"]), value())
        .prop_map(|(op, value)| format!("{{{op}: {value}}}"));
    prop_oneof![
        5 => comparison,
        2 => list("$in"),
        1 => Just("{$exists: true}".to_owned()),
        1 => select(vec!["number", "string", "array", "int"])
            .prop_map(|kind| format!("{{$type: '{kind}'}}")),
    ]
    .boxed()
}

/// A query with a partial index finds the same documents as a scan, whether or not it implies the
/// index's filter.
#[test]
fn partial_indexes_leave_nothing_out() {
    let path = || select(vec!["a", "a.x", "c"]);
    let documents = prop::collection::vec(document(), 1..20);
    let asked = prop::collection::vec((partial_predicate(), predicate()), 24);
    let case = (documents, path(), partial_predicate(), asked);
    let result = runner(120).run(&case, |(documents, path, partial, asked)| {
        let fixture = Fixture::new(memory());
        fixture.ok("test", "{create: 'plain'}");
        let index = format!(
            "{{key: {{b: 1}}, name: 'b', partialFilterExpression: {{'{path}': {partial}}}}}"
        );
        fixture.ok("test", &format!("{{createIndexes: 'indexed', indexes: [{index}]}}"));
        for (id, fields) in documents.iter().enumerate() {
            for collection in ["plain", "indexed"] {
                let text =
                    format!("{{insert: '{collection}', documents: [{{_id: {id}, {fields}}}]}}");
                fixture.ok("test", &text);
            }
        }
        for (condition, other) in &asked {
            for condition in [condition, &partial] {
                let filter = format!("{{'{path}': {condition}, b: {other}}}");
                agree(&fixture, &filter, "{b: 1, _id: 1}")?;
            }
        }
        Ok(())
    });
    if let Err(failure) = result {
        panic!("{failure}");
    }
}
