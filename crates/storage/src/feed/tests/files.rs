//! Search indexes: the follower hands documents to files, here a map in memory with a durable copy.

use std::cell::RefCell;
use std::collections::BTreeMap;

use mayfly_base::Namespace;
use mayfly_value::RawDoc;

use super::retention::{fill_log, small_log};
use super::*;

/// Files: what is applied is in `now`; a commit copies it to `committed`, with the position.
#[derive(Default)]
struct Files {
    now: RefCell<BTreeMap<IdKey, DocBuf>>,
    committed: RefCell<BTreeMap<IdKey, DocBuf>>,
    position: RefCell<Option<u64>>,
}

impl FeedFiles for Files {
    fn apply(&self, documents: &[FedDocument]) -> Result<()> {
        let mut now = self.now.borrow_mut();
        for fed in documents {
            match &fed.document {
                Some((_, document)) => {
                    now.insert(fed.id_key.clone(), document.clone());
                }
                None => drop(now.remove(&fed.id_key)),
            }
        }
        Ok(())
    }
}

impl Files {
    /// What a crash leaves.
    fn crash(&self) {
        *self.now.borrow_mut() = self.committed.borrow().clone();
    }

    fn empty(&self) {
        self.now.borrow_mut().clear();
        self.committed.borrow_mut().clear();
        *self.position.borrow_mut() = None;
    }
}

fn definition(a: i32) -> DocBuf {
    DocBuf::from_bson(&doc! { "a": a })
}

impl<C: Clock + 'static> Fixture<C> {
    fn search(&self, collection: &str, name: &str) {
        let new = NewSearchIndex {
            name: name.to_owned(),
            kind: "search".to_owned(),
            definition: definition(1),
        };
        self.store.create_search_indexes(&ns(collection), &[new]).unwrap();
    }

    /// The newest version of the only search index of a collection.
    fn version(&self, collection: &str) -> Arc<SearchVersion> {
        self.of(collection).search_indexes()[0].latest().unwrap().clone()
    }

    /// Opens the files, and empties them if they cannot be used.
    fn open_files(&self, collection: &str, files: &Files) {
        if !self.store.open_search(&self.version(collection), *files.position.borrow()) {
            files.empty();
        }
    }

    fn feed_files(&self, collection: &str, files: &Files) -> Result<()> {
        let (found, version) = (self.of(collection), self.version(collection));
        let mut step = FeedStep::More;
        while step == FeedStep::More {
            step = self.store.feed_search(&self.op, &found, &version, files)?;
        }
        Ok(())
    }

    fn commit_files(&self, collection: &str, files: &Files) {
        let (found, version) = (self.of(collection), self.version(collection));
        let position = self.store.search_position(&found, &version).unwrap().unwrap();
        *files.committed.borrow_mut() = files.now.borrow().clone();
        *files.position.borrow_mut() = Some(position);
        self.store.note_search_committed(&version, position);
        self.store.note_search_ready(&found, &version).unwrap();
    }

    /// Checks that the files have the documents of the collection.
    #[track_caller]
    fn check_files(&self, collection: &str, files: &Files) {
        let found = self.of(collection);
        let snapshot = self.store.latest().unwrap();
        let mut expected = BTreeMap::new();
        let (all, forward) = (whole_range(), Direction::Forward);
        snapshot
            .scan_stored(&found, &all, forward, ScanLimit::NONE, &mut |_, record| {
                let id = found.id_key(record.document.get("_id").unwrap());
                expected.insert(id, record.document.to_owned());
                Ok(ControlFlow::Continue(()))
            })
            .unwrap();
        assert_eq!(*files.now.borrow(), expected);
    }
}

#[test]
fn files_are_filled_and_follow_the_log() {
    let (f, files) = (fixture(), Files::default());
    for id in 0..20 {
        f.put_text("d.c", id, "red pen");
    }
    f.search("d.c", "s");
    f.open_files("d.c", &files);
    f.put_text("d.c", 3, "before the filling");
    f.feed_files("d.c", &files).unwrap();
    f.check_files("d.c", &files);
    assert!(f.version("d.c").is_filled() && !f.version("d.c").is_ready());
    f.commit_files("d.c", &files);
    assert!(f.version("d.c").is_ready());
    f.put_text("d.c", 4, "changed");
    f.delete("d.c", 5);
    f.put_text("d.other", 1, "of another collection");
    f.feed_files("d.c", &files).unwrap();
    f.check_files("d.c", &files);
    let found = f.of("d.c");
    let is_current = || {
        let until = (f.store.newest_write().unwrap(), std::time::Duration::from_millis(1));
        f.store.await_search(&f.op, &found, &f.version("d.c"), until).unwrap()
    };
    assert!(is_current());
    f.put_text("d.c", 6, "not yet there");
    assert!(!is_current());
}

#[test]
fn creating_the_same_search_index_again_writes_nothing() {
    let f = fixture();
    f.put_text("d.c", 1, "red");
    f.search("d.c", "s");
    let entries = || f.store.oplog().sizes().unwrap().entries;
    let (before, file) = (entries(), f.version("d.c").file);
    f.search("d.c", "s");
    let by_name = SearchSelector::Name("s");
    f.store.update_search_index(&ns("d.c"), by_name, &definition(1), |_| Ok(())).unwrap();
    assert_eq!((entries(), f.version("d.c").file), (before, file));
    f.store.update_search_index(&ns("d.c"), by_name, &definition(2), |_| Ok(())).unwrap();
    assert_eq!(entries(), before + 1);
}

#[test]
fn a_restart_continues_at_the_last_commit_of_the_files() {
    let (f, files) = (fixture(), Files::default());
    f.put_text("d.c", 1, "red");
    f.search("d.c", "s");
    f.open_files("d.c", &files);
    f.feed_files("d.c", &files).unwrap();
    f.commit_files("d.c", &files);
    f.put_text("d.c", 2, "blue");
    f.delete("d.c", 1);
    f.feed_files("d.c", &files).unwrap();
    files.crash();
    let again = testing::open(f.engine.clone(), f.clock.clone());
    again.open_files("d.c", &files);
    assert_eq!(files.now.borrow().len(), 1, "they are as they were committed");
    again.feed_files("d.c", &files).unwrap();
    again.check_files("d.c", &files);

    // Files of a later time than the log, as after a copy of an older folder.
    *files.position.borrow_mut() = Some(u64::MAX >> 1);
    let older = testing::open(f.engine.clone(), f.clock.clone());
    older.open_files("d.c", &files);
    assert!(files.now.borrow().is_empty() && !older.version("d.c").is_filled());
    older.feed_files("d.c", &files).unwrap();
    older.check_files("d.c", &files);
}

#[test]
fn a_build_that_was_interrupted_begins_again() {
    let (f, files) = (fixture(), Files::default());
    for id in 0..20 {
        f.put_text("d.c", id, "red");
    }
    f.search("d.c", "s");
    f.open_files("d.c", &files);
    let (found, version) = (f.of("d.c"), f.version("d.c"));
    assert_eq!(f.store.feed_search(&f.op, &found, &version, &files).unwrap(), FeedStep::More);
    assert!(!version.is_filled());
    files.crash();
    let again = testing::open(f.engine.clone(), f.clock.clone());
    again.open_files("d.c", &files);
    again.feed_files("d.c", &files).unwrap();
    again.check_files("d.c", &files);
}

#[test]
fn files_that_were_committed_while_they_were_filled_again_are_not_complete() {
    let (f, files) = (fixture(), Files::default());
    for id in 0..20 {
        f.put_text("d.c", id, "red");
    }
    f.search("d.c", "s");
    f.open_files("d.c", &files);
    f.feed_files("d.c", &files).unwrap();
    f.commit_files("d.c", &files);
    // As on a server that has no files of the index yet.
    let other = testing::open(f.engine.clone(), f.clock.clone());
    files.empty();
    other.open_files("d.c", &files);
    let (found, version) = (other.of("d.c"), other.version("d.c"));
    assert_eq!(other.store.feed_search(&f.op, &found, &version, &files).unwrap(), FeedStep::More);
    assert!(version.is_ready() && !version.is_filled());
    other.commit_files("d.c", &files);
    let again = testing::open(f.engine.clone(), f.clock.clone());
    again.open_files("d.c", &files);
    again.feed_files("d.c", &files).unwrap();
    again.check_files("d.c", &files);
}

#[test]
fn a_position_in_the_catalog_is_not_used_for_older_files_of_another_server() {
    let (f, files, older) = (fixture(), Files::default(), Files::default());
    f.put_text("d.c", 1, "red");
    f.search("d.c", "s");
    f.open_files("d.c", &files);
    f.feed_files("d.c", &files).unwrap();
    f.commit_files("d.c", &files);
    *older.now.borrow_mut() = files.now.borrow().clone();
    *older.position.borrow_mut() = *files.position.borrow();
    f.put_text("d.c", 2, "blue");
    f.feed_files("d.c", &files).unwrap();
    f.commit_files("d.c", &files);
    f.put_text("d.other", 1, "so that the position moves on without a commit");
    f.store.store_counts().unwrap();
    for files in [&older, &files] {
        let again = testing::open(f.engine.clone(), f.clock.clone());
        again.open_files("d.c", files);
        again.feed_files("d.c", files).unwrap();
        again.check_files("d.c", files);
    }
}

#[test]
fn the_log_waits_for_the_commits_of_files_up_to_a_limit() {
    let (f, files) = (small_log(&fixture()), Files::default());
    f.put_text("d.c", 1, "red");
    f.search("d.c", "s");
    f.open_files("d.c", &files);
    f.feed_files("d.c", &files).unwrap();
    f.commit_files("d.c", &files);
    let committed = files.position.borrow().unwrap();
    f.put_text("d.c", 2, "blue");
    f.feed_files("d.c", &files).unwrap();
    fill_log(&f, "d.other", 12_000);
    f.store.trim_oplog().unwrap();
    assert!(f.store.oplog().cut() <= committed, "a restart would need these entries");
    f.commit_files("d.c", &files);
    f.store.trim_oplog().unwrap();
    assert!(f.store.oplog().cut() > committed);
    // Files that lack nothing are never stale, also after a crash: the cut wrote their position.
    fill_log(&f, "d.other", 30_000);
    f.store.trim_oplog().unwrap();
    let again = small_log(&f);
    again.open_files("d.c", &files);
    again.feed_files("d.c", &files).unwrap();
    again.check_files("d.c", &files);

    again.put_text("d.c", 3, "green");
    fill_log(&again, "d.other", 40_000);
    again.store.trim_oplog().unwrap();
    let error = again.feed_files("d.c", &files).unwrap_err();
    assert_eq!(error.code(), ErrorCode::ChangeStreamHistoryLost);
    files.empty();
    again.store.fill_search_again(&again.version("d.c"));
    again.feed_files("d.c", &files).unwrap();
    again.check_files("d.c", &files);
}

#[test]
fn definitions_follow_their_collection() {
    let (f, files) = (fixture(), Files::default());
    f.put_text("d.c", 1, "red");
    f.search("d.c", "s");
    let first = f.version("d.c");
    f.open_files("d.c", &files);
    f.feed_files("d.c", &files).unwrap();
    f.commit_files("d.c", &files);
    let selector = SearchSelector::Name("s");
    let any = |_: &SearchIndex| Ok(());
    f.store.update_search_index(&ns("d.c"), selector, &definition(2), any).unwrap();
    let index = f.of("d.c").search_indexes()[0].clone();
    assert_eq!(index.serving().unwrap().file, first.file);
    let second = f.version("d.c");
    assert_eq!((second.number, first.is_dropped()), (1, false));
    f.store.note_search_ready(&f.of("d.c"), &second).unwrap();
    assert!(first.is_dropped());
    let error = f.store.update_search_index(&ns("d.x"), selector, &definition(2), any);
    assert_eq!(error.unwrap_err().code(), ErrorCode::NamespaceNotFound);

    let again = testing::open(f.engine.clone(), f.clock.clone());
    let (read, ready) = (again.version("d.c"), again.version("d.c").is_ready());
    assert_eq!((read.file, &read.definition, ready), (second.file, &definition(2), true));
    again.store.drop_collection(&ns("d.c")).unwrap();
    assert!(read.is_dropped());
    let txn = again.engine.begin(TxnOptions::READ_ONLY).unwrap();
    assert_eq!(crate::catalog::rows(&*txn, b's').unwrap(), []);
    assert_eq!(crate::catalog::rows(&*txn, b'p').unwrap(), []);
}

/// The search indexes of a collection: the name, the view, and the version of the definition.
fn listed(f: &Fixture, collection: &str) -> Vec<(String, Option<String>, i64)> {
    let collection = f.of(collection);
    let indexes = collection.search_indexes();
    let shown = |index: &Arc<SearchIndex>| {
        (index.name.clone(), index.view.clone(), index.latest().unwrap().number)
    };
    indexes.iter().map(shown).collect()
}

#[test]
fn indexes_on_views_follow_their_views() {
    let f = fixture();
    let view = |on: &str, n: i32| {
        let stage = doc! { "$set": { "n": n } };
        DocBuf::from_bson(&doc! { "viewOn": on, "pipeline": [stage] })
    };
    let reads = |db: &str, view: RawDoc<'_>| {
        let on = view.get("viewOn").and_then(RawValue::as_str).unwrap();
        vec![Namespace::new(db, on).unwrap()]
    };
    let create = |name: &str, on: &str, n: i32| {
        f.store.create_view(&f.op, &ns(name), view(on, n).as_doc(), &reads).unwrap();
    };
    let change = |name: &str, on: &str, n: i32| {
        f.store.replace_view(&f.op, &ns(name), view(on, n).as_doc(), &reads).unwrap();
    };
    let of = |name: &str, view: &str, number| (name.to_owned(), Some(view.to_owned()), number);
    f.insert("d.a", &doc! { "_id": 1 }).unwrap();
    f.insert("d.b", &doc! { "_id": 1 }).unwrap();
    create("d.v", "a", 1);
    create("d.w", "v", 2);
    f.search("d.v", "of_v");
    f.search("d.w", "of_w");
    f.search("d.a", "own");
    let own = ("own".to_owned(), None, 0);
    assert_eq!(listed(&f, "d.a"), [of("of_v", "v", 0), of("of_w", "w", 0), own.clone()]);
    let twice =
        NewSearchIndex { name: "own".into(), kind: "search".into(), definition: definition(1) };
    let twice = f.store.create_search_indexes(&ns("d.v"), &[twice]).unwrap_err();
    assert_eq!(twice.code(), ErrorCode::IndexAlreadyExists);

    // Only the outer view shows other documents.
    change("d.w", "v", 3);
    assert_eq!(listed(&f, "d.a"), [of("of_v", "v", 0), of("of_w", "w", 1), own.clone()]);
    change("d.v", "a", 4);
    assert_eq!(listed(&f, "d.a"), [of("of_v", "v", 1), of("of_w", "w", 2), own.clone()]);
    let entries = f.store.oplog().settled();
    f.store.follow_all_views().unwrap();
    assert_eq!(f.store.oplog().settled(), entries, "nothing has changed");

    // Both views read another collection.
    f.search("d.b", "of_w");
    change("d.v", "b", 4);
    assert_eq!(listed(&f, "d.a"), [own]);
    let of_b = ("of_w".to_owned(), None, 0);
    assert_eq!(listed(&f, "d.b"), [of_b.clone(), of("of_v", "v", 2)]);

    // A client has written the definition itself.
    let views = f.of("d.system.views");
    f.store
        .write(&f.op, &ReadView::now(), &views, |unit| {
            let key = unit.locate(views.id_key(RawValue::String("d.v")))?.unwrap();
            let old = unit.read(&key)?.unwrap();
            unit.delete(&key, &old)
        })
        .unwrap();
    assert_eq!(listed(&f, "d.b"), [of_b.clone(), of("of_v", "v", 2)]);
    f.store.follow_all_views().unwrap();
    assert_eq!(listed(&f, "d.b"), [of_b]);
}
