//! Commits while a merge writes its segment.

use std::cell::Cell;

use super::*;

/// Changes and commits the index at the first check of a merge.
struct CommitsMeanwhile<'i> {
    index: &'i Index,
    is_done: Cell<bool>,
    ends: bool,
}

impl Control for CommitsMeanwhile<'_> {
    fn shared_check(&self) -> SharedCheck {
        Unlimited.shared_check()
    }

    fn check(&self) -> mayfly_base::Result<()> {
        if !self.is_done.replace(true) {
            self.index.apply(&[Change::Delete { record_key: &[3] }]);
            put(self.index, &[4], &doc! {"v": [100, 0, 0]});
            put(self.index, &[90], &doc! {"v": [90, 0, 0]});
            self.index.commit(77).unwrap();
            self.index.apply(&[Change::Delete { record_key: &[5] }]);
        }
        match self.ends {
            true => Err(mayfly_base::Error::internal("the merge ends")),
            false => Ok(()),
        }
    }

    fn is_hidden(&self, _: &[u8]) -> bool {
        false
    }
}

fn filled(folder: &Path) -> Index {
    let index = Index::open(folder, definition("euclidean", "none")).unwrap();
    for key in 0..12_u8 {
        put(&index, &[key], &doc! {"v": [i32::from(key), 0, 0]});
        if key % 2 == 1 {
            index.commit(u64::from(key)).unwrap();
        }
    }
    index
}

fn found(index: &Index) -> Vec<u8> {
    let all = query(index, doc! {"queryVector": [0, 0, 0], "exact": true});
    keys(index, &all).concat()
}

#[test]
fn a_commit_during_a_merge_is_kept() {
    for ends in [false, true] {
        let folder = tempfile::tempdir().unwrap();
        let index = filled(folder.path());
        let control = CommitsMeanwhile { index: &index, is_done: Cell::new(false), ends };
        assert_eq!(index.merge(&control).is_err(), ends);
        assert_eq!(index.position(), Some(77));
        let expected = [0, 1, 2, 6, 7, 8, 9, 10, 11, 90, 4];
        assert_eq!(found(&index), expected);
        drop(index);

        // The deletion after the commit is durable only if the merge was completed. The caller
        // applies it again in both cases, by the position.
        let index = Index::open(folder.path(), definition("euclidean", "none")).unwrap();
        assert_eq!((index.position(), found(&index).contains(&5)), (Some(77), ends));
        index.apply(&[Change::Delete { record_key: &[5] }]);
        index.commit(78).unwrap();
        merge_all(&index);
        assert_eq!(found(&index), expected);
        let files = std::fs::read_dir(folder.path()).unwrap().count();
        assert!(files <= 1 + 2 * index.sizes().segments as usize, "{files} files");
    }
}

#[test]
fn only_merges_build_graphs() {
    let folder = tempfile::tempdir().unwrap();
    let mut index = Index::open(folder.path(), definition("euclidean", "none")).unwrap();
    index.graph_from = 10;
    for key in 0..20_u8 {
        put(&index, &[key], &doc! {"v": [i32::from(key), 0, 0]});
    }
    index.commit(1).unwrap();
    assert!(index.lacks_graph(&index.state.read().parts[0]));
    assert!(index.merge(&Unlimited).unwrap());
    assert!(!index.lacks_graph(&index.state.read().parts[0]));
    assert!(!index.merge(&Unlimited).unwrap());
    assert_eq!(found(&index).len(), 20);
}
