//! Random indexes and queries against a plain evaluation, across commits, merges and restarts.

use std::collections::BTreeMap;

use mayfly_value::RawValue;
use mayfly_value::bson::Bson;
use proptest::prelude::*;

use super::*;

/// A small value of a filter field.
fn any_filter_value() -> BoxedStrategy<Bson> {
    let leaf = prop_oneof![
        (0..4_i32).prop_map(Bson::from),
        (0..4_i64).prop_map(|number| Bson::Double(number as f64 / 2.0)),
        Just(Bson::Double(f64::NAN)),
        "[ab]{0,2}".prop_map(Bson::from),
        any::<bool>().prop_map(Bson::from),
        Just(Bson::Null),
    ];
    prop_oneof![3 => leaf.clone(), 1 => prop::collection::vec(leaf, 0..3).prop_map(Bson::from)]
        .boxed()
}

fn any_document() -> impl Strategy<Value = Document> {
    let vector = prop::collection::vec(-3..4_i32, 2..=4);
    (vector, prop::option::of(any_filter_value()), prop::option::of(any_filter_value())).prop_map(
        |(vector, a, c)| {
            let mut document = doc! {"v": vector};
            if let Some(a) = a {
                document.insert("a", a);
            }
            if let Some(c) = c {
                document.insert("b", doc! {"c": c});
            }
            document
        },
    )
}

fn any_filter() -> BoxedStrategy<Document> {
    let scalar = any_filter_value().prop_filter("a scalar", |value| value.as_array().is_none());
    let name = prop::sample::select(vec!["a", "b.c"]);
    let operator = prop::sample::select(vec![
        "$eq", "$ne", "$gt", "$gte", "$lt", "$lte", "$in", "$nin", "$exists",
    ]);
    let leaf =
        (name, operator, scalar.clone(), scalar).prop_map(|(name, operator, left, right)| {
            let operand = match operator {
                "$in" | "$nin" => Bson::from(vec![left, right]),
                "$exists" => Bson::from(left == Bson::Null),
                "$gt" | "$gte" | "$lt" | "$lte" if left == Bson::Null => Bson::from(1),
                _ => left,
            };
            doc! {name: {operator: operand}}
        });
    leaf.prop_recursive(3, 8, 3, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 1..3).prop_map(|parts| doc! {"$and": parts}),
            prop::collection::vec(inner.clone(), 1..3).prop_map(|parts| doc! {"$or": parts}),
            prop::collection::vec(inner, 1..3).prop_map(|parts| doc! {"$nor": parts}),
        ]
    })
    .boxed()
}

/// The plain evaluation of a filter.
fn matches(filter: &Document, document: &Document) -> bool {
    filter.iter().all(|(name, operand)| {
        let parts = || operand.as_array().unwrap().iter().map(|part| part.as_document().unwrap());
        match name.as_str() {
            "$and" => parts().all(|part| matches(part, document)),
            "$or" => parts().any(|part| matches(part, document)),
            "$nor" => !parts().any(|part| matches(part, document)),
            name => {
                let value = match name {
                    "a" => document.get("a"),
                    _ => document.get_document("b").ok().and_then(|inner| inner.get("c")),
                };
                let values: Vec<&Bson> = match value {
                    Some(Bson::Array(items)) => items.iter().collect(),
                    value => value.into_iter().collect(),
                };
                let (operator, operand) = operand.as_document().unwrap().iter().next().unwrap();
                operates(operator, operand, &values, value.is_some())
            }
        }
    })
}

fn operates(operator: &str, operand: &Bson, values: &[&Bson], is_present: bool) -> bool {
    let owned = |value: &Bson| DocBuf::from_bson(&doc! {"x": value});
    let compare = |value: &Bson, other: &Bson| {
        let (left, right) = (owned(value), owned(other));
        let (left, right) = (left.as_doc().get("x").unwrap(), right.as_doc().get("x").unwrap());
        let is_nan = |value| matches!(value, RawValue::Double(number) if number.is_nan());
        let comparable = mayfly_value::canonical_type(left.type_byte())
            == mayfly_value::canonical_type(right.type_byte())
            && is_nan(left) == is_nan(right);
        comparable.then(|| mayfly_value::compare_values(left, right))
    };
    let any = |accepts: fn(std::cmp::Ordering) -> bool, operand: &Bson| {
        values.iter().any(|value| compare(value, operand).is_some_and(accepts))
    };
    let is_nan = matches!(operand, Bson::Double(number) if number.is_nan());
    let is_in = |operand: &Bson| {
        operand.as_array().unwrap().iter().any(|wanted| any(std::cmp::Ordering::is_eq, wanted))
    };
    match operator {
        "$eq" => any(std::cmp::Ordering::is_eq, operand),
        "$ne" => !any(std::cmp::Ordering::is_eq, operand),
        "$in" => is_in(operand),
        "$nin" => !is_in(operand),
        "$exists" => operand.as_bool().unwrap() == is_present,
        "$gte" | "$lte" if is_nan => any(std::cmp::Ordering::is_eq, operand),
        "$gt" => any(std::cmp::Ordering::is_gt, operand),
        "$gte" => any(std::cmp::Ordering::is_ge, operand),
        "$lt" => any(std::cmp::Ordering::is_lt, operand),
        _ => any(std::cmp::Ordering::is_le, operand),
    }
}

/// The plain score of a document, or `None` if the index does not contain it.
fn plain_score(similarity: &str, query: &[i32], document: &Document) -> Option<f64> {
    let vector: Vec<i64> = document
        .get_array("v")
        .unwrap()
        .iter()
        .map(|item| i64::from(item.as_i32().unwrap()))
        .collect();
    let query: Vec<i64> = query.iter().map(|number| i64::from(*number)).collect();
    if vector.len() != 3 || (similarity == "cosine" && vector == [0, 0, 0]) {
        return None;
    }
    let dot = |left: &[i64], right: &[i64]| -> f64 {
        left.iter().zip(right).map(|(left, right)| (left * right) as f64).sum()
    };
    Some(match similarity {
        "cosine" => {
            let lengths = dot(&vector, &vector).sqrt() * dot(&query, &query).sqrt();
            (1.0 + dot(&vector, &query) / lengths) / 2.0
        }
        "dotProduct" => ((1.0 + dot(&vector, &query)) / 2.0).max(0.0),
        _ => {
            let difference: Vec<i64> = vector.iter().zip(&query).map(|(l, r)| l - r).collect();
            1.0 / (1.0 + dot(&difference, &difference))
        }
    })
}

#[derive(Clone, Debug)]
enum Step {
    Put(u8, Document),
    Delete(u8),
    Commit,
    Merge,
    Reopen,
}

fn any_step() -> BoxedStrategy<Step> {
    prop_oneof![
        12 => (0..30_u8, any_document()).prop_map(|(key, document)| Step::Put(key, document)),
        3 => (0..30_u8).prop_map(Step::Delete),
        2 => Just(Step::Commit),
        1 => Just(Step::Merge),
        1 => Just(Step::Reopen),
    ]
    .boxed()
}

#[derive(Clone, Debug)]
struct Case {
    similarity: &'static str,
    quantization: &'static str,
    steps: Vec<Step>,
    queries: Vec<(Vec<i32>, Option<Document>, bool)>,
}

fn any_case() -> impl Strategy<Value = Case> {
    let vector = prop::collection::vec(-3..4_i32, 3).prop_filter("not zero", |v| v != &[0, 0, 0]);
    let query = (vector, prop::option::of(any_filter()), any::<bool>());
    (
        prop::sample::select(vec!["cosine", "dotProduct", "euclidean"]),
        prop::sample::select(vec!["none", "scalar"]),
        prop::collection::vec(any_step(), 0..60),
        prop::collection::vec(query, 1..6),
    )
        .prop_map(|(similarity, quantization, steps, queries)| Case {
            similarity,
            quantization,
            steps,
            queries,
        })
}

/// Runs the steps; returns the index and the documents that it should contain.
fn run(case: &Case, folder: &Path) -> (Index, BTreeMap<u8, Document>) {
    let definition = definition(case.similarity, case.quantization);
    let mut index = Index::open(folder, definition.clone()).unwrap();
    let (mut model, mut committed, mut position) = (BTreeMap::new(), BTreeMap::new(), 0);
    for step in &case.steps {
        match step {
            Step::Put(key, document) => {
                put(&index, &[*key], document);
                model.insert(*key, document.clone());
            }
            Step::Delete(key) => {
                index.apply(&[Change::Delete { record_key: &[*key] }]);
                model.remove(key);
            }
            Step::Commit => {
                position += 1;
                index.commit(position).unwrap();
                committed = model.clone();
            }
            Step::Merge => merge_all(&index),
            Step::Reopen => {
                drop(index);
                index = Index::open(folder, definition.clone()).unwrap();
                assert_eq!(index.position(), (position > 0).then_some(position));
                // The log is applied again from the position on; here it is the whole model.
                let lost = committed.keys().chain(model.keys()).copied().collect::<Vec<u8>>();
                for key in lost {
                    match model.get(&key) {
                        Some(document) => put(&index, &[key], document),
                        None => _ = index.apply(&[Change::Delete { record_key: &[key] }]),
                    }
                }
            }
        }
    }
    (index, model)
}

fn check_queries(case: &Case, index: &Index, model: &BTreeMap<u8, Document>) {
    for (vector, filter, is_exact) in &case.queries {
        let mut options = doc! {"queryVector": vector};
        match is_exact {
            true => options.insert("exact", true),
            false => options.insert("numCandidates", 1_000),
        };
        if let Some(filter) = filter {
            options.insert("filter", filter.clone());
        }
        let query = query(index, options);
        let score = |document: &Document| {
            let fits = filter.as_ref().is_none_or(|filter| matches(filter, document));
            plain_score(case.similarity, vector, document).filter(|_| fits)
        };
        let found = index.search(&query, None, 1_000, &Unlimited).unwrap().hits;
        let expected: BTreeMap<u8, f64> =
            model.iter().filter_map(|(key, document)| Some((*key, score(document)?))).collect();
        assert_eq!(found.len(), expected.len(), "{vector:?} {filter:?}");
        for hit in &found {
            let score = expected.get(&hit.record_key[0]).expect("a document that does not match");
            assert!((f64::from(hit.score) - score).abs() < 1e-5, "{hit:?} {score}");
        }
        let is_ordered = |pair: &[Hit]| {
            let rank = |hit: &Hit| (std::cmp::Reverse(hit.score.to_bits()), hit.record_key.clone());
            rank(&pair[0]) < rank(&pair[1])
        };
        assert!(found.windows(2).all(is_ordered), "{found:?}");
        let (mut pages, mut after) = (Vec::new(), None);
        loop {
            let page = index.search(&query, after.as_ref(), 3, &Unlimited).unwrap();
            pages.extend(page.hits);
            after = page.next;
            if after.is_none() {
                break;
            }
        }
        assert_eq!(pages, found);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]

    #[test]
    fn an_index_gives_what_a_plain_evaluation_gives(case in any_case()) {
        let folder = tempfile::tempdir().unwrap();
        let (index, model) = run(&case, folder.path());
        check_queries(&case, &index, &model);
        index.commit(99).unwrap();
        check_queries(&case, &index, &model);
        merge_all(&index);
        check_queries(&case, &index, &model);
    }
}
