//! The log and its cuts.

use super::crash::Stops;
use super::*;
use crate::testing::open_with;

/// A store whose log is cut after a few kilobytes.
pub(super) fn small_log(f: &Fixture) -> Fixture {
    let options = StoreOptions { background: false, oplog_bytes: 8192, ..StoreOptions::default() };
    open_with(f.engine.clone(), f.clock.clone(), options)
}

pub(super) fn fill_log(f: &Fixture, name: &str, bytes: usize) {
    for _ in 0..bytes / 256 {
        let document = doc! { "_id": mayfly_value::bson::oid::ObjectId::from_bytes(mayfly_value::new_object_id(0)), "x": "x".repeat(200) };
        f.insert(name, &document).unwrap();
    }
}

#[test]
fn the_log_waits_for_the_slowest_index_up_to_a_limit() {
    let f = small_log(&fixture());
    f.put_text("d.c", 1, "red pen");
    f.index("d.c", &words()).unwrap();
    f.follow();
    let first = f.words_index("d.c");
    let position = feed(&first).row().unwrap().position;
    f.put_text("d.c", 2, "blue ink");
    f.delete("d.c", 1);
    fill_log(&f, "d.other", 12_000);
    f.store.trim_oplog().unwrap();
    assert!(f.store.oplog().cut() <= position, "the entries that the index needs are kept");
    f.follow();
    f.check_words("d.c");
    f.store.trim_oplog().unwrap();
    assert!(f.store.oplog().cut() > position, "the index needs them no more");

    f.put_text("d.c", 3, "not seen");
    f.delete("d.c", 2);
    fill_log(&f, "d.other", 30_000);
    let needs = feed(&first).row().unwrap().position;
    f.store.trim_oplog().unwrap();
    assert!(f.store.oplog().cut() > needs, "the log is as long as it may become");
    assert_eq!(f.entries("d.c", 0), 2);
    f.follow();
    let second = f.words_index("d.c");
    assert!(first.is_dropped() && first.id() != second.id() && second.is_ready());
    assert_eq!(f.store.log_fed_rebuilds.load(std::sync::atomic::Ordering::Relaxed), 1);
    f.check_words("d.c");
    f.store.sweep_once().unwrap();
    assert_eq!(f.rows(Keyspace::Index, first.id()), 0);
    let again = testing::open(f.engine.clone(), f.clock.clone());
    again.follow();
    again.check_words("d.c");
}

#[test]
fn a_cut_of_the_whole_log_is_noticed() {
    let f = small_log(&fixture());
    f.index("d.c", &words()).unwrap();
    f.put_text("d.c", 1, "red");
    let owner =
        TransactionOwner { session: [1; 16], lsid: DocBuf::from_bson(&doc! {}), txn_number: 1 };
    let view = f.store.begin_transaction(owner).unwrap().enter();
    f.set(&view, "d.c", 3, Some(doc! { "_id": 3, "a": "green" })).unwrap();
    f.store.cut_log_whole().unwrap();
    f.put_text("d.c", 2, "blue");
    f.follow();
    // An index that is built again does not end transactions.
    f.store.commit_transaction(OpenTransaction::leave(view).unwrap()).unwrap();
    f.follow();
    f.check_words("d.c");
    assert_eq!(f.store.log_fed_rebuilds.load(std::sync::atomic::Ordering::Relaxed), 1);
}

#[test]
fn an_index_without_changes_is_never_stale() {
    let f = small_log(&fixture());
    f.index("d.c", &words()).unwrap();
    f.put_text("d.c", 1, "red");
    f.follow();
    let position = feed(&f.words_index("d.c")).row().unwrap().position;
    for _ in 0..3 {
        fill_log(&f, "d.other", 12_000);
        f.store.trim_oplog().unwrap();
    }
    assert!(f.store.oplog().cut() > position, "no step was necessary");
    f.follow();
    // Neither after a crash: the cut wrote the position.
    let again = small_log(&f);
    again.follow();
    for store in [&f.store, &again.store] {
        assert_eq!(store.log_fed_rebuilds.load(std::sync::atomic::Ordering::Relaxed), 0);
    }
    again.check_words("d.c");
}

#[test]
fn an_index_that_is_being_filled_keeps_the_log() {
    let f = small_log(&fixture());
    for id in 0..40 {
        f.put_text("d.c", id, "red");
    }
    let collection = f.of("d.c");
    let spec = IndexSpec::from_catalog(DocBuf::from_bson(&words())).unwrap();
    let building = f.store.register_building(&collection, vec![spec]).unwrap().remove(0);
    let _ = f.store.feed_index(&f.op, &collection, &building).unwrap();
    let begun = feed(&building).row().unwrap();
    assert!(!begun.filled);
    f.put_text("d.c", 1, "blue");
    fill_log(&f, "d.other", 4_000);
    f.store.trim_oplog().unwrap();
    assert!(f.store.oplog().cut() <= begun.position);
}

#[test]
fn a_clean_close_stores_the_position() {
    let f = testing::open(Stops::never(), testing::clock());
    f.index("d.c", &words()).unwrap();
    f.put_text("d.c", 1, "red");
    f.follow();
    for id in 0..100 {
        f.insert("d.other", &doc! { "_id": id }).unwrap();
    }
    let settled = f.store.oplog().settled();
    f.store.close().unwrap();
    let again = testing::open(f.engine.clone(), f.clock.clone());
    assert_eq!(feed(&again.words_index("d.c")).row().unwrap().position, settled);
    again.follow();
    assert_eq!(again.store.oplog().entries_followed(), 0);
    again.check_words("d.c");
}

#[test]
fn a_clock_that_was_set_back_assigns_no_timestamp_before_the_position() {
    let f = testing::open(Stops::never(), testing::clock());
    f.index("d.c", &words()).unwrap();
    f.put_text("d.c", 1, "red");
    f.follow();
    // The log is further than its last entry.
    let ahead = f.store.oplog().settled() + (100 << 32);
    f.store.oplog().clock.advance_to(ahead);
    f.follow();
    f.store.close().unwrap();
    f.clock.set_wall_ms(testing::NOW - 1_000_000);
    let again = testing::open(f.engine.clone(), f.clock.clone());
    again.put_text("d.c", 2, "blue");
    assert!(again.store.oplog().settled() > ahead);
    again.follow();
    again.check_words("d.c");
    assert_eq!(again.entries("d.c", 0), 2);
}

#[test]
fn the_log_waits_for_its_archive_up_to_a_limit() {
    let f = small_log(&fixture());
    fill_log(&f, "d.c", 4_000);
    let archived = f.store.oplog().settled();
    f.store.oplog().note_archived(archived, 16_000);
    fill_log(&f, "d.c", 12_000);
    f.store.trim_oplog().unwrap();
    let cut = f.store.oplog().cut();
    assert!(0 < cut && cut <= archived, "the archive lacks the entries after it");
    let mut entries = Vec::new();
    let up_to = f.store.oplog().read_for_archive(archived, usize::MAX, &mut entries).unwrap();
    assert_eq!(up_to, f.store.oplog().settled());
    f.store.oplog().note_archived(up_to, 16_000);
    f.store.trim_oplog().unwrap();
    assert!(f.store.oplog().cut() > archived);

    fill_log(&f, "d.c", 60_000);
    f.store.trim_oplog().unwrap();
    assert!(f.store.oplog().cut() > up_to, "the log is as long as it may become");
    let length = entries.len();
    let error = f.store.oplog().read_for_archive(up_to, usize::MAX, &mut entries).unwrap_err();
    assert_eq!((error.code(), entries.len()), (ErrorCode::ChangeStreamHistoryLost, length));
}
