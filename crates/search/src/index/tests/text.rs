//! Indexes of `$search`: random documents and queries against a plain evaluation, and the scores of
//! Lucene.

use std::collections::BTreeMap;

use mayfly_value::bson::Bson;
use proptest::prelude::*;

use super::*;

pub(super) fn text_definition() -> Arc<Definition> {
    let document = doc! {"mappings": {"dynamic": true, "fields": {
        "t": [{"type": "string"}, {"type": "token"}, {"type": "autocomplete", "maxGrams": 4}],
        "k": {"type": "string", "analyzer": "lucene.keyword"},
        "n": {"type": "number"},
        "d": {"type": "date"},
    }}};
    let document = DocBuf::from_bson(&document);
    Arc::new(Definition::parse(document.as_doc(), IndexKind::Search).unwrap())
}

pub(super) fn search_query(index: &Index, stage: &Document) -> Query {
    let stage = DocBuf::from_bson(stage);
    Query::parse_search(stage.as_doc(), index.definition()).unwrap()
}

pub(super) fn find(index: &Index, stage: Document) -> Vec<(Vec<u8>, f32)> {
    let query = search_query(index, &stage);
    let page = index.search(&query, None, 100, &Unlimited).unwrap();
    assert_eq!(index.count(&query, 1_000, &Unlimited).unwrap(), page.hits.len(), "{stage}");
    page.hits.into_iter().map(|hit| (hit.record_key, hit.score)).collect()
}

pub(super) fn found(index: &Index, stage: Document) -> String {
    let hits = find(index, stage).into_iter();
    hits.map(|hit| String::from_utf8(hit.0).unwrap()).collect::<Vec<_>>().join(" ")
}

/// An index with documents in memory, or in segments.
pub(super) fn filled(folder: &Path, commits: bool) -> Index {
    let index = Index::open(folder, text_definition()).unwrap();
    let documents = [
        doc! {"t": "The quick brown fox", "n": 1, "other": "fox"},
        doc! {"t": "The lazy dog", "n": 2.5, "k": "Blue Sky", "d": Bson::Null},
        doc! {"t": ["quick dog", "brown cat"], "n": [7, 9_i64], "sub": {"x": "fox fox"}},
        doc! {"t": "Foxes are quick, quick, quick", "k": "blue sea"},
        doc! {"n": "no number"},
    ];
    for (at, document) in documents.iter().enumerate() {
        put(&index, at.to_string().as_bytes(), document);
        if commits && at % 2 == 1 {
            index.commit(at as u64).unwrap();
        }
    }
    index
}

#[test]
fn operators_find_documents() {
    for commits in [false, true] {
        let folder = tempfile::tempdir().unwrap();
        let index = filled(folder.path(), commits);
        let found = |stage| found(&index, stage);
        let text = |query: &str, path: &str| doc! {"text": {"query": query, "path": path}};
        assert_eq!(found(text("quick", "t")), "3 0 2");
        assert_eq!(found(text("LAZY fox", "t")), "1 0");
        assert_eq!(found(text("fox", "other")), "0");
        assert_eq!(found(text("fox", "sub.x")), "2");
        assert_eq!(found(text("fox", "missing")), "");
        assert_eq!(found(text("Blue Sky", "k")), "1");
        let all = doc! {"text": {"query": "dog quick", "path": "t", "matchCriteria": "all"}};
        assert_eq!(found(all), "2");
        let every = doc! {"text": {"query": "fox", "path": {"wildcard": "*"}}};
        assert_eq!(found(every).len(), 3);
        let phrase = |query: &str, slop: i32| {
            doc! {"phrase": {"query": query, "path": "t", "slop": slop}}
        };
        assert_eq!(found(phrase("quick brown", 0)), "0");
        assert_eq!(found(phrase("quick fox", 0)), "");
        assert_eq!(found(phrase("quick fox", 1)), "0");
        // Items of an array follow one another.
        assert_eq!(found(phrase("dog brown", 0)), "2");
        let equals = |path: &str, value: Bson| doc! {"equals": {"path": path, "value": value}};
        assert_eq!(found(equals("n", Bson::Double(1.0))), "0");
        assert_eq!(found(equals("t", "The lazy dog".into())), "1");
        assert_eq!(found(equals("d", Bson::Null)), "1");
        assert_eq!(found(doc! {"in": {"path": "n", "value": [9, 2.5]}}), "1 2");
        assert_eq!(found(doc! {"range": {"path": "n", "gt": 1, "lt": 8}}), "1 2");
        assert_eq!(found(doc! {"exists": {"path": "sub.x"}}), "2");
        assert_eq!(found(doc! {"exists": {"path": "n"}}), "0 1 2 4");
        let wildcard = |query: &str| doc! {"wildcard": {"query": query, "path": "k"}};
        assert_eq!(found(wildcard("Blue*")), "1");
        assert_eq!(found(wildcard("?lue s*")), "3");
        let parts = |query: &str, order: &str| {
            doc! {"autocomplete": {"query": query, "path": "t", "tokenOrder": order}}
        };
        assert_eq!(found(parts("FOXE", "any")), "3");
        assert_eq!(found(parts("bro", "any")), "0 2");
        assert_eq!(found(parts("qui bro", "sequential")), "0");
        let near = find(&index, doc! {"near": {"path": "n", "origin": 2, "pivot": 1}});
        let near: Vec<(&[u8], f32)> = near.iter().map(|hit| (hit.0.as_slice(), hit.1)).collect();
        assert_eq!(near, [(&b"1"[..], 1.0 / 1.5), (b"0", 0.5), (b"2", 1.0 / 6.0)]);
    }
}

#[test]
fn clauses_and_scores() {
    let folder = tempfile::tempdir().unwrap();
    let index = filled(folder.path(), true);
    let quick = doc! {"text": {"query": "quick", "path": "t"}};
    let exists = doc! {"exists": {"path": "n"}};
    let compound = |clauses: Document| doc! {"compound": clauses};
    assert_eq!(found(&index, compound(doc! {"must": &quick, "mustNot": [&exists]})), "3");
    assert_eq!(found(&index, compound(doc! {"filter": [&quick, &exists]})), "0 2");
    assert_eq!(found(&index, compound(doc! {"mustNot": &quick})), "1 4");
    assert_eq!(found(&index, compound(doc! {"should": [&exists, &quick]})).len(), 9);
    let both = doc! {"should": [&exists, &quick], "minimumShouldMatch": 2};
    assert_eq!(found(&index, compound(both)), "0 2");
    let scores = |stage| find(&index, stage).into_iter().map(|hit| hit.1).collect::<Vec<_>>();
    let filtered = compound(doc! {"must": &exists, "filter": &quick});
    assert_eq!(scores(filtered), [1.0, 1.0]);
    let mut constant = quick.clone();
    constant.get_document_mut("text").unwrap().insert("score", doc! {"constant": {"value": 3}});
    assert_eq!(scores(constant), [3.0, 3.0, 3.0]);
    let mut boosted = quick.clone();
    boosted.get_document_mut("text").unwrap().insert("score", doc! {"boost": {"value": 2}});
    let twice: Vec<f32> = scores(quick).into_iter().map(|score| score * 2.0).collect();
    assert_eq!(scores(boosted), twice);
}

#[test]
fn operators_refuse() {
    let definition = text_definition();
    let refuses = |stage: Document, text: &str| {
        let stage = DocBuf::from_bson(&stage);
        let error = Query::parse_search(stage.as_doc(), &definition).expect_err(text);
        assert_eq!((error.code().0, error.message()), (8, text));
    };
    refuses(doc! {"text": {"path": "t"}}, "\"text.query\" is required");
    refuses(doc! {"text": {"path": "t", "query": []}}, "\"text.query\" cannot be empty");
    refuses(doc! {"text": {"path": "t", "query": [1]}}, "\"text.query[0]\" must be a string");
    refuses(
        doc! {"text": {"path": {}, "query": "x"}},
        "\"text.path\" one of [value, wildcard] must be present",
    );
    refuses(
        doc! {"text": {"path": "t", "query": "x", "y": 1}},
        "\"text\" unrecognized field \"y\"",
    );
    refuses(doc! {"text": {"path": "t", "query": "x"}, "y": 1}, "unrecognized field \"y\"");
    refuses(
        doc! {"text": {"path": "t", "query": "x", "synonyms": "s"}},
        "\"text.synonyms\" the option \"synonyms\" is not supported by this server",
    );
    refuses(
        doc! {"text": {"path": "t", "query": "x", "fuzzy": {"maxEdits": 3}}},
        "\"text.fuzzy.maxEdits\" must be either 1 or 2",
    );
    refuses(
        doc! {"text": {"path": "t", "query": "x", "fuzzy": {"maxExpansions": 1001}}},
        "\"text.fuzzy.maxExpansions\" must be within bounds [1..1000]",
    );
    refuses(
        doc! {"autocomplete": {"path": "t", "query": "x", "fuzzy": {"prefixLength": 5}}},
        "minimum fuzzy prefix length must be less than the maximum indexed token length",
    );
    refuses(doc! {"span": {}}, "\"span\" the operator \"span\" is not supported by this server");
    refuses(doc! {"equals": {"path": "n", "value": "x"}}, "Path 'n' needs to be indexed as token");
    refuses(doc! {"equals": {"path": "t", "value": 1}}, "Path 't' needs to be indexed as number");
    refuses(
        doc! {"equals": {"path": "t", "value": {"a": 1}}},
        "\"equals.value\" must be a boolean, date, number, objectId, string, UUID or null",
    );
    refuses(
        doc! {"in": {"path": "n", "value": [1, true]}},
        "\"in.value[1]\" must have the type of the first item",
    );
    refuses(
        doc! {"range": {"path": "n"}},
        "\"range\" at least one of [gt, gte, lt, lte] must be present",
    );
    refuses(
        doc! {"range": {"path": "n", "gt": 1, "gte": 1}},
        "\"range\" at most one of [gt, gte] may be present",
    );
    refuses(
        doc! {"near": {"path": "n", "origin": 1, "pivot": 0}},
        "\"near.pivot\" must be positive",
    );
    refuses(
        doc! {"near": {"path": "n", "origin": {"type": "Point", "coordinates": [1, 2]}, "pivot": 1}},
        "\"near.origin\" a geographic point is not supported by this server",
    );
    refuses(
        doc! {"equals": {"path": "n", "value": 1, "doesNotAffect": "f"}},
        "\"equals.doesNotAffect\" a facet that an operator does not affect is not supported by this \
         server",
    );
    refuses(
        doc! {"regex": {"path": "k", "query": "a(b"}},
        "\"regex.query\" is not a regular expression: expected \")\" at position 3",
    );
    refuses(
        doc! {"compound": {}},
        "\"compound\" at least one of [must, mustNot, should, filter] must be present",
    );
    refuses(
        doc! {"compound": {"must": [{"exists": {}}]}},
        "\"compound.must[0].exists.path\" is required",
    );
    refuses(
        doc! {"wildcard": {"path": "t", "query": "x*"}},
        "Field t is analyzed. Use a keyword analyzed field or set allowAnalyzedField to true.",
    );
    refuses(
        doc! {"autocomplete": {"path": "k", "query": "x"}},
        "autocomplete index field definition not present at path k",
    );
    let many: Vec<Document> = (0..1_100).map(|_| doc! {"exists": {"path": "t"}}).collect();
    refuses(doc! {"compound": {"should": many}}, "\"compound.should\" has more than 1024 items");
}

const WORDS: [&str; 6] = ["ant", "bee", "cat", "dog", "elk", "fox"];

fn any_text() -> impl Strategy<Value = Vec<usize>> {
    prop::collection::vec(0..WORDS.len(), 0..70)
}

fn text_of(words: &[usize]) -> String {
    words.iter().map(|word| WORDS[*word]).collect::<Vec<_>>().join(" ")
}

/// The length that Lucene's one byte of a field's length stands for: four significant bits above
/// 40.
fn stored_length(words: usize) -> f64 {
    if words < 40 {
        return words as f64;
    }
    let above = words - 24;
    let shift = above.ilog2() - 3;
    (24 + ((above >> shift) << shift)) as f64
}

/// Lucene's BM25Similarity with its defaults, as its documentation gives it.
fn lucene_score(documents: &BTreeMap<u8, Vec<usize>>, terms: &[usize], words: &[usize]) -> f64 {
    let with_field: Vec<&Vec<usize>> =
        documents.values().filter(|words| !words.is_empty()).collect();
    let count = with_field.len() as f64;
    let average = with_field.iter().map(|words| words.len()).sum::<usize>() as f64 / count;
    let score = |term: &usize| {
        let frequency = words.iter().filter(|word| *word == term).count() as f64;
        let holding = with_field.iter().filter(|words| words.contains(term)).count() as f64;
        let idf = (1.0 + (count - holding + 0.5) / (holding + 0.5)).ln();
        let length = stored_length(words.len());
        idf * frequency / (frequency + 1.2 * (1.0 - 0.75 + 0.75 * length / average))
    };
    terms.iter().map(score).sum()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn scores_are_those_of_lucene(
        documents in prop::collection::btree_map(any::<u8>(), any_text(), 1..40),
        terms in prop::collection::btree_set(0..WORDS.len(), 1..4),
        commits in prop::collection::vec(any::<bool>(), 40),
        merges in any::<bool>(),
    ) {
        let folder = tempfile::tempdir().unwrap();
        let index = Index::open(folder.path(), text_definition()).unwrap();
        for ((key, words), commit) in documents.iter().zip(commits) {
            put(&index, &[*key], &doc! {"t": text_of(words)});
            if commit {
                index.commit(1).unwrap();
            }
        }
        if merges {
            merge_all(&index);
        }
        let terms: Vec<usize> = terms.into_iter().collect();
        let hits = find(&index, doc! {"text": {"query": text_of(&terms), "path": "t"}});
        let matching = |words: &&Vec<usize>| words.iter().any(|word| terms.contains(word));
        prop_assert_eq!(hits.len(), documents.values().filter(matching).count());
        for (key, score) in hits {
            let expected = lucene_score(&documents, &terms, &documents[&key[0]]);
            prop_assert!((f64::from(score) - expected).abs() < 1e-5, "{score} {expected}");
        }
    }

    #[test]
    fn a_search_gives_what_a_plain_evaluation_gives(
        steps in prop::collection::vec((0..20_u8, prop::option::weighted(0.8, prop::collection::vec(0..WORDS.len(), 0..5)), 0..8_u8), 1..60),
        queries in prop::collection::vec((prop::collection::vec(0..WORDS.len(), 1..4), any::<bool>(), -1..6_i32), 1..4),
    ) {
        let folder = tempfile::tempdir().unwrap();
        let mut index = Index::open(folder.path(), text_definition()).unwrap();
        let mut model: BTreeMap<u8, (Vec<usize>, i32)> = BTreeMap::new();
        for (count, (key, words, action)) in steps.iter().enumerate() {
            match words {
                Some(words) => {
                    let number = count as i32 % 5;
                    put(&index, &[*key], &doc! {"t": text_of(words), "n": number, &format!("dyn{}", count % 3): "x"});
                    model.insert(*key, (words.clone(), number));
                }
                None => {
                    index.apply(&[Change::Delete { record_key: &[*key] }]);
                    model.remove(key);
                }
            }
            match action {
                0 => index.commit(count as u64).unwrap(),
                1 => merge_all(&index),
                2 => _ = find(&index, doc! {"exists": {"path": "n"}}),
                3 => {
                    index.commit(count as u64).unwrap();
                    drop(index);
                    index = Index::open(folder.path(), text_definition()).unwrap();
                }
                _ => {}
            }
        }
        for (terms, all, least) in &queries {
            let criteria = if *all { "all" } else { "any" };
            let text = doc! {"text": {"query": text_of(terms), "path": "t", "matchCriteria": criteria}};
            let range = doc! {"range": {"path": "n", "gte": least}};
            let hits = find(&index, doc! {"compound": {"must": text.clone(), "filter": range.clone()}});
            let fits = |(words, number): &(Vec<usize>, i32)| {
                let mut terms = terms.iter();
                let has = |term: &usize| words.contains(term);
                number >= least && if *all { terms.all(has) } else { terms.any(has) }
            };
            let expected: Vec<Vec<u8>> =
                model.iter().filter(|(_, document)| fits(document)).map(|(key, _)| vec![*key]).collect();
            let mut keys: Vec<Vec<u8>> = hits.iter().map(|hit| hit.0.clone()).collect();
            keys.sort();
            prop_assert_eq!(&keys, &expected);
            let phrase = find(&index, doc! {"phrase": {"query": text_of(terms), "path": "t"}});
            let holds = |words: &Vec<usize>| words.windows(terms.len()).any(|part| part == terms);
            prop_assert_eq!(phrase.len(), model.values().filter(|document| holds(&document.0)).count());
            let query = search_query(&index, &doc! {"compound": {"should": [text, range]}});
            let whole = index.search(&query, None, 100, &Unlimited).unwrap().hits;
            let (mut pages, mut after) = (Vec::new(), None);
            for _ in 0..100 {
                let page = index.search(&query, after.as_ref(), 2, &Unlimited).unwrap();
                pages.extend(page.hits);
                after = page.next;
                if after.is_none() {
                    break;
                }
            }
            prop_assert_eq!(pages, whole);
        }
    }

    #[test]
    fn no_stage_makes_the_parser_panic(document in mayfly_value::arbitrary::any_document(), operator in 0..18_usize) {
        let names = ["text", "phrase", "compound", "equals", "in", "range", "exists", "near", "wildcard", "autocomplete",
            "regex", "vectorSearch", "knnBeta", "facet", "sort", "highlight", "count", "searchAfter"];
        let mut builder = mayfly_value::DocBuilder::new();
        builder.append(names[operator], document.as_doc());
        let _ = Query::parse_search(builder.finish().as_doc(), &text_definition());
        let _ = Query::parse_search(document.as_doc(), &text_definition());
    }
}
