//! Counts and facets, against a plain evaluation; hidden documents are in none.

use std::collections::BTreeMap;

use mayfly_value::bson::Bson;
use proptest::prelude::*;

use super::text::{search_query, text_definition};
use super::*;

/// Documents whose key is divisible by 3 are hidden.
struct Hidden;

impl Control for Hidden {
    fn shared_check(&self) -> SharedCheck {
        Unlimited.shared_check()
    }

    fn check(&self) -> mayfly_base::Result<()> {
        Ok(())
    }

    fn is_hidden(&self, record_key: &[u8]) -> bool {
        record_key[0].is_multiple_of(3)
    }
}

fn metadata(index: &Index, stage: Document, control: &dyn Control) -> Document {
    let document = index.metadata(&search_query(index, &stage), control).unwrap();
    Document::from_reader(document.as_bytes()).unwrap()
}

#[test]
fn counts_and_buckets() {
    let folder = tempfile::tempdir().unwrap();
    let index = Index::open(folder.path(), text_definition()).unwrap();
    let date = mayfly_value::bson::DateTime::from_millis;
    for (key, document) in [
        doc! {"t": "red", "n": 1, "d": date(10)},
        doc! {"t": ["red", "blue"], "n": [5, 6], "d": date(20)},
        doc! {"t": "blue", "n": 10.5},
        doc! {"t": "red", "n": 20_i64, "d": date(30)},
    ]
    .iter()
    .enumerate()
    {
        put(&index, &[key as u8], document);
    }
    let facets = doc! {
        "colour": {"type": "string", "path": "t"},
        "size": {"type": "number", "path": "n", "boundaries": [0, 6, 11], "default": "other"},
        "day": {"type": "date", "path": "d", "boundaries": [date(10), date(20), date(40)]},
    };
    let expected = doc! {"count": {"lowerBound": 4_i64}, "facet": {
        "colour": {"buckets": [{"_id": "red", "count": 3_i64}, {"_id": "blue", "count": 2_i64}]},
        "size": {"buckets": [{"_id": 0, "count": 2_i64}, {"_id": 6, "count": 2_i64},
            {"_id": "other", "count": 0_i64}]},
        "day": {"buckets": [{"_id": date(10), "count": 1_i64}, {"_id": date(20), "count": 2_i64}]},
    }};
    let stage = doc! {"facet": {"facets": &facets}};
    assert_eq!(metadata(&index, stage, &Unlimited), expected);
    let stage = doc! {"facet": {"operator": {"range": {"path": "n", "gte": 6}},
    "facets": {"colour": {"type": "string", "path": "t", "numBuckets": 1}}},
    "count": {"type": "total"}};
    let expected = doc! {"count": {"total": 3_i64}, "facet": {
    "colour": {"buckets": [{"_id": "blue", "count": 2_i64}]}}};
    assert_eq!(metadata(&index, stage, &Unlimited), expected);
    let count = |count: Document| {
        let stage = doc! {"exists": {"path": "t"}, "count": count};
        metadata(&index, stage, &Unlimited).get_document("count").unwrap().clone()
    };
    assert_eq!(count(doc! {}), doc! {"lowerBound": 4_i64});
    assert_eq!(count(doc! {"threshold": 2}), doc! {"lowerBound": 3_i64});
    assert_eq!(count(doc! {"type": "total", "threshold": 2}), doc! {"total": 4_i64});
}

#[test]
fn facets_refuse() {
    let definition = text_definition();
    let refuses = |facet: Document, text: &str| {
        let stage = DocBuf::from_bson(&doc! {"facet": facet});
        let error = Query::parse_search(stage.as_doc(), &definition).expect_err(text);
        assert_eq!((error.code().0, error.message()), (8, text));
    };
    let of = |facet: Document| doc! {"facets": {"f": facet}};
    refuses(doc! {}, "\"facet.facets\" is required");
    refuses(doc! {"facets": {}}, "\"facet.facets\" cannot be empty");
    refuses(doc! {"facets": {"f": 1}}, "\"facet.facets.f\" must be a document");
    refuses(of(doc! {"path": "t"}), "\"facet.facets.f.type\" is required");
    refuses(
        of(doc! {"type": "x", "path": "t"}),
        "\"facet.facets.f.type\" must be one of [date, number, string]",
    );
    refuses(
        of(doc! {"type": "string", "path": "n"}),
        "Cannot facet on field \"n\" because it was not indexed as a \"token\" field.",
    );
    refuses(
        of(doc! {"type": "string", "path": "t", "numBuckets": 1001}),
        "\"facet.facets.f.numBuckets\" must be within bounds [1..1000]",
    );
    let ranges =
        |boundaries: Vec<Bson>| of(doc! {"type": "number", "path": "n", "boundaries": boundaries});
    refuses(
        ranges(vec![Bson::Int32(1)]),
        "\"facet.facets.f.boundaries\" size must be within bounds [2..1000]",
    );
    refuses(
        ranges((0..1_001).map(Bson::Int32).collect()),
        "\"facet.facets.f.boundaries\" size must be within bounds [2..1000]",
    );
    refuses(
        ranges(vec![Bson::Int32(2), Bson::Double(2.0)]),
        "\"facet.facets.f.boundaries\" must be distinct numbers in ascending order",
    );
    refuses(
        ranges(vec!["x".into(), Bson::Int32(1)]),
        "\"facet.facets.f.boundaries[0]\" must be a number",
    );
    refuses(
        of(doc! {"type": "date", "path": "d", "boundaries": [1, 2]}),
        "\"facet.facets.f.boundaries[0]\" must be a date",
    );
    refuses(
        doc! {"operator": {"vectorSearch": {}}, "facets": {}},
        "\"facet.operator.vectorSearch\" vectorSearch is not allowed to be nested",
    );
    let stage = DocBuf::from_bson(&doc! {"facet": {}, "exists": {"path": "t"}});
    let error = Query::parse_search(stage.as_doc(), &definition).unwrap_err();
    assert_eq!(error.message(), "Top-level operator is not allowed to be used with collector");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(32))]

    #[test]
    fn facets_give_what_a_plain_evaluation_gives(
        documents in prop::collection::btree_map(
            any::<u8>(),
            (prop::collection::btree_set("[ab]{1,2}", 0..3), prop::collection::vec(-2..8_i32, 0..3)),
            1..40,
        ),
        boundaries in prop::collection::btree_set(-2..8_i32, 2..5),
        commits in prop::collection::vec(prop::bool::weighted(0.2), 40),
        most in 1..5_usize,
        least in -3..8_i32,
    ) {
        let folder = tempfile::tempdir().unwrap();
        let index = Index::open(folder.path(), text_definition()).unwrap();
        for ((key, (words, numbers)), commit) in documents.iter().zip(commits) {
            let words: Vec<&String> = words.iter().collect();
            put(&index, &[*key], &doc! {"t": words, "n": numbers.clone()});
            if commit {
                index.commit(1).unwrap();
            }
        }
        let boundaries: Vec<i32> = boundaries.into_iter().collect();
        let stage = doc! {"facet": {
            "operator": {"range": {"path": "n", "gte": least}},
            "facets": {
                "w": {"type": "string", "path": "t", "numBuckets": most as i32},
                "n": {"type": "number", "path": "n", "boundaries": boundaries.clone(), "default": "d"},
            },
        }};
        let shown: Vec<_> = documents
            .iter()
            .filter(|(key, _)| !Hidden.is_hidden(&[**key]))
            .map(|(_, document)| document)
            .filter(|(_, numbers)| numbers.iter().any(|number| *number >= least))
            .collect();
        let mut words: BTreeMap<&String, i64> = BTreeMap::new();
        shown.iter().flat_map(|document| &document.0).for_each(|word| *words.entry(word).or_default() += 1);
        let mut words: Vec<(&String, i64)> = words.into_iter().collect();
        words.sort_by_key(|word| (std::cmp::Reverse(word.1), word.0));
        words.truncate(most);
        let words: Vec<Document> =
            words.iter().map(|(word, count)| doc! {"_id": word, "count": *count}).collect();
        let mut ranges = Vec::new();
        let mut inside = 0;
        for pair in boundaries.windows(2) {
            let holds = |document: &&&(_, Vec<i32>)| {
                document.1.iter().any(|number| (pair[0]..pair[1]).contains(number))
            };
            let count = shown.iter().filter(holds).count() as i64;
            inside += count;
            ranges.push(doc! {"_id": pair[0], "count": count});
        }
        ranges.push(doc! {"_id": "d", "count": (shown.len() as i64 - inside).max(0)});
        let expected = doc! {"count": {"lowerBound": shown.len() as i64},
            "facet": {"w": {"buckets": words}, "n": {"buckets": ranges}}};
        prop_assert_eq!(metadata(&index, stage, &Hidden), expected);
    }
}
