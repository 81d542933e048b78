//! Sorted searches and their tokens, against a plain evaluation.

use std::cmp::Ordering;

use mayfly_value::bson::Bson;
use proptest::prelude::*;

use super::text::{found, search_query, text_definition};
use super::*;

fn filled(folder: &Path) -> Index {
    let index = Index::open(folder, text_definition()).unwrap();
    let documents = [
        doc! {"n": 3, "t": "x"},
        doc! {"n": [1, 9], "t": "b"},
        doc! {"t": "a x x"},
        doc! {"n": Bson::Null, "t": "x"},
        doc! {"n": 2.5, "t": ["c", "d"]},
    ];
    for (at, document) in documents.iter().enumerate() {
        put(&index, at.to_string().as_bytes(), document);
        if at == 2 {
            index.commit(1).unwrap();
        }
    }
    index
}

#[test]
fn values_and_scores_sort() {
    let folder = tempfile::tempdir().unwrap();
    let index = filled(folder.path());
    let by = |sort: Document| found(&index, doc! {"exists": {"path": "t"}, "sort": sort});
    assert_eq!(by(doc! {"n": 1}), "2 3 1 4 0");
    assert_eq!(by(doc! {"n": -1}), "1 0 4 2 3");
    assert_eq!(by(doc! {"n": {"order": 1, "noData": "highest"}}), "1 4 0 2 3");
    assert_eq!(by(doc! {"n": {"order": -1, "noData": "highest"}}), "2 3 1 0 4");
    assert_eq!(by(doc! {"t": 1, "n": 1}), "2 1 4 3 0");
    assert_eq!(by(doc! {"missing": -1}), "0 1 2 3 4");
    let text =
        |sort: Document| found(&index, doc! {"text": {"query": "x", "path": "t"}, "sort": sort});
    assert_eq!(text(doc! {"any": {"$meta": "searchScore"}}), "0 3 2");
    assert_eq!(text(doc! {"any": {"$meta": "searchScore", "order": 1}}), "2 0 3");
    assert_eq!(text(doc! {"any": {"$meta": "searchScore", "order": 1}, "n": 1}), "2 3 0");
}

#[test]
fn sorts_and_tokens_refuse() {
    let definition = text_definition();
    let refuses = |options: Document, text: &str| {
        let mut stage = doc! {"exists": {"path": "t"}};
        stage.extend(options);
        let stage = DocBuf::from_bson(&stage);
        let error = Query::parse_search(stage.as_doc(), &definition).expect_err(text);
        assert_eq!((error.code().0, error.message()), (8, text));
    };
    refuses(doc! {"sort": {}}, "\"sort\" must have at least one sort field defined");
    refuses(doc! {"sort": {"n": 2}}, "\"sort.n\" must be 1 or -1");
    refuses(doc! {"sort": {"n": "x"}}, "\"sort.n\" must be a number or document");
    refuses(doc! {"sort": {"n": {}}}, "\"sort.n.order\" is required");
    refuses(
        doc! {"sort": {"n": {"$meta": "textScore"}}},
        "\"sort.n.$meta\" must be one of [searchScore]",
    );
    refuses(
        doc! {"sort": {"n": {"$meta": "searchScore", "noData": "lowest"}}},
        "\"sort.n\" at most one of [$meta, noData] may be present",
    );
    refuses(
        doc! {"sortBetaV1": {"n": 1}},
        "\"sortBetaV1\" the older form of sorting is not supported by this server",
    );
    for token in ["", "x", "AQAAAAAAAAAA", "AQ=="] {
        refuses(
            doc! {"searchAfter": token},
            "\"searchAfter\" must be a token that a search with the same sort returned",
        );
    }
    refuses(doc! {"searchBefore": 1}, "\"searchBefore\" must be a string");
    refuses(doc! {"count": {"type": "x"}}, "\"count.type\" must be one of [lowerBound, total]");
    refuses(doc! {"count": {"threshold": -1}}, "\"count.threshold\" cannot be negative");
    refuses(doc! {"tracking": {}}, "\"tracking.searchTerms\" is required");
    refuses(doc! {"scoreDetails": 1}, "\"scoreDetails\" must be a boolean");
    let stage = doc! {"exists": {"path": "t"}, "tracking": {"searchTerms": "x"}};
    assert!(Query::parse_search(DocBuf::from_bson(&stage).as_doc(), &definition).is_ok());
}

/// The values of a document that a sort compares, in the order of BSON.
fn values(document: &Document) -> Vec<Option<i32>> {
    match document.get("n") {
        None => vec![None],
        Some(Bson::Array(items)) if items.is_empty() => vec![None],
        Some(Bson::Array(items)) => items.iter().map(Bson::as_i32).collect(),
        Some(value) => vec![value.as_i32()],
    }
}

/// The plain order of two documents. Null and missing values are the same.
fn order(left: &Document, right: &Document, is_descending: bool, highest: bool) -> Ordering {
    let key = |document: &Document| {
        let keys = values(document).into_iter().map(|value| match value {
            None => (if highest { 1 } else { -1 }, 0),
            Some(number) => (0, number),
        });
        if is_descending { keys.max() } else { keys.min() }
    };
    let order = key(left).cmp(&key(right));
    if is_descending { order.reverse() } else { order }
}

fn any_document() -> impl Strategy<Value = Document> {
    let number = prop::option::weighted(0.8, -3..4_i32)
        .prop_map(|number| number.map_or(Bson::Null, Bson::Int32));
    let array = prop::collection::vec(number.clone(), 0..3).prop_map(Bson::from);
    (prop::option::weighted(0.8, prop_oneof![3 => number, 1 => array]), 1..4_usize).prop_map(
        |(n, words)| {
            let mut document = doc! {"t": vec!["x"; words].join(" ")};
            if let Some(n) = n {
                document.insert("n", n);
            }
            document
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(32))]

    #[test]
    fn a_sorted_search_gives_what_a_plain_sort_gives(
        documents in prop::collection::btree_map(any::<u8>(), any_document(), 1..30),
        commits in prop::collection::vec(prop::bool::weighted(0.2), 30),
        merges in any::<bool>(),
        (is_descending, highest, is_by_score) in any::<(bool, bool, bool)>(),
        at in any::<prop::sample::Index>(),
    ) {
        let folder = tempfile::tempdir().unwrap();
        let index = Index::open(folder.path(), text_definition()).unwrap();
        for ((key, document), commit) in documents.iter().zip(commits) {
            put(&index, &[*key], document);
            if commit {
                index.commit(1).unwrap();
            }
        }
        if merges {
            merge_all(&index);
        }
        let position = if highest { "highest" } else { "lowest" };
        let sort = doc! {"n": {"order": if is_descending { -1 } else { 1 }, "noData": position}};
        let mut stage = doc! {"text": {"path": "t", "query": "x"}};
        if !is_by_score {
            stage.insert("sort", sort);
        }
        let search = |options: Document| {
            let mut stage = stage.clone();
            stage.extend(options);
            index.search(&search_query(&index, &stage), None, 100, &Unlimited).unwrap().hits
        };
        let hits = search(doc! {});
        let keys = |hits: &[Hit]| hits.iter().map(|hit| hit.record_key[0]).collect::<Vec<u8>>();
        if !is_by_score {
            let mut expected: Vec<u8> = documents.keys().copied().collect();
            expected.sort_by(|left, right| {
                order(&documents[left], &documents[right], is_descending, highest)
            });
            prop_assert_eq!(keys(&hits), expected);
        }
        // A token leads to the hits after and before its own.
        let at = at.index(hits.len());
        let after = search(doc! {"searchAfter": hits[at].sequence_token()});
        prop_assert_eq!(&after, &hits[at + 1..]);
        let mut before = search(doc! {"searchBefore": hits[at].sequence_token()});
        before.reverse();
        prop_assert_eq!(&before, &hits[..at]);
        for hit in &before {
            let again = search(doc! {"searchAfter": hit.sequence_token()});
            prop_assert_eq!(again.len(), hits.len() - 1 - hits.iter().position(|other| other == hit).unwrap());
        }
        // Pages give the same hits as one search.
        let (mut pages, mut cursor) = (Vec::new(), None);
        let query = search_query(&index, &stage);
        loop {
            let page = index.search(&query, cursor.as_ref(), 3, &Unlimited).unwrap();
            pages.extend(page.hits);
            cursor = page.next;
            if cursor.is_none() {
                break;
            }
        }
        prop_assert_eq!(pages, hits);
    }
}
