//! The scores of 1,000 queries against those that Lucene computed. `tests/lucene` has the program
//! that wrote the documents and the expected hits.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use mayfly_base::testing::crate_folder;
use mayfly_value::extjson::parse_document;
use mayfly_value::{RawDoc, RawValue};

use super::*;
use crate::text::analyze::Terms;

/// The relative difference of scores that are equal: those of Lucene are floats, too.
const TOLERANCE: f32 = 1e-5;

/// The expected hits of a query are the best ones, at most this many.
const BEST: usize = 20;

struct Case {
    kind: String,
    query: DocBuf,
    count: usize,
    hits: Vec<(usize, f32)>,
}

fn read_lines(name: &str) -> Vec<DocBuf> {
    let folder = crate_folder().join("tests/lucene");
    let text = std::fs::read_to_string(folder.join(name)).unwrap();
    text.lines().map(|line| parse_document(line).unwrap()).collect()
}

fn number(value: RawValue<'_>) -> f64 {
    match value {
        RawValue::Int32(number) => f64::from(number),
        RawValue::Double(number) => number,
        other => panic!("{other:?} is no number"),
    }
}

fn read_case(line: RawDoc<'_>) -> Case {
    let (Some(RawValue::String(kind)), Some(RawValue::Document(query)), Some(count)) =
        (line.get("kind"), line.get("query"), line.get("count"))
    else {
        panic!("a case without its parts");
    };
    let Some(RawValue::Array(hits)) = line.get("hits") else { panic!("a case without hits") };
    let hit = |hit: RawValue<'_>| {
        let RawValue::Array(hit) = hit else { panic!("a hit that is no array") };
        let numbers: Vec<f64> = hit.iter().map(|item| number(item.value())).collect();
        (numbers[0] as usize, numbers[1] as f32)
    };
    Case {
        kind: kind.to_owned(),
        query: query.to_owned(),
        count: number(count) as usize,
        hits: hits.iter().map(|item| hit(item.value())).collect(),
    }
}

fn lucene_definition() -> Arc<Definition> {
    let string = |analyzer: &str| doc! {"type": "string", "analyzer": format!("lucene.{analyzer}")};
    let document = doc! {"mappings": {"dynamic": false, "fields": {
        "t": string("standard"),
        "e": string("english"),
        "w": string("whitespace"),
        "k": string("keyword"),
        "s": string("simple"),
        "omit": {"type": "string", "norms": "omit"},
        "docs": {"type": "string", "indexOptions": "docs"},
        "sub": {"type": "document", "fields": {"t": string("standard")}},
    }}};
    let document = DocBuf::from_bson(&document);
    Arc::new(Definition::parse(document.as_doc(), IndexKind::Search).unwrap())
}

/// The key of a document. The order of keys is that of the numbers.
fn key_of(id: usize) -> Vec<u8> {
    (id as u32).to_be_bytes().to_vec()
}

fn put_all(index: &Index, documents: &[DocBuf], ids: std::ops::Range<usize>) {
    for id in ids {
        let (record_key, document) = (&key_of(id)[..], documents[id].as_doc());
        index.apply(&[Change::Put { record_key, version_ms: 1, document }]);
    }
}

/// What differs from the expected hits; `None`: nothing.
fn difference(index: &Index, case: &Case) -> Option<String> {
    let query = match Query::parse_search(case.query.as_doc(), index.definition()) {
        Ok(query) => query,
        Err(error) => return Some(error.message().to_owned()),
    };
    let count = index.count(&query, usize::MAX, &Unlimited).unwrap();
    let hits = match index.search(&query, None, BEST, &Unlimited) {
        Ok(page) => page.hits,
        Err(error) => return Some(error.message().to_owned()),
    };
    let id = |key: &[u8]| u32::from_be_bytes(key.try_into().unwrap()) as usize;
    let hits: Vec<(usize, f32)> = hits.iter().map(|hit| (id(&hit.record_key), hit.score)).collect();
    if count != case.count || hits.len() != case.hits.len() {
        return Some(format!("{count} documents, Lucene finds {}", case.count));
    }
    let differs = |left: f32, right: f32| (left - right).abs() > TOLERANCE * right.abs();
    for (at, (found, expected)) in hits.iter().zip(&case.hits).enumerate() {
        if differs(found.1, expected.1) {
            return Some(format!("hit {at} is {found:?}, that of Lucene {expected:?}"));
        }
    }
    // Which ones of the documents with the least score are hits is open.
    let least = case.hits.last().map_or(0.0, |hit| hit.1);
    let found: BTreeMap<usize, f32> = hits.into_iter().collect();
    let missing = case.hits.iter().find(|(id, score)| {
        let is_open = case.count > BEST && !differs(least, *score);
        !is_open && found.get(id).is_none_or(|found| differs(*found, *score))
    });
    missing.map(|missing| format!("the hit {missing:?} of Lucene is not there"))
}

/// A text, its field, and the terms with their positions that Lucene makes of it.
#[test]
fn terms_are_those_of_lucene() {
    let definition = lucene_definition();
    let mut report = String::new();
    let lines = read_lines("terms.jsonl");
    assert!(lines.len() > 800);
    for line in &lines {
        let line = line.as_doc();
        let (
            Some(RawValue::String(path)),
            Some(RawValue::String(text)),
            Some(RawValue::Array(terms)),
        ) = (line.get("path"), line.get("text"), line.get("terms"))
        else {
            panic!("a text without its parts");
        };
        let term = |value: RawValue<'_>| {
            let RawValue::Array(term) = value else { panic!("a term that is no array") };
            let mut parts = term.iter();
            let position = number(parts.next().unwrap().value()) as usize;
            let RawValue::String(text) = parts.next().unwrap().value() else {
                panic!("a term that is no string")
            };
            (position, text.to_owned())
        };
        let expected: Vec<(usize, String)> = terms.iter().map(|item| term(item.value())).collect();
        let mut found = Terms::default();
        found.add(definition.analyzer_at(path, "").unwrap(), text);
        let found: Vec<(usize, String)> =
            found.tokens.into_iter().map(|token| (token.position, token.text)).collect();
        if found != expected {
            let _ = writeln!(report, "  {path} {text:?}\n    {found:?}\n    {expected:?}");
        }
    }
    assert!(report.is_empty(), "ours, and Lucene's:\n{report}");
}

#[test]
fn scores_are_those_of_lucene() {
    let documents = read_lines("corpus.jsonl");
    let cases: Vec<Case> =
        read_lines("expected.jsonl").iter().map(|line| read_case(line.as_doc())).collect();
    assert_eq!((documents.len(), cases.len()), (500, 1_000));

    let folder = tempfile::tempdir().unwrap();
    let one = Index::open(&folder.path().join("one"), lucene_definition()).unwrap();
    put_all(&one, &documents, 0..500);
    one.commit(1).unwrap();

    // Segments of several sizes, and documents in memory that two searches found.
    let several = Index::open(&folder.path().join("several"), lucene_definition()).unwrap();
    for (position, ids) in [(1, 0..250), (2, 250..310), (3, 310..320)] {
        put_all(&several, &documents, ids);
        several.commit(position).unwrap();
    }
    put_all(&several, &documents, 320..480);
    assert!(difference(&several, &cases[0]).is_some());
    put_all(&several, &documents, 480..500);

    // Half of a segment's documents were replaced, and a merge removed the old ones.
    let merged = Index::open(&folder.path().join("merged"), lucene_definition()).unwrap();
    put_all(&merged, &documents, 0..250);
    for id in 250..500 {
        let (record_key, document) = (&key_of(id)[..], documents[id - 250].as_doc());
        merged.apply(&[Change::Put { record_key, version_ms: 1, document }]);
    }
    merged.commit(1).unwrap();
    put_all(&merged, &documents, 250..500);
    merged.commit(2).unwrap();
    merge_all(&merged);
    assert_eq!(merged.sizes().deleted, 0);

    let mut differences: BTreeMap<(&str, &str), (usize, String)> = BTreeMap::new();
    for (name, index) in [("one segment", &one), ("several", &several), ("merged", &merged)] {
        for case in &cases {
            if let Some(text) = difference(index, case) {
                let entry = differences.entry((&case.kind, name)).or_default();
                entry.0 += 1;
                if entry.0 <= 3 {
                    let query = mayfly_value::extjson::to_string(
                        case.query.as_doc(),
                        mayfly_value::extjson::Style::Relaxed,
                    );
                    let _ = writeln!(entry.1, "    {query}\n      {text}");
                }
            }
        }
    }
    let mut report = String::new();
    for ((kind, index), (count, examples)) in differences {
        let _ = write!(report, "  {kind} ({index}): {count} differ\n{examples}");
    }
    assert!(report.is_empty(), "\n{report}");
}
