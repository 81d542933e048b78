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
