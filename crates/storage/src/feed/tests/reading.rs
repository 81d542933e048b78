//! Readers that wait for a position, and the follower's waits.

use mayfly_base::testing::wait_until;
use mayfly_work::OpCtx;

use super::*;

fn is_ready(wait: impl Future<Output = ()>) -> bool {
    let mut wait = std::pin::pin!(wait);
    let mut context = std::task::Context::from_waker(std::task::Waker::noop());
    wait.as_mut().poll(&mut context).is_ready()
}

#[test]
fn a_reader_finds_every_write_that_was_acknowledged_before() {
    let f = Arc::new(fixture());
    f.index("d.c", &words()).unwrap();
    let over = std::sync::atomic::AtomicBool::new(false);
    let relaxed = std::sync::atomic::Ordering::Relaxed;
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !over.load(relaxed) {
                f.follow();
            }
        });
        // Other commits are under way most of the time.
        for thread in 0..2 {
            let (f, over) = (&f, &over);
            scope.spawn(move || {
                for n in 0.. {
                    if over.load(relaxed) {
                        return;
                    }
                    f.insert(&format!("d.other{thread}"), &doc! { "_id": n }).unwrap();
                }
            });
        }
        for id in 0..200 {
            f.put_text("d.c", id, &format!("word{id}"));
            f.store.await_fed(&f.op, &f.of("d.c"), &f.words_index("d.c")).unwrap();
            assert_eq!(f.entries("d.c", 0), id as usize + 1);
        }
        over.store(true, relaxed);
    });
    f.follow();
    f.check_words("d.c");
}

#[test]
fn a_reader_waits_until_its_deadline_and_ends_with_the_index() {
    let f = fixture();
    f.index("d.c", &words()).unwrap();
    let (collection, index) = (f.of("d.c"), f.words_index("d.c"));
    f.follow();
    f.store.await_fed(&f.op, &collection, &index).unwrap();
    f.put_text("d.c", 1, "red");
    let limited = OpCtx::detached(f.clock.clone());
    limited.set_max_time_ms(100);
    std::thread::scope(|scope| {
        let waiting = scope.spawn(|| f.store.await_fed(&limited, &collection, &index));
        f.clock.advance_ms(101);
        let error = waiting.join().unwrap().unwrap_err();
        assert_eq!(error.code(), ErrorCode::MaxTimeMSExpired);
        let waiting = scope.spawn(|| f.store.await_fed(&f.op, &collection, &index));
        f.store.drop_collection(&ns("d.c")).unwrap();
        let error = waiting.join().unwrap().unwrap_err();
        assert_eq!(error.code(), ErrorCode::QueryPlanKilled);
    });
    let error = f.store.feed(&f.op, &collection);
    assert!(error.is_err() || collection.log_fed().is_empty());
}

#[test]
fn the_follower_waits_while_other_collections_are_written() {
    let f = fixture();
    f.index("d.c", &words()).unwrap();
    let collection = f.of("d.c");
    f.follow();
    assert!(!is_ready(f.store.wait_for_feed(&collection)));
    let before = f.store.oplog().entries_followed();
    for id in 0..500 {
        f.insert("d.other", &doc! { "_id": id }).unwrap();
    }
    assert!(!is_ready(f.store.wait_for_feed(&collection)), "these entries are of another one");
    // A reader needs no step either.
    f.store.await_fed(&f.op, &collection, &f.words_index("d.c")).unwrap();
    f.put_text("d.c", 1, "red");
    assert!(is_ready(f.store.wait_for_feed(&collection)));
    f.follow();
    assert!(f.store.oplog().entries_followed() - before <= 2, "the rest of the log is not read");
    assert!(!is_ready(f.store.wait_for_feed(&collection)));
    f.check_words("d.c");
}

#[test]
fn a_new_index_is_a_change_of_definitions() {
    let f = fixture();
    f.put_text("d.c", 1, "red");
    let edition = f.store.definitions_edition();
    assert!(f.store.log_fed_collections().is_empty());
    assert!(!is_ready(f.store.wait_for_definitions(edition)));
    f.index("d.c", &words()).unwrap();
    assert!(is_ready(f.store.wait_for_definitions(edition)));
    assert_eq!(f.store.log_fed_collections().len(), 1);
}

#[test]
fn a_check_of_the_collection_waits_for_the_index() {
    let f = Arc::new(fixture());
    f.index("d.c", &words()).unwrap();
    f.put_text("d.c", 1, "red");
    let options = ValidateOptions { bson_conformance: false };
    // An index that does not catch up is not checked.
    let found = f.store.validate(&f.op, &f.of("d.c"), options).unwrap();
    assert!(found.indexes.iter().all(|of| of.is_valid()));
    f.follow();
    f.check_words("d.c");
    wait_until("a step and a check meet", || {
        f.put_text("d.c", 2, "blue");
        std::thread::scope(|scope| {
            scope.spawn(|| f.follow());
            f.store
                .validate(&f.op, &f.of("d.c"), options)
                .unwrap()
                .indexes
                .iter()
                .all(|of| of.is_valid())
        })
    });
}
