//! The text index finds the same documents with the same scores as a scan of the collection, also
//! if documents change between batches.

use mayfly_storage::ReadView;
use mayfly_storage::StoreSession;
use std::collections::BTreeMap;
use std::ops::Deref;

use mayfly_query::{Budget, DeleteSpec, Executor, Flow, Metadata};
use mayfly_text::{FoundBy, SearchOptions, Sensitivity, TextSearch, TextSpec};
use mayfly_value::bson::{Document, doc};
use mayfly_value::{DocBuf, RawDoc, RawValue};
use proptest::prelude::*;

use crate::fixture::{Fixture, id_of, query};

/// A fixture with a text index.
struct Searched {
    fixture: Fixture,
    spec: TextSpec,
}

impl Deref for Searched {
    type Target = Fixture;

    fn deref(&self) -> &Fixture {
        &self.fixture
    }
}

fn fixture(index: &Document) -> Searched {
    let fixture = Fixture::new(std::slice::from_ref(index));
    let spec = TextSpec::parse(fixture.collection.indexes()[0].spec.document()).unwrap();
    Searched { fixture, spec }
}

impl Searched {
    fn remove(&self, id: i32) {
        let query = query(&doc! { "_id": id });
        let spec = DeleteSpec { query, multi: false, repeatable: None, budget: Budget::default() };
        let deleted = mayfly_query::delete(
            StoreSession::new(&self.store, &self.op, &ReadView::now()),
            &self.collection,
            &spec,
        )
        .unwrap();
        assert_eq!(deleted, 1);
    }

    /// The next documents with their scores, at most `most`.
    fn batch(&self, executor: &mut Executor, most: usize) -> BTreeMap<i32, f64> {
        let mut found = BTreeMap::new();
        let sink = &mut |_: &[u8], document: RawDoc<'_>, metadata: &Metadata| {
            let score = match metadata.as_doc().and_then(|notes| notes.get("textScore")) {
                Some(RawValue::Double(score)) => score,
                other => panic!("{other:?}"),
            };
            assert!(found.insert(id_of(document), score).is_none(), "shown twice");
            Ok(if found.len() < most { Flow::More } else { Flow::Pause })
        };
        executor.run(StoreSession::new(&self.store, &self.op, &ReadView::now()), sink).unwrap();
        found
    }

    fn by_index(&self, filter: &Document) -> BTreeMap<i32, f64> {
        let mut executor = self.find(filter);
        let mut found = BTreeMap::new();
        while !executor.is_done() {
            found.extend(self.batch(&mut executor, 5));
        }
        found
    }
}

/// The documents and scores that a scan finds.
fn by_scan(spec: &TextSpec, documents: &[Document], options: &SearchOptions) -> BTreeMap<i32, f64> {
    let search = TextSearch::parse(options, spec).unwrap();
    let mut found = BTreeMap::new();
    for document in documents {
        let document = DocBuf::from_bson(document);
        if search.matches(document.as_doc(), spec, FoundBy::Otherwise).unwrap() {
            let scores = spec.score(document.as_doc()).unwrap();
            let score = search.terms().iter().map(|term| scores.of(term)).sum();
            found.insert(id_of(document.as_doc()), score);
        }
    }
    found
}

fn word() -> impl Strategy<Value = String> {
    let words = "coffee Coffee shop shopping shops tea cream the and Café cafe naïve running run bibliotecas público";
    let words: Vec<String> = words.split(' ').map(str::to_owned).collect();
    proptest::sample::select(words)
}

fn text() -> impl Strategy<Value = String> {
    proptest::collection::vec(word(), 0..6).prop_map(|words| words.join(" "))
}

fn document() -> impl Strategy<Value = Document> {
    let language = proptest::sample::select(vec!["english", "none", "es"]);
    (text(), proptest::collection::vec(text(), 0..3), proptest::option::of(language)).prop_map(
        |(a, b, language)| {
            let mut document = doc! { "a": a, "b": { "c": b } };
            if let Some(language) = language {
                document.insert("language", language);
            }
            document
        },
    )
}

fn search() -> impl Strategy<Value = SearchOptions> {
    let part = (word(), 0..6u8, word()).prop_map(|(word, form, other)| match form {
        0 => format!("-{word}"),
        1 => format!("\"{word} {other}\""),
        2 => format!("-\"{word}\""),
        _ => word,
    });
    let parts = proptest::collection::vec(part, 1..5).prop_map(|parts| parts.join(" "));
    (parts, any::<bool>(), any::<bool>(), 0..3u8).prop_map(|(search, case, diacritics, often)| {
        let sensitivity = match often {
            0 => Sensitivity { case, diacritics },
            _ => Sensitivity::default(),
        };
        SearchOptions { search, language: None, sensitivity }
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(60))]

    #[test]
    fn the_index_finds_what_a_scan_finds(
        documents in proptest::collection::vec(document(), 1..25),
        searches in proptest::collection::vec(search(), 1..8),
        wildcard in any::<bool>(),
    ) {
        let index = match wildcard {
            true => doc! { "key": { "$**": "text" }, "name": "t", "weights": { "a": 3 } },
            false => doc! { "key": { "a": "text", "b.c": "text" }, "name": "t", "weights": { "a": 7 } },
        };
        let fixture = fixture(&index);
        let mut kept = Vec::new();
        for (id, mut document) in documents.into_iter().enumerate() {
            document.insert("_id", id as i32);
            fixture.insert(&document);
            if id % 4 == 3 {
                fixture.remove(id as i32);
            } else {
                kept.push(document);
            }
        }
        for options in searches {
            let filter = doc! { "$text": {
                "$search": &options.search,
                "$caseSensitive": options.sensitivity.case,
                "$diacriticSensitive": options.sensitivity.diacritics,
            } };
            let (found, expected) = (fixture.by_index(&filter), by_scan(&fixture.spec, &kept, &options));
            prop_assert_eq!(found.keys().collect::<Vec<_>>(), expected.keys().collect::<Vec<_>>(), "{}", filter);
            for (id, score) in &expected {
                prop_assert!((found[id] - score).abs() < 1e-9, "{}: {}", filter, id);
            }
        }
    }
}

#[test]
fn what_changes_between_batches_is_checked_again() {
    let fixture = fixture(&doc! { "key": { "a": "text" }, "name": "t" });
    for id in 0..6 {
        fixture.insert(&doc! { "_id": id, "a": "coffee" });
    }
    let mut executor = fixture.find(&doc! { "$text": { "$search": "coffee" } });
    assert_eq!(fixture.batch(&mut executor, 2).len(), 2);
    fixture.remove(2);
    fixture.remove(3);
    fixture.insert(&doc! { "_id": 3, "a": "tea" });
    fixture.insert(&doc! { "_id": 7, "a": "coffee" });
    let rest = fixture.batch(&mut executor, 10);
    assert_eq!(rest.keys().copied().collect::<Vec<_>>(), [4, 5]);
    assert!(executor.is_done());
}
