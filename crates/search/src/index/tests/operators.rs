//! `fuzzy`, `regex`, `vectorSearch` and `knnBeta`.

use proptest::prelude::*;

use super::text::{filled, find, found, text_definition};
use super::*;
use crate::text::fuzzy::FuzzyTerm;

fn text(index: &Index, query: &str, fuzzy: Document) -> String {
    found(index, doc! {"text": {"query": query, "path": "t", "fuzzy": fuzzy}})
}

#[test]
fn near_terms_are_found() {
    for commits in [false, true] {
        let folder = tempfile::tempdir().unwrap();
        let index = filled(folder.path(), commits);
        assert_eq!(text(&index, "quikc", doc! {"maxEdits": 1}), "3 0 2");
        assert_eq!(text(&index, "qick", doc! {"maxEdits": 1}), "3 0 2");
        assert_eq!(text(&index, "xuick", doc! {"maxEdits": 1, "prefixLength": 1}), "");
        assert_eq!(text(&index, "quixx", doc! {}), "3 0 2");
        assert_eq!(text(&index, "quixx", doc! {"maxEdits": 1}), "");
        let both = doc! {"text": {"query": "quikc dgo", "path": "t", "matchCriteria": "all",
        "fuzzy": {}}};
        assert_eq!(found(&index, both), "2");
        let parts = |fuzzy: Document| {
            doc! {"autocomplete": {"query": "bri", "path": "t", "fuzzy": fuzzy}}
        };
        let hits = find(&index, parts(doc! {"maxEdits": 1}));
        assert_eq!(hits, [(b"0".to_vec(), 1.0), (b"2".to_vec(), 1.0)]);
        assert_eq!(find(&index, parts(doc! {"maxEdits": 1, "prefixLength": 3})), []);
    }
}

/// The reference adds the scores of whole words if the path has the type string, too.
#[test]
fn whole_words_count_more_than_parts() {
    let index = Index::in_memory(text_definition());
    put(&index, b"1", &doc! {"t": "foxy fox"});
    put(&index, b"2", &doc! {"t": "foxy foxe"});
    for order in ["any", "sequential"] {
        let hits =
            find(&index, doc! {"autocomplete": {"query": "fox", "path": "t", "tokenOrder": order}});
        assert_eq!((hits[0].0.as_slice(), hits[1].0.as_slice()), (&b"1"[..], &b"2"[..]));
        assert!(hits[0].1 > hits[1].1, "{hits:?}");
    }
}

#[test]
fn the_best_expansions_are_searched() {
    let index = Index::in_memory(text_definition());
    for (key, word) in ["abcd", "abce", "abcf", "abxx"].iter().enumerate() {
        put(&index, key.to_string().as_bytes(), &doc! {"t": word});
    }
    assert_eq!(text(&index, "abcd", doc! {"maxExpansions": 1}), "0");
    assert_eq!(text(&index, "abcd", doc! {"maxExpansions": 2}), "0 1");
    let hits = find(&index, doc! {"text": {"query": "abcd", "path": "t", "fuzzy": {}}});
    // Lucene multiplies by one less the edits in relation to the length.
    let idf = (1.0_f32 + (4.0 - 1.0 + 0.5) / (1.0 + 0.5)).ln();
    let scores: Vec<f32> = hits.iter().map(|hit| hit.1 / (idf / 2.2)).collect();
    for (score, expected) in scores.iter().zip([1.0, 0.75, 0.75, 0.5]) {
        assert!((score - expected).abs() < 1e-5, "{scores:?}");
    }
}

#[test]
fn the_number_of_terms_is_bounded() {
    let index = Index::in_memory(text_definition());
    let words =
        |count: usize| (0..count).map(|at| format!("{at:04}")).collect::<Vec<_>>().join(" ");
    put(&index, b"1", &doc! {"t": words(2_000)});
    let search = |stage: Document| {
        let query = super::text::search_query(&index, &stage);
        index.search(&query, None, 1, &Unlimited).map(|page| page.hits.len())
    };
    let fuzzy = |count: usize, most: i32| {
        doc! {"text": {"query": words(count), "path": "t", "fuzzy": {"maxExpansions": most}}}
    };
    assert_eq!(search(fuzzy(100, 50)).unwrap(), 1);
    let error = search(fuzzy(100, 1_000)).unwrap_err();
    assert_eq!(error.message(), "a fuzzy search has more than 10000 terms");
    let same = ["0001"; 1_000].join(" ");
    let same = doc! {"text": {"query": same, "path": "t", "fuzzy": {"maxExpansions": 1_000}}};
    assert_eq!(search(same).unwrap(), 1);
    let many = vec![words(1_000); 70];
    let error = search(doc! {"text": {"query": many, "path": "t"}}).unwrap_err();
    assert_eq!(error.message(), "an operator searches for more than 65536 terms");
}

/// The plain distance: edits of single characters, and swaps of neighbours.
fn plain_distance(left: &[char], right: &[char]) -> usize {
    let mut table = vec![vec![0_usize; right.len() + 1]; left.len() + 1];
    for i in 0..=left.len() {
        for j in 0..=right.len() {
            table[i][j] = match (i, j) {
                (0, rest) | (rest, 0) => rest,
                _ => {
                    let change = table[i - 1][j - 1] + usize::from(left[i - 1] != right[j - 1]);
                    change.min(table[i - 1][j] + 1).min(table[i][j - 1] + 1)
                }
            };
            let is_swap =
                i > 1 && j > 1 && left[i - 1] == right[j - 2] && left[i - 2] == right[j - 1];
            if is_swap {
                table[i][j] = table[i][j].min(table[i - 2][j - 2] + 1);
            }
        }
    }
    table[left.len()][right.len()]
}

proptest! {
    #[test]
    fn distances_are_plain_distances(
        left in "[abc]{0,7}", right in "[abc]{0,7}", most in 1..3_usize, prefix in 0..3_usize,
    ) {
        let (l, r): (Vec<char>, Vec<char>) = (left.chars().collect(), right.chars().collect());
        let prefix = prefix.min(l.len());
        let expected = (r.len() >= prefix && l[..prefix] == r[..prefix])
            .then(|| plain_distance(&l[prefix..], &r[prefix..]))
            .filter(|distance| *distance <= most);
        prop_assert_eq!(FuzzyTerm::new(&left, most, prefix).distance(&right), expected);
    }
}

#[test]
fn regular_expressions_match_whole_terms() {
    let folder = tempfile::tempdir().unwrap();
    let index = filled(folder.path(), true);
    let regex = |query: &str, path: &str| {
        found(&index, doc! {"regex": {"query": query, "path": path, "allowAnalyzedField": true}})
    };
    assert_eq!(regex("[Bb]lue .*", "k"), "1 3");
    assert_eq!(regex("blue", "k"), "");
    assert_eq!(regex("fox(es)?", "t"), "0 3");
    assert_eq!(regex("~(fox)&.{3}", "t"), "0 1 2 3");
    assert_eq!(regex("(cat|lazy)", "t"), "1 2");
}

fn vectors() -> Arc<Definition> {
    let document = doc! {"mappings": {"fields": {
        "v": {"type": "vector", "numDimensions": 2, "similarity": "euclidean"},
        "w": {"type": "knnVector", "dimensions": 2, "similarity": "cosine"},
        "n": {"type": "number"}, "t": {"type": "string"},
    }}};
    let document = DocBuf::from_bson(&document);
    Arc::new(Definition::parse(document.as_doc(), IndexKind::Search).unwrap())
}

#[test]
fn vectors_refuse() {
    let definition = vectors();
    let refuses = |stage: Document, text: &str| {
        let error = Query::parse_search(DocBuf::from_bson(&stage).as_doc(), &definition);
        let error = error.expect_err(text);
        assert_eq!((error.code().0, error.message()), (8, text));
    };
    let of = |changes: Document| {
        let mut operator =
            doc! {"path": "v", "queryVector": [1, 2], "limit": 3, "numCandidates": 9};
        operator.extend(changes);
        doc! {"vectorSearch": operator}
    };
    refuses(of(doc! {"path": "n"}), "n must be indexed as \"vector\".");
    refuses(
        of(doc! {"queryVector": [1]}),
        "vector field is indexed with 2 dimensions but queried with 1",
    );
    refuses(of(doc! {"limit": 0}), "\"vectorSearch.limit\" must be positive");
    refuses(
        of(doc! {"limit": 10}),
        "\"vectorSearch\" limit should be less than or equal to numCandidates",
    );
    refuses(of(doc! {"filter": {"n": 1}}), {
        "\"vectorSearch.filter\" one of [autocomplete, compound, embeddedDocument, equals, exists, \
         geoShape, geoWithin, hasAncestor, hasRoot, in, knnBeta, moreLikeThis, near, phrase, \
         queryString, range, regex, search, span, term, text, vectorSearch, wildcard] must be present"
    });
    refuses(
        doc! {"compound": {"must": of(doc! {})}},
        "\"compound.must.vectorSearch\" vectorSearch is not allowed to be nested",
    );
    let with = |name: &str, value: mayfly_value::bson::Bson| {
        let mut stage = of(doc! {});
        stage.insert(name, value);
        stage
    };
    refuses(
        with("sort", doc! {"n": 1}.into()),
        "Sort option is not supported with the 'vectorSearch' operator. Use $sort stage instead.",
    );
    refuses(
        with("highlight", doc! {"path": "t"}.into()),
        "Highlighting is not supported with the 'vectorSearch' operator.",
    );
    refuses(
        with("tracking", doc! {"searchTerms": "t"}.into()),
        "Term tracking is not supported with the 'vectorSearch' operator.",
    );
    refuses(doc! {"knnBeta": {"path": "w", "k": 1}}, "\"knnBeta.vector\" is required");
    refuses(doc! {"knnBeta": {"path": "w", "vector": [1, 2]}}, "\"knnBeta.k\" is required");
    refuses(
        doc! {"knnBeta": {"path": "n", "vector": [1, 2], "k": 1}},
        "n is not indexed as knnVector",
    );
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn a_search_for_vectors_gives_what_a_plain_evaluation_gives(
        documents in prop::collection::btree_map(any::<u8>(), (-5..5_i32, -5..5_i32, 0..4_i32), 1..40),
        wanted in (-5..5_i32, -5..5_i32),
        commits in prop::collection::vec(prop::bool::weighted(0.2), 40),
        limit in 1..10_usize,
        filter in prop::option::of(0..4_i32),
        is_exact in any::<bool>(),
    ) {
        let folder = tempfile::tempdir().unwrap();
        let index = Index::open(folder.path(), vectors()).unwrap();
        for ((key, (x, y, n)), commit) in documents.iter().zip(commits) {
            put(&index, &[*key], &doc! {"v": [*x, *y], "n": *n});
            if commit {
                index.commit(1).unwrap();
            }
        }
        let mut operator = doc! {"path": "v", "queryVector": [wanted.0, wanted.1], "limit": limit as i32};
        match is_exact {
            true => operator.insert("exact", true),
            false => operator.insert("numCandidates", 100),
        };
        if let Some(least) = filter {
            operator.insert("filter", doc! {"range": {"path": "n", "gte": least}});
        }
        let score = |(x, y, _): &(i32, i32, i32)| {
            let square = (x - wanted.0).pow(2) + (y - wanted.1).pow(2);
            1.0 / (1.0 + square as f32)
        };
        let mut expected: Vec<(Vec<u8>, f32)> = documents
            .iter()
            .filter(|(_, document)| filter.is_none_or(|least| document.2 >= least))
            .map(|(key, document)| (vec![*key], score(document)))
            .collect();
        expected.sort_by(|left, right| right.1.total_cmp(&left.1).then(left.0.cmp(&right.0)));
        expected.truncate(limit);
        let found = find(&index, doc! {"vectorSearch": operator.clone()});
        prop_assert_eq!(&found, &expected);
        operator.insert("score", doc! {"boost": {"value": 2}});
        let boosted: Vec<f32> =
            find(&index, doc! {"vectorSearch": operator}).into_iter().map(|hit| hit.1).collect();
        let twice: Vec<f32> = expected.iter().map(|hit| hit.1 * 2.0).collect();
        prop_assert_eq!(boosted, twice);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn near_terms_are_those_of_a_plain_evaluation(
        words in prop::collection::vec("[abcd]{1,6}", 1..30),
        query in "[abcd]{1,6}",
        most in 1..3_usize,
        prefix in 0..3_usize,
        commits in prop::collection::vec(prop::bool::weighted(0.2), 30),
        is_long in any::<bool>(),
    ) {
        let folder = tempfile::tempdir().unwrap();
        let index = Index::open(folder.path(), text_definition()).unwrap();
        // Terms that are long are searched in another way.
        let rest = if is_long { "z".repeat(70) } else { String::new() };
        for ((key, word), commit) in words.iter().enumerate().zip(commits) {
            put(&index, &[key as u8], &doc! {"t": format!("{word}{rest}")});
            if commit {
                index.commit(1).unwrap();
            }
        }
        let options = doc! {"maxEdits": most as i32, "prefixLength": prefix as i32, "maxExpansions": 1000};
        let stage = doc! {"text": {"query": format!("{query}{rest}"), "path": "t", "fuzzy": options}};
        let mut keys: Vec<usize> = find(&index, stage).iter().map(|hit| usize::from(hit.0[0])).collect();
        keys.sort_unstable();
        let letters = |text: &str| text.chars().collect::<Vec<char>>();
        let wanted = letters(&format!("{query}{rest}"));
        let fits = |word: &String| {
            let word = letters(&format!("{word}{rest}"));
            let fixed = prefix.min(wanted.len());
            if word.len() < fixed || word[..fixed] != wanted[..fixed] {
                return false;
            }
            plain_distance(&wanted[fixed..], &word[fixed..]) <= most
        };
        let expected: Vec<usize> = (0..words.len()).filter(|key| fits(&words[*key])).collect();
        prop_assert_eq!(keys, expected);
    }
}
