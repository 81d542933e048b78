//! Files that are damaged, or written by another program.

use std::fs;

use proptest::prelude::*;

use super::*;

/// An index with two segments and a file of deletions.
fn small_index(folder: &Path) -> Arc<Definition> {
    let definition = definition("cosine", "scalar");
    let index = Index::open(folder, definition.clone()).unwrap();
    for key in 0..6_u8 {
        put(
            &index,
            &[key],
            &doc! {"v": [i32::from(key), 1, 2], "a": i32::from(key), "b": {"c": "x"}},
        );
        if key == 2 {
            index.commit(1).unwrap();
        }
    }
    index.apply(&[Change::Delete { record_key: &[1] }]);
    index.commit(2).unwrap();
    definition
}

#[test]
fn every_damaged_file_is_recognised() {
    let folder = tempfile::tempdir().unwrap();
    let definition = small_index(folder.path());
    let files: Vec<_> =
        fs::read_dir(folder.path()).unwrap().map(|entry| entry.unwrap().path()).collect();
    assert_eq!(files.len(), 4, "{files:?}");
    let expect_rebuild = |what: &str| match Index::open(folder.path(), definition.clone()) {
        Err(IndexError::Rebuild(_)) => {}
        Err(error) => panic!("{what}: {error}"),
        Ok(_) => panic!("{what}: opened"),
    };
    for path in files {
        let bytes = fs::read(&path).unwrap();
        for at in 0..bytes.len() {
            let mut damaged = bytes.clone();
            damaged[at] ^= 1 << (at % 8);
            fs::write(&path, &damaged).unwrap();
            expect_rebuild(&format!("{path:?} byte {at}"));
            if at % 7 == 0 {
                fs::write(&path, &bytes[..at]).unwrap();
                expect_rebuild(&format!("{path:?} cut at {at}"));
            }
        }
        if !path.ends_with("commit") {
            fs::remove_file(&path).unwrap();
            expect_rebuild(&format!("{path:?} removed"));
        }
        fs::write(&path, &bytes).unwrap();
    }
    assert!(Index::open(folder.path(), definition.clone()).is_ok());
    let other = self::definition("euclidean", "scalar");
    assert!(matches!(Index::open(folder.path(), other), Err(IndexError::Rebuild(_))));
}

proptest! {
    /// A file whose checksum is right and whose content is not: written by another program.
    #[test]
    fn no_content_of_a_segment_makes_it_panic(changes in prop::collection::vec((any::<u16>(), any::<u8>()), 1..6)) {
        let folder = tempfile::tempdir().unwrap();
        let definition = small_index(folder.path());
        let segment = fs::read_dir(folder.path()).unwrap().map(|entry| entry.unwrap().path())
            .find(|path| path.extension().is_some_and(|ending| ending == "seg")).unwrap();
        let mut bytes = fs::read(&segment).unwrap();
        let end = bytes.len() - 4;
        for (at, value) in changes {
            bytes[usize::from(at) % end] = value;
        }
        let crc = crc32c::crc32c(&bytes[..end]);
        bytes[end..].copy_from_slice(&crc.to_le_bytes());
        fs::write(&segment, &bytes).unwrap();
        if let Ok(index) = Index::open(folder.path(), definition) {
            let filter = doc! {"$or": [{"a": {"$gte": 0}}, {"b.c": {"$exists": true}}, {"a": 3}]};
            let near = query(&index, doc! {"queryVector": [2, 1, 2], "numCandidates": 100, "filter": filter});
            let _ = keys(&index, &near);
            index.apply(&[Change::Delete { record_key: &[2] }]);
            let _ = index.commit(3);
            let _ = index.merge(&Unlimited);
        }
    }
}

/// A `search` index with one segment, whose file is returned.
fn small_search_index(folder: &Path) -> (Arc<Definition>, std::path::PathBuf) {
    let document = doc! {"mappings": {"dynamic": true, "fields": {"t": [{"type": "token"},
    {"type": "string"}], "v": {"type": "vector", "numDimensions": 2,
    "similarity": "cosine"}}}, "storedSource": true};
    let document = DocBuf::from_bson(&document);
    let definition = Arc::new(Definition::parse(document.as_doc(), IndexKind::Search).unwrap());
    let index = Index::open(folder, definition.clone()).unwrap();
    for key in 0..6_i32 {
        put(&index, &[key as u8], &doc! {"t": "x y", "n": key, "v": [key, 1]});
    }
    index.commit(1).unwrap();
    let mut files = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let path = files.find(|path| path.extension().is_some_and(|ending| ending == "seg")).unwrap();
    (definition, path)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// The same for a `search` index. The postings are left as they are: tantivy reads them.
    #[test]
    fn no_content_of_a_search_segment_makes_it_panic(changes in prop::collection::vec((any::<u16>(), any::<u8>()), 1..6)) {
        use super::super::file::{SectionKind, Sections};
        let folder = tempfile::tempdir().unwrap();
        let (definition, path) = small_search_index(folder.path());
        let mut bytes = fs::read(&path).unwrap();
        let sections = Sections::read(&bytes).unwrap();
        let postings: Vec<_> = (0..6)
            .filter_map(|at| sections.get((SectionKind::PostingsFile, at)))
            .chain(sections.get((SectionKind::FieldTable, 0)))
            .collect();
        let end = bytes.len() - 4;
        for (at, value) in changes {
            let at = usize::from(at) % end;
            if !postings.iter().any(|range| range.contains(&at)) {
                bytes[at] = value;
            }
        }
        let crc = crc32c::crc32c(&bytes[..end]);
        bytes[end..].copy_from_slice(&crc.to_le_bytes());
        // Where a section begins decides what is read as postings.
        let moved = Sections::read(&bytes).map(|sections| {
            (0..6).filter_map(|at| sections.get((SectionKind::PostingsFile, at)))
                .chain(sections.get((SectionKind::FieldTable, 0))).collect::<Vec<_>>()
        });
        prop_assume!(moved.is_ok_and(|moved| moved == postings));
        fs::write(&path, &bytes).unwrap();
        let Ok(index) = Index::open(folder.path(), definition) else { return Ok(()) };
        for stage in [
            doc! {"exists": {"path": "n"}, "sort": {"n": 1}, "returnStoredSource": true, "scoreDetails": true},
            doc! {"text": {"path": "t", "query": "x", "score": {"boost": {"path": "n"}}}, "sort": {"t": -1}},
            doc! {"vectorSearch": {"path": "v", "queryVector": [1, 2], "limit": 3, "numCandidates": 9,
                "filter": {"range": {"path": "n", "gt": 1}}}, "returnStoredSource": true},
            doc! {"facet": {"facets": {"t": {"type": "string", "path": "t"},
                "n": {"type": "number", "path": "n", "boundaries": [0, 3, 9]}}}},
        ] {
            let query = super::text::search_query(&index, &stage);
            let _ = index.search(&query, None, 10, &Unlimited);
            let _ = index.metadata(&query, &Unlimited);
            let _ = index.explain(&query);
        }
        index.apply(&[Change::Delete { record_key: &[2] }]);
        let _ = index.commit(3);
    }
}
