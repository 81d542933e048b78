//! `storedSource` and `explain`, in both kinds of indexes.

use super::*;

fn vector_index(folder: &Path, source: Document) -> Index {
    let document = doc! {"fields": [{"type": "vector", "path": "v", "numDimensions": 2,
    "similarity": "cosine"}], "storedSource": source};
    let document = DocBuf::from_bson(&document);
    let definition = Definition::parse(document.as_doc(), IndexKind::VectorSearch).unwrap();
    Index::open(folder, Arc::new(definition)).unwrap()
}

/// The stored fields of each hit, by its record key.
fn stored(index: &Index, query: &Query) -> Vec<(Vec<u8>, Document)> {
    let page = index.search(query, None, 100, &Unlimited).unwrap();
    let stored = |hit: Hit| {
        let document = hit.stored_source.expect("stored fields");
        (hit.record_key, Document::from_reader(document.as_bytes()).unwrap())
    };
    let mut stored: Vec<_> = page.hits.into_iter().map(stored).collect();
    stored.sort_by(|left, right| left.0.cmp(&right.0));
    stored
}

#[test]
fn a_vector_index_keeps_fields() {
    let folder = tempfile::tempdir().unwrap();
    let index = vector_index(folder.path(), doc! {"include": ["a", "b.c"]});
    let stage = doc! {"path": "v", "queryVector": [1, 2], "exact": true, "limit": 10,
    "returnStoredSource": true};
    let query = Query::parse_vector_search(DocBuf::from_bson(&stage).as_doc(), index.definition());
    let query = query.unwrap();
    let document = |at: i32| {
        doc! {"_id": at, "v": [1, at], "a": {"x": at}, "b": [{"c": 1, "d": 2}, 3], "z": 1}
    };
    let expected = |at: i32| doc! {"_id": at, "a": {"x": at}, "b": [{"c": 1}]};
    let mut all = Vec::new();
    for at in 0..6 {
        put(&index, &[at as u8], &document(at));
        all.push((vec![at as u8], expected(at)));
        assert_eq!(stored(&index, &query), all);
        index.commit(at as u64).unwrap();
        assert_eq!(stored(&index, &query), all);
    }
    merge_all(&index);
    assert_eq!(index.sizes().segments, 1);
    assert_eq!(stored(&index, &query), all);
    drop(index);
    let index = vector_index(folder.path(), doc! {"include": ["a", "b.c"]});
    assert_eq!(stored(&index, &query), all);
}

#[test]
fn a_search_index_keeps_documents() {
    for (source, expected) in [
        (mayfly_value::bson::Bson::Boolean(true), doc! {"_id": 1, "t": "x", "a": {"b": 1, "c": 2}}),
        (doc! {"exclude": ["t", "a.b", "_id"]}.into(), doc! {"_id": 1, "a": {"c": 2}}),
    ] {
        let document = doc! {"mappings": {"dynamic": true}, "storedSource": source};
        let document = DocBuf::from_bson(&document);
        let definition = Definition::parse(document.as_doc(), IndexKind::Search).unwrap();
        let folder = tempfile::tempdir().unwrap();
        let index = Index::open(folder.path(), Arc::new(definition)).unwrap();
        put(&index, b"1", &doc! {"_id": 1, "t": "x", "a": {"b": 1, "c": 2}});
        let stage = doc! {"text": {"path": "t", "query": "x"}, "returnStoredSource": true};
        let query = Query::parse_search(DocBuf::from_bson(&stage).as_doc(), index.definition());
        let query = query.unwrap();
        assert_eq!(stored(&index, &query), [(b"1".to_vec(), expected.clone())]);
        index.commit(1).unwrap();
        assert_eq!(stored(&index, &query), [(b"1".to_vec(), expected)]);
    }
}

#[test]
fn a_query_is_explained() {
    let folder = tempfile::tempdir().unwrap();
    let index = super::text::filled(folder.path(), true);
    let stage = doc! {"index": "i", "compound": {
    "must": [{"text": {"query": "quick", "path": "t"}}],
    "filter": [{"range": {"path": "n", "gt": 1}}]}, "sort": {"n": 1}};
    let query = super::text::search_query(&index, &stage);
    assert_eq!(query.index_name(), Some("i"));
    let explained = Document::from_reader(index.explain(&query).as_bytes()).unwrap();
    let expected = doc! {"type": "compound",
    "must": [{"type": "text", "path": ["t"], "query": ["quick"]}],
    "filter": [{"type": "range", "path": ["n"]}]};
    assert_eq!(explained.get_document("query").unwrap(), &expected);
    assert_eq!(explained.get_str("sort").unwrap(), "values");
    assert_eq!(explained.get_document("index").unwrap().get_i64("documents").unwrap(), 5);
    assert_eq!(explained.get_array("segments").unwrap().len(), 2);
}
