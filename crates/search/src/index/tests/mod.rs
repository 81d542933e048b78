//! The life of an index; changes, commits, merges and searches at once.

mod damage;
mod ends;
mod facets;
mod graph;
mod highlight;
mod lucene;
mod meanwhile;
mod operators;
mod plain;
mod pruned;
mod scores;
mod sort;
mod stored;
mod text;

use std::sync::Arc;

use mayfly_value::DocBuf;
use mayfly_value::bson::{Document, doc};

use super::merge::choose;
use super::*;
use crate::{IndexKind, Query};

fn definition(similarity: &str, quantization: &str) -> Arc<Definition> {
    let document = doc! {"fields": [
        {"type": "vector", "path": "v", "numDimensions": 3, "similarity": similarity,
            "quantization": quantization},
        {"type": "filter", "path": "a"}, {"type": "filter", "path": "b.c"},
    ]};
    let document = DocBuf::from_bson(&document);
    Arc::new(Definition::parse(document.as_doc(), IndexKind::VectorSearch).unwrap())
}

fn put(index: &Index, key: &[u8], document: &Document) {
    let document = DocBuf::from_bson(document);
    let change = Change::Put { record_key: key, version_ms: 7, document: document.as_doc() };
    index.apply(&[change]);
}

fn query(index: &Index, options: Document) -> Query {
    let mut stage = doc! {"index": "x", "path": "v", "limit": 100};
    stage.extend(options);
    Query::parse_vector_search(DocBuf::from_bson(&stage).as_doc(), index.definition()).unwrap()
}

fn keys(index: &Index, query: &Query) -> Vec<Vec<u8>> {
    let page = index.search(query, None, 100, &Unlimited).unwrap();
    page.hits.into_iter().map(|hit| hit.record_key).collect()
}

#[test]
fn a_search_finds_what_was_applied_and_a_restart_finds_what_was_committed() {
    let folder = tempfile::tempdir().unwrap();
    let definition = definition("euclidean", "none");
    let index = Index::open(folder.path(), definition.clone()).unwrap();
    assert_eq!(index.position(), None);
    put(&index, b"1", &doc! {"v": [1, 0, 0]});
    put(&index, b"2", &doc! {"v": [2, 0, 0]});
    let near = query(&index, doc! {"queryVector": [2, 0, 0], "exact": true});
    assert_eq!(keys(&index, &near), [b"2", b"1"]);
    index.commit(41).unwrap();
    put(&index, b"2", &doc! {"v": [9, 0, 0]});
    put(&index, b"3", &doc! {"v": "no vector"});
    index.apply(&[Change::Delete { record_key: b"1" }]);
    assert_eq!(keys(&index, &near), [b"2"]);
    assert_eq!(index.sizes().deleted, 2);
    drop(index);

    let index = Index::open(folder.path(), definition.clone()).unwrap();
    assert_eq!(index.position(), Some(41));
    assert_eq!(keys(&index, &near), [b"2", b"1"]);
    index.apply(&[Change::Delete { record_key: b"1" }]);
    index.commit(42).unwrap();
    let index = Index::open(folder.path(), definition).unwrap();
    assert_eq!((index.position(), keys(&index, &near)), (Some(42), vec![b"2".to_vec()]));
    assert_eq!(index.sizes().documents, 1);
}

#[test]
fn hidden_documents_are_not_found_and_an_error_of_the_caller_ends_the_search() {
    struct Caller(bool);
    impl Control for Caller {
        fn shared_check(&self) -> SharedCheck {
            Unlimited.shared_check()
        }

        fn check(&self) -> mayfly_base::Result<()> {
            if self.0 { Err(Error::bad_value("ended")) } else { Ok(()) }
        }
        fn is_hidden(&self, record_key: &[u8]) -> bool {
            record_key == b"2"
        }
    }
    let folder = tempfile::tempdir().unwrap();
    let index = Index::open(folder.path(), definition("cosine", "none")).unwrap();
    for commit in [false, true] {
        put(&index, b"1", &doc! {"v": [1, 0, 0]});
        put(&index, b"2", &doc! {"v": [2, 0, 0]});
        if commit {
            index.commit(1).unwrap();
        }
        let near = query(&index, doc! {"queryVector": [2, 0, 0], "numCandidates": 100});
        let page = index.search(&near, None, 100, &Caller(false)).unwrap();
        assert_eq!(page.hits.len(), 1);
        let ended = index.search(&near, None, 100, &Caller(true)).unwrap_err();
        assert_eq!(ended.message(), "ended");
    }
}

/// Merges until no merge is due.
fn merge_all(index: &Index) {
    let is_merged = |_: &usize| index.merge(&Unlimited).unwrap();
    let merges = (0..100).take_while(is_merged).count();
    assert!(merges < 100, "merges do not end");
}

#[test]
fn writes_commits_merges_and_searches_run_at_once() {
    let folder = tempfile::tempdir().unwrap();
    let index = Index::open(folder.path(), definition("dotProduct", "scalar")).unwrap();
    let is_done = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for position in 1.. {
                if is_done.load(std::sync::atomic::Ordering::Relaxed) {
                    break;
                }
                index.commit(position).unwrap();
                index.merge(&Unlimited).unwrap();
            }
        });
        // Each round replaces the documents of the last one: a search finds exactly one round.
        let near = query(&index, doc! {"queryVector": [1, 0, 0], "numCandidates": 200});
        for round in 0..60_i32 {
            let documents: Vec<DocBuf> =
                (0..20).map(|_| DocBuf::from_bson(&doc! {"v": [round, 1, 1]})).collect();
            let keys: Vec<[u8; 1]> = (0..20_u8).map(|key| [key]).collect();
            let changes: Vec<Change<'_>> = keys
                .iter()
                .zip(&documents)
                .map(|(key, document)| Change::Put {
                    record_key: key,
                    version_ms: i64::from(round),
                    document: document.as_doc(),
                })
                .collect();
            index.apply(&changes);
            let hits = index.search(&near, None, 100, &Unlimited).unwrap().hits;
            assert_eq!(hits.len(), 20, "round {round}");
            assert!(hits.iter().all(|hit| hit.version_ms == i64::from(round)), "round {round}");
        }
        is_done.store(true, std::sync::atomic::Ordering::Relaxed);
    });
    assert_eq!(index.sizes().documents, 20);
}

#[test]
fn merges_take_segments_of_about_the_same_size() {
    assert_eq!(choose(&[]), Vec::<usize>::new());
    assert_eq!(choose(&[(10, 10), (10, 10), (10, 10)]), Vec::<usize>::new());
    assert_eq!(choose(&[(1000, 1000), (10, 10), (10, 10), (10, 10), (9, 9)]), [4, 1, 2, 3]);
    assert_eq!(choose(&[(1000, 1000), (5, 10)]), [1]);
    assert_eq!(choose(&[(600, 1000)]), [0]);
    let growing: Vec<(usize, usize)> =
        (0..12).map(|power| (4 << (2 * power), 4 << (2 * power))).collect();
    assert_eq!(choose(&growing), [0, 1, 2]);
}

#[test]
fn a_prepared_index_has_no_documents_that_a_search_must_write() {
    let stage = DocBuf::from_bson(&doc! { "mappings": { "dynamic": true } });
    let definition = Arc::new(Definition::parse(stage.as_doc(), IndexKind::Search).unwrap());
    let index = Index::in_memory(definition.clone());
    let waiting = || index.state.read().fresh.as_ref().unwrap().pending();
    let put_range = |range: std::ops::Range<usize>| {
        for at in range {
            put(&index, &at.to_be_bytes(), &doc! { "t": format!("all w{at}") });
        }
    };
    let found = |word: &str| {
        let stage = DocBuf::from_bson(&doc! { "text": { "path": "t", "query": word } });
        let query = Query::parse_search(stage.as_doc(), &definition).unwrap();
        index.search(&query, None, 10_000, &Unlimited).unwrap().hits.len()
    };
    put_range(0..999);
    index.prepare().unwrap();
    assert_eq!(waiting(), 999, "few documents are left to the search");
    put_range(999..1_500);
    index.prepare().unwrap();
    assert_eq!(waiting(), 0);
    assert_eq!((found("all"), found("w7"), found("w1499")), (1_500, 1, 1));
    put_range(1_500..1_510);
    index.apply(&[Change::Delete { record_key: &7_usize.to_be_bytes() }]);
    assert_eq!((found("all"), found("w7"), found("w1505")), (1_509, 0, 1));
    // An index that searches may read keeps fewer documents in memory.
    assert_eq!(Index::in_memory(definition.clone()).most_in_memory(), 131_072);
    let ready = Index::in_memory(definition);
    ready.expect_searches();
    assert_eq!(ready.most_in_memory(), 8_192);
}
