//! Changed scores, and the details of scores.

use proptest::prelude::*;

use super::text::{filled, find, search_query, text_definition};
use super::*;

/// The scores of the documents with a number, by their keys.
fn scores(index: &Index, score: Document) -> Vec<(String, f32)> {
    let mut hits = find(index, doc! {"exists": {"path": "t", "score": score}});
    hits.sort_by(|left, right| left.0.cmp(&right.0));
    hits.into_iter().map(|(key, score)| (String::from_utf8(key).unwrap(), score)).collect()
}

fn function(index: &Index, expression: Document) -> Vec<f32> {
    scores(index, doc! {"function": expression}).into_iter().map(|hit| hit.1).collect()
}

#[test]
fn functions_compute_scores() {
    for commits in [false, true] {
        let folder = tempfile::tempdir().unwrap();
        // The documents 0 to 3 have the numbers 1, 2.5, 7 and 9, and none.
        let index = filled(folder.path(), commits);
        let of = |expression: Document| function(&index, expression);
        assert_eq!(of(doc! {"path": "n"}), [1.0, 2.5, 7.0, 0.0]);
        assert_eq!(of(doc! {"path": {"value": "n", "undefined": 4}}), [1.0, 2.5, 7.0, 4.0]);
        assert_eq!(of(doc! {"score": "relevance"}), [1.0; 4]);
        assert_eq!(of(doc! {"constant": -3}), [0.0; 4]);
        let sum = doc! {"add": [{"path": "n"}, {"constant": 2}, {"score": "relevance"}]};
        assert_eq!(of(sum), [4.0, 5.5, 10.0, 3.0]);
        let product = doc! {"multiply": [{"path": "n"}, {"constant": 2}]};
        assert_eq!(of(product), [2.0, 5.0, 14.0, 0.0]);
        assert_eq!(
            of(doc! {"log": {"path": "n"}}),
            [0.0, 2.5_f64.log10() as f32, 7.0_f64.log10() as f32, 0.0]
        );
        assert_eq!(of(doc! {"log1p": {"constant": 99}}), [2.0; 4]);
        let gauss = doc! {"gauss": {"path": "n", "origin": 1, "scale": 3, "offset": 3}};
        let gauss = of(gauss);
        assert_eq!(gauss[..2], [1.0, 1.0]);
        assert!((gauss[2] - 0.5).abs() < 1e-6);
        let boost = scores(&index, doc! {"boost": {"path": "n", "undefined": 2}});
        assert_eq!(boost.iter().map(|hit| hit.1).collect::<Vec<_>>(), [1.0, 2.5, 7.0, 2.0]);
    }
}

#[test]
fn dismax_takes_the_greatest_score() {
    let folder = tempfile::tempdir().unwrap();
    let index = filled(folder.path(), true);
    let clause =
        |value: f64| doc! {"exists": {"path": "t", "score": {"constant": {"value": value}}}};
    let of = |score: Document| {
        let compound = doc! {"should": [clause(1.0), clause(4.0), clause(2.0)], "score": score};
        find(&index, doc! {"compound": compound})[0].1
    };
    assert_eq!(of(doc! {"dismax": {"tieBreakerScore": 0.5}}), 5.5);
    assert_eq!(of(doc! {"dismax": {"tieBreakerScore": 0}}), 4.0);
    assert_eq!(of(doc! {"dismax": {}}), 7.0);
    assert_eq!(of(doc! {"boost": {"value": 2}}), 14.0);
}

#[test]
fn scores_refuse() {
    let definition = text_definition();
    let refuses = |score: Document, text: &str| {
        let stage = doc! {"exists": {"path": "t", "score": score}};
        let error = Query::parse_search(DocBuf::from_bson(&stage).as_doc(), &definition);
        let error = error.expect_err(text);
        assert_eq!((error.code().0, error.message()), (8, text));
    };
    refuses(doc! {}, "\"exists.score\" one of [boost, constant, function] must be present");
    refuses(
        doc! {"boost": {"value": 1}, "constant": {"value": 1}},
        "\"exists.score\" only one of [boost, constant, function] may be present",
    );
    refuses(doc! {"boost": {"value": 0}}, "\"exists.score.boost.value\" must be positive");
    refuses(doc! {"boost": {}}, "\"exists.score.boost\" one of [value, path] must be present");
    refuses(
        doc! {"boost": {"value": 1, "undefined": 1}},
        "\"exists.score.boost\" \"undefined\" cannot be present when \"value\" is present",
    );
    refuses(
        doc! {"boost": {"path": "t"}},
        "path expression for function score requires path \"t\" to be indexed as numeric",
    );
    refuses(doc! {"constant": {"value": -1}}, "\"exists.score.constant.value\" cannot be negative");
    refuses(
        doc! {"dismax": {}},
        "\"exists.score.dismax\" is only possible for the operator \"compound\"",
    );
    let function = |expression: Document| doc! {"function": expression};
    refuses(
        function(doc! {}),
        "\"exists.score.function\" one of [add, constant, gauss, log, log1p, multiply, path, \
         score] must be present",
    );
    refuses(
        function(doc! {"add": [{"constant": 1}]}),
        "\"exists.score.function.add\" must have at least 2 elements",
    );
    refuses(function(doc! {"add": [1, 2]}), "\"exists.score.function.add[0]\" must be a document");
    refuses(
        function(doc! {"score": "x"}),
        "\"exists.score.function.score\" must be one of [relevance]",
    );
    let gauss = |changes: Document| {
        let mut gauss = doc! {"path": "n", "origin": 1, "scale": 1};
        gauss.extend(changes);
        function(doc! {"gauss": gauss})
    };
    refuses(gauss(doc! {"scale": 0}), "\"exists.score.function.gauss.scale\" must be nonzero");
    refuses(
        gauss(doc! {"decay": 1}),
        "\"exists.score.function.gauss.decay\" must be between 0 and 1 (exclusive)",
    );
    let mut deep = doc! {"constant": 1};
    for _ in 0..80 {
        deep = doc! {"log": deep};
    }
    let stage = doc! {"exists": {"path": "t", "score": {"function": deep}}};
    let error = Query::parse_search(DocBuf::from_bson(&stage).as_doc(), &definition).unwrap_err();
    assert!(error.message().ends_with("is nested more than 64 levels deep"), "{error:?}");
    let stage = doc! {"compound": {"should": [{"exists": {"path": "t"}}],
    "score": {"dismax": {"tieBreakerScore": 2}}}};
    let error = Query::parse_search(DocBuf::from_bson(&stage).as_doc(), &definition).unwrap_err();
    assert_eq!(
        error.message(),
        "\"compound.score.dismax.tieBreakerScore\" must be within bounds [0.0..1.0]"
    );
}

/// The sum of the details, where the description says that they are added.
fn check_sums(details: &ScoreDetails) {
    if details.description == "sum of:" {
        let sum: f32 = details.details.iter().map(|detail| detail.value).sum();
        assert!((details.value - sum).abs() < 1e-5, "{details:?}");
    }
    details.details.iter().for_each(check_sums);
}

fn details(index: &Index, operator: Document) -> Vec<ScoreDetails> {
    let mut stage = operator;
    stage.insert("scoreDetails", true);
    let query = search_query(index, &stage);
    let hits = index.search(&query, None, 100, &Unlimited).unwrap().hits;
    let of = |hit: Hit| {
        let details = hit.score_details.expect("details");
        assert_eq!(details.value, hit.score);
        check_sums(&details);
        details
    };
    hits.into_iter().map(of).collect()
}

/// The texts are those that the manual's page "Return the Score Details" shows.
#[test]
fn details_are_those_of_the_manual() {
    let folder = tempfile::tempdir().unwrap();
    let index = filled(folder.path(), true);
    let found = details(&index, doc! {"text": {"query": "quick fox", "path": "t"}});
    let fox = &found[0];
    assert_eq!(fox.description, "sum of:");
    let text = &fox.details[0];
    assert_eq!(text.description, "$type:string/t:quick [BM25Similarity], result of:");
    let score = &text.details[0];
    assert_eq!(score.description, "score(freq=1.0), computed as boost * idf * tf from:");
    let names: Vec<&str> = score.details.iter().map(|part| part.description.as_str()).collect();
    assert_eq!(
        names,
        [
            "idf, computed as log(1 + (N - n + 0.5) / (n + 0.5)) from:",
            "tf, computed as freq / (freq + k1 * (1 - b + b * dl / avgdl)) from:",
        ]
    );
    let values: Vec<f32> = score.details[1].details.iter().map(|part| part.value).collect();
    assert_eq!(values, [1.0, 1.2, 0.75, 4.0, 4.0]);
    let document =
        mayfly_value::bson::Document::from_reader(text.to_document().as_bytes()).unwrap();
    assert_eq!(document.keys().collect::<Vec<_>>(), ["value", "description", "details"]);
    for operator in [
        doc! {"compound": {"must": {"text": {"query": "quick", "path": "t",
        "score": {"boost": {"value": 3}}}}, "filter": {"exists": {"path": "n"}}}},
        doc! {"compound": {"should": [{"text": {"query": "dog", "path": "t"}},
        {"text": {"query": "quick", "path": "t"}}], "score": {"dismax": {"tieBreakerScore": 0.2}}}},
        doc! {"near": {"path": "n", "origin": 2, "pivot": 1}},
        doc! {"phrase": {"query": "quick brown", "path": "t"}},
        doc! {"text": {"query": "quikc", "path": "t", "fuzzy": {}}},
        doc! {"autocomplete": {"query": "qui", "path": "t"}},
        doc! {"regex": {"query": "Bl.*", "path": "k"}},
        doc! {"exists": {"path": "n", "score": {"function": {"path": "n"}}}},
        doc! {"exists": {"path": "n", "score": {"boost": {"path": "n"}}}},
        doc! {"equals": {"path": "n", "value": 1, "score": {"constant": {"value": 7}}}},
    ] {
        assert!(!details(&index, operator.clone()).is_empty(), "{operator}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(32))]

    #[test]
    fn details_add_up(
        texts in prop::collection::vec("([abc] ){1,8}", 1..20),
        query in "[abc] [abc]",
        boost in 1..4_i32,
    ) {
        let index = Index::in_memory(text_definition());
        for (key, text) in texts.iter().enumerate() {
            put(&index, &[key as u8], &doc! {"t": text});
        }
        let score = doc! {"boost": {"value": boost}};
        let text = doc! {"text": {"query": &query, "path": "t", "score": score}};
        let fuzzy = doc! {"text": {"query": &query, "path": "t", "fuzzy": {"maxEdits": 1}}};
        let phrase = doc! {"phrase": {"query": &query, "path": {"wildcard": "*"}, "slop": 1}};
        details(&index, doc! {"compound": {"should": [fuzzy, phrase, {"exists": {"path": "t"}}]}});
        details(&index, doc! {"compound": {"should": [text, {"exists": {"path": "t"}}]}});
    }
}
