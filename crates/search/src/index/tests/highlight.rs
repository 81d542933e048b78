//! Highlights. The texts and scores of the first test are those that the reference gives for its
//! documented examples.

use proptest::prelude::*;

use super::text::{search_query, text_definition};
use super::*;

fn highlights(stage: Document, document: Document) -> Vec<Document> {
    let index = Index::in_memory(text_definition());
    put(&index, b"1", &document);
    let document = DocBuf::from_bson(&document);
    let query = search_query(&index, &stage);
    assert!(query.returns_highlights());
    let highlights = index.highlights(&query, document.as_doc());
    let bytes = highlights.iter().map(|highlight| highlight.to_document().into_bytes());
    bytes.map(|bytes| Document::from_reader(bytes.as_slice()).unwrap()).collect()
}

/// Each highlight as `path: text [hit] text`.
fn shown(stage: Document, document: Document) -> Vec<String> {
    let text = |text: &mayfly_value::bson::Bson| {
        let text = text.as_document().unwrap();
        match text.get_str("type").unwrap() {
            "hit" => format!("[{}]", text.get_str("value").unwrap()),
            _ => text.get_str("value").unwrap().to_owned(),
        }
    };
    let line = |highlight: &Document| {
        let texts: String = highlight.get_array("texts").unwrap().iter().map(text).collect();
        format!("{}: {texts}", highlight.get("path").unwrap().to_string().replace('"', ""))
    };
    highlights(stage, document).iter().map(line).collect()
}

#[test]
fn a_highlight_has_texts_and_a_score() {
    let stage = doc! {"text": {"query": "atlas", "path": "name"}, "highlight": {"path": "name"}};
    let found = highlights(stage, doc! {"name": "Introduction to Atlas Search"});
    let score = found[0].get_f64("score").unwrap();
    assert!((score - 1.346_693_277_359_008_8).abs() < 1e-6, "{score}");
    let expected = doc! {"score": score, "path": "name", "texts": [
        {"value": "Introduction to ", "type": "text"},
        {"value": "Atlas", "type": "hit"},
        {"value": " Search", "type": "text"},
    ]};
    assert_eq!(found, [expected]);
}

#[test]
fn operators_mark_their_terms() {
    let text = "The quick fox runs. A dog sleeps. The fox, the quick one, barks at the foxes.";
    let document = || doc! {"t": text, "k": "Blue Sky", "other": "quick"};
    let of = |operator: Document, path: &str| {
        let mut stage = operator;
        stage.insert("highlight", doc! {"path": path});
        shown(stage, document())
    };
    assert_eq!(
        of(doc! {"text": {"query": "fox", "path": "t"}}, "t"),
        ["t: The quick [fox] runs. ", "t: The [fox], the quick one, barks at the foxes.",]
    );
    let words = doc! {"text": {"query": "quick fox", "path": "t", "matchCriteria": "all"}};
    assert_eq!(of(words, "t")[0], "t: The [quick] [fox] runs. ");
    let phrase =
        |slop: i32| of(doc! {"phrase": {"query": "quick fox", "path": "t", "slop": slop}}, "t");
    assert_eq!(phrase(0), ["t: The [quick] [fox] runs. "]);
    let phrase = doc! {"phrase": {"query": "fox quick", "path": "t", "slop": 1}};
    assert_eq!(of(phrase, "t"), ["t: The [fox], the [quick] one, barks at the foxes."]);
    // A known difference: the document is found, and words in another order are not highlighted.
    let phrase = doc! {"phrase": {"query": "runs fox", "path": "t", "slop": 2}};
    assert_eq!(of(phrase, "t"), [""; 0]);
    let fuzzy = doc! {"text": {"query": "foxis", "path": "t", "fuzzy": {"maxEdits": 1}}};
    assert_eq!(of(fuzzy, "t"), ["t: The fox, the quick one, barks at the [foxes]."]);
    let pattern = doc! {"wildcard": {"query": "Blue*", "path": "k"}};
    assert_eq!(of(pattern, "k"), ["k: [Blue Sky]"]);
    let pattern = doc! {"regex": {"query": "Bl.e.*", "path": "k"}};
    assert_eq!(of(pattern, "k"), ["k: [Blue Sky]"]);
    let parts = doc! {"autocomplete": {"query": "sle", "path": "t"}};
    assert_eq!(of(parts, "t"), ["t: A dog [sleeps]. "]);
    let other = doc! {"text": {"query": "quick", "path": "t"}};
    assert_eq!(of(other, "other"), ["other: [quick]"]);
    let not = doc! {"compound": {"must": {"text": {"query": "dog", "path": "t"}},
    "mustNot": {"text": {"query": "cat", "path": "t"}}}};
    assert_eq!(of(not, "t"), ["t: A [dog] sleeps. "]);
    assert_eq!(of(doc! {"exists": {"path": "t"}}, "t"), Vec::<String>::new());
}

#[test]
fn passages_and_characters_are_bounded() {
    let stage = |options: Document| {
        let mut highlight = doc! {"path": {"wildcard": "t*"}};
        highlight.extend(options);
        doc! {"text": {"query": "x y", "path": "t"}, "highlight": highlight}
    };
    let document = || doc! {"t": ["X one. X y two. ", "three y y y"]};
    assert_eq!(shown(stage(doc! {}), document()).len(), 3);
    assert_eq!(shown(stage(doc! {"maxNumPassages": 1}), document()), ["t: [X] [y] two. "]);
    assert_eq!(shown(stage(doc! {"maxCharsToExamine": 8}), document()), ["t: [X] one. ", "t: [X]"]);
}

#[test]
fn the_analyzer_of_a_multi_finds_hits() {
    let document = doc! {"mappings": {"fields": {"m": {"type": "string", "multi": {
    "english": {"type": "string", "analyzer": "lucene.english"}}}}}};
    let document = DocBuf::from_bson(&document);
    let definition = Definition::parse(document.as_doc(), IndexKind::Search).unwrap();
    let index = Index::in_memory(Arc::new(definition));
    let path = doc! {"value": "m", "multi": "english"};
    let stage =
        doc! {"text": {"query": "running", "path": &path}, "highlight": {"path": [&path, "m"]}};
    let query = search_query(&index, &stage);
    let document = DocBuf::from_bson(&doc! {"m": "He runs."});
    let found = index.highlights(&query, document.as_doc());
    assert_eq!(found.len(), 1);
    let found = Document::from_reader(found[0].to_document().as_bytes()).unwrap();
    assert_eq!(found.get_document("path").unwrap(), &path);
    let hit = doc! {"value": "runs", "type": "hit"};
    assert!(found.get_array("texts").unwrap().contains(&hit.into()), "{found}");
}

#[test]
fn highlights_refuse() {
    let document = doc! {"mappings": {"fields": {"a": {"type": "string", "store": false},
    "n": {"type": "number"}}}};
    let document = DocBuf::from_bson(&document);
    let definition = Definition::parse(document.as_doc(), IndexKind::Search).unwrap();
    let refuses = |highlight: Document, text: &str| {
        let stage = doc! {"text": {"query": "x", "path": "a"}, "highlight": highlight};
        let error = Query::parse_search(DocBuf::from_bson(&stage).as_doc(), &definition);
        let error = error.expect_err(text);
        assert_eq!((error.code().0, error.message()), (8, text));
    };
    refuses(doc! {}, "\"highlight.path\" is required");
    refuses(doc! {"path": []}, "\"highlight.path\" cannot be empty");
    refuses(
        doc! {"path": "a", "maxNumPassages": 0},
        "\"highlight.maxNumPassages\" must be positive",
    );
    refuses(
        doc! {"path": "a"},
        "Highlights can not be generated for path:a. Index definition specifies store:false",
    );
    refuses(
        doc! {"path": "n"},
        "Highlights cannot be generated. Path: \"n\" is not stored statically or dynamically \
         indexed.",
    );
}

proptest! {
    #[test]
    fn passages_are_parts_of_the_text(
        texts in prop::collection::vec("([Aa]nt|[Bb]ee|cat|é|[.!?] |\n){0,12}", 0..4),
        query in "(ant|bee|cat| ){1,5}",
        most in 1..4_usize,
    ) {
        prop_assume!(!query.trim().is_empty());
        let stage = doc! {"text": {"query": &query, "path": "t"},
            "highlight": {"path": "t", "maxNumPassages": most as i32}};
        let index = Index::in_memory(text_definition());
        let document = DocBuf::from_bson(&doc! {"t": texts.clone()});
        let found = index.highlights(&search_query(&index, &stage), document.as_doc());
        prop_assert!(found.len() <= most);
        let mut wanted = crate::text::analyze::Terms::default();
        wanted.add(crate::definition::AnalyzerName::STANDARD, &query);
        for highlight in found {
            let whole: String = highlight.texts.iter().map(|text| text.value.as_str()).collect();
            prop_assert!(texts.iter().any(|text| text.contains(&whole)), "{whole:?}");
            prop_assert!(highlight.score > 0.0);
            prop_assert!(highlight.texts.windows(2).all(|pair| pair[0].kind != pair[1].kind));
            let hits = highlight.texts.iter().filter(|text| text.kind == TextKind::Hit);
            for hit in hits {
                let term = hit.value.to_lowercase();
                prop_assert!(wanted.tokens.iter().any(|token| token.text == term), "{term}");
            }
        }
    }
}
