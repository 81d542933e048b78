//! Log-fed indexes over the memory engine, with the fixture kind `fixtureWords`.

mod crash;
mod definitions;
mod files;
mod reading;
mod retention;

use std::collections::BTreeSet;
use std::ops::ControlFlow;
use std::sync::Arc;

use mayfly_base::{Clock, ErrorCode, Result};
use mayfly_kv::{Keyspace, TxnOptions};
use mayfly_value::bson::{Document, doc};
use mayfly_value::{DocBuf, RawValue};

use crate::catalog::Feed;
use crate::isolation::ReadView;
use crate::oplog::visit_all;
use crate::record::layout::object_range;
use crate::testing::{self, Fixture, fixture, ns};
use crate::*;

/// An index on the words of `a`.
fn words() -> Document {
    doc! { "key": { "a": "fixtureWords" }, "name": "words" }
}

/// A word in a document with this `_id`.
type Word = (String, String);

impl<C: Clock + 'static> Fixture<C> {
    pub(crate) fn of(&self, name: &str) -> Arc<Collection> {
        self.store.collection(&ReadView::now(), &ns(name)).unwrap()
    }

    /// The only log-fed index of a collection.
    fn words_index(&self, name: &str) -> Arc<Index> {
        self.of(name).all_log_fed().pop().unwrap()
    }

    /// Brings the indexes of all collections forward until nothing is left.
    fn follow(&self) {
        self.try_follow().unwrap();
    }

    fn try_follow(&self) -> Result<()> {
        for collection in self.store.log_fed_collections() {
            let steps = (0..1000).find_map(|_| match self.store.feed(&self.op, &collection) {
                Ok(FeedStep::More) => None,
                Ok(FeedStep::Current | FeedStep::Locked) => Some(Ok(())),
                Err(error) => Some(Err(error)),
            });
            steps.expect("an end of the steps")?;
        }
        Ok(())
    }

    /// Replaces the document with this `_id`, or deletes it.
    fn set(&self, view: &ReadView, name: &str, id: i32, new: Option<Document>) -> Result<()> {
        let (collection, _) = self.store.get_or_create(view, &ns(name))?;
        let key = self.store.locate(view, &collection, RawValue::Int32(id))?;
        self.store.write(&self.op, view, &collection, |unit| {
            let old = key.as_ref().map(|key| unit.read(key)).transpose()?.flatten();
            let new = new.as_ref().map(DocBuf::from_bson);
            match (key.as_ref().zip(old), new) {
                (None, None) => Ok(()),
                (None, Some(new)) => unit.insert(new.as_doc()),
                (Some((key, old)), None) => unit.delete(key, &old),
                (Some((key, old)), Some(new)) => {
                    // Every other version is logged as a delta.
                    let even = new.as_doc().as_bytes().len() % 2 == 0;
                    let style = if even { UpdateStyle::Computed } else { UpdateStyle::Replacement };
                    unit.update(key, &old, new.as_doc(), style)
                }
            }
        })
    }

    fn put_text(&self, name: &str, id: i32, text: &str) {
        self.set(&ReadView::now(), name, id, Some(doc! { "_id": id, "a": text })).unwrap();
    }

    fn delete(&self, name: &str, id: i32) {
        self.set(&ReadView::now(), name, id, None).unwrap();
    }

    /// The words that the index has. Each entry leads to a record.
    fn indexed(&self, name: &str) -> BTreeSet<Word> {
        let (collection, index) = (self.of(name), self.words_index(name));
        let snapshot = self.store.latest().unwrap();
        let mut found = BTreeSet::new();
        let (all, forward) = (whole_range(), Direction::Forward);
        snapshot
            .scan_index(&index, &all, forward, ScanLimit::NONE, &mut |entry| {
                let record = snapshot.record_owned(&collection, entry.record_key)?;
                let id = record.as_ref().and_then(|record| record.as_doc().get("_id"));
                let id = id.map_or("gone".into(), |id| format!("{id:?}"));
                let word = String::from_utf8_lossy(entry.values).into_owned();
                assert!(found.insert((word, id)), "an entry is there once");
                Ok(ControlFlow::Continue(()))
            })
            .unwrap();
        found
    }

    /// Checks that the index has exactly the entries of the present documents, and a row for each
    /// document that has entries.
    #[track_caller]
    fn check_words(&self, name: &str) {
        let (collection, index) = (self.of(name), self.words_index(name));
        let snapshot = self.store.latest().unwrap();
        let (mut words, mut with_words) = (0, 0);
        let (all, forward) = (whole_range(), Direction::Forward);
        snapshot
            .scan_stored(&collection, &all, forward, ScanLimit::NONE, &mut |_, record| {
                let mut keys = crate::index::keygen::KeySet::default();
                let _ = crate::index::kinds::entry_keys(&index.spec, record, &mut keys);
                words += keys.len();
                with_words += usize::from(keys.len() > 0);
                Ok(ControlFlow::Continue(()))
            })
            .unwrap();
        drop(snapshot);
        assert_eq!(self.indexed(name).len(), words, "as many entries as words");
        assert_eq!(self.rows(Keyspace::Record, index.id()), with_words);
        let options = ValidateOptions { bson_conformance: false };
        let found = self.store.validate(&self.op, &collection, options).unwrap();
        let of = found.indexes.iter().find(|of| of.index.id() == index.id()).unwrap();
        assert!(of.is_valid(), "{} missing, {} extra, {:?}", of.missing, of.extra, of.errors);
        assert_eq!((of.entries, of.expected), (words as u64, words as u64));
    }

    /// The number of keys of an object.
    fn rows(&self, keyspace: Keyspace, id: u64) -> usize {
        let txn = self.engine.begin(TxnOptions::READ_ONLY).unwrap();
        let mut rows = 0;
        visit_all(&*txn, keyspace, object_range(id), &mut |_, _| {
            rows += 1;
            Ok(())
        })
        .unwrap();
        rows
    }
}

fn feed(index: &Index) -> &Feed {
    index.feed().unwrap()
}

#[test]
fn writes_leave_the_entries_to_the_follower() {
    let f = fixture();
    f.put_text("d.c", 1, "red pen");
    f.put_text("d.c", 2, "blue ink");
    assert_eq!(f.index("d.c", &words()).unwrap().after, 2);
    assert_eq!(f.entries("d.c", 0), 4, "the build has filled it");
    f.follow();
    f.check_words("d.c");
    assert_eq!(f.entries("d.c", 0), 4);
    f.put_text("d.c", 1, "red paper clip");
    f.put_text("d.c", 3, "red");
    f.delete("d.c", 2);
    assert_eq!(f.entries("d.c", 0), 4, "the entries are those of the position");
    f.follow();
    f.check_words("d.c");
    assert_eq!(f.entries("d.c", 0), 4);
    f.put_text("d.c", 4, "!refused by the kind");
    f.set(&ReadView::now(), "d.c", 5, Some(doc! { "_id": 5, "b": 1 })).unwrap();
    f.put_text("d.c", 3, "!no more");
    f.follow();
    f.check_words("d.c");
    assert_eq!(f.entries("d.c", 0), 3, "a document that cannot be indexed is stored");
}

#[test]
fn a_document_that_is_inserted_again_has_its_new_record() {
    let f = fixture();
    f.index("d.c", &words()).unwrap();
    f.put_text("d.c", 1, "red pen");
    f.follow();
    f.delete("d.c", 1);
    f.put_text("d.c", 1, "red pen");
    f.follow();
    f.check_words("d.c");
    assert!(f.indexed("d.c").iter().all(|(_, id)| id != "gone"));
}

#[test]
fn clustered_and_capped_collections_are_followed() {
    let f = fixture();
    let spec =
        doc! { "clusteredIndex": { "key": { "_id": 1 }, "unique": true, "v": 2, "name": "_id_" } };
    for (name, options) in
        [("d.clustered", spec), ("d.capped", doc! { "capped": true, "size": 4096i64, "max": 3i64 })]
    {
        let options = DocBuf::from_bson(&options);
        f.store.create_collection(&ReadView::now(), &ns(name), options).unwrap();
        f.index(name, &words()).unwrap();
        for id in 0..8 {
            f.put_text(name, id, "red pen");
            f.follow();
        }
        f.check_words(name);
    }
    assert_eq!(f.entries("d.clustered", 0), 16);
    assert_eq!(f.entries("d.capped", 0), 6, "records that made room have no entries");
}

#[test]
fn steps_are_bounded_and_one_entry_may_name_many_documents() {
    let f = fixture();
    f.index("d.c", &words()).unwrap();
    let collection = f.of("d.c");
    let documents: Vec<_> =
        (0..40).map(|id| DocBuf::from_bson(&doc! { "_id": id, "a": "red pen" })).collect();
    f.store
        .write(&f.op, &ReadView::now(), &collection, |unit| {
            documents.iter().try_for_each(|document| unit.insert(document.as_doc()))
        })
        .unwrap();
    for id in 0..30 {
        f.put_text("d.c", id, "ink");
    }
    let mut steps = 1;
    while f.store.feed(&f.op, &collection).unwrap() == FeedStep::More {
        steps += 1;
    }
    assert!((4..=6).contains(&steps), "{steps}");
    f.check_words("d.c");
    assert_eq!(f.entries("d.c", 0), 30 + 2 * 10);
}

#[test]
fn partial_indexes_have_the_documents_of_their_filter() {
    let f = fixture();
    let mut spec = words();
    spec.insert("sparse", true);
    f.index("d.c", &spec).unwrap();
    f.put_text("d.c", 1, "red");
    f.follow();
    f.check_words("d.c");
    for (option, value) in [
        ("unique", true.into()),
        ("prepareUnique", true.into()),
        ("expireAfterSeconds", mayfly_value::bson::Bson::from(5)),
    ] {
        let mut spec = words();
        spec.insert(option, value);
        let error = f.index("d.e", &spec).unwrap_err();
        assert_eq!(error.code(), ErrorCode::CannotCreateIndex, "{option}");
    }
    let local = f.index("config.c", &words()).unwrap_err();
    assert_eq!(local.code(), ErrorCode::CannotCreateIndex);
}

#[test]
fn plans_do_not_use_a_log_fed_index() {
    let f = fixture();
    f.index("d.c", &words()).unwrap();
    let plannable = f.of("d.c").plannable_indexes(VisibleIndexes::PUBLISHED);
    assert_eq!(plannable.len(), 1);
    assert!(plannable.iter().all(|index| index.feed().is_none()));
}

#[test]
fn a_locked_store_is_not_hidden_by_an_index_without_work() {
    use FeedStep::{Current, Locked, More};
    let expected =
        [(More, [More; 3]), (Current, [More, Current, Locked]), (Locked, [More, Locked, Locked])];
    for (first, results) in expected {
        for (second, result) in [More, Current, Locked].into_iter().zip(results) {
            assert_eq!(first.and(second), result, "{first:?} and {second:?}");
        }
    }
}
