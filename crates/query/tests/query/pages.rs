//! Reading records in pages does not affect an index scan: where it stops, what it counts, and what
//! it finds after changes between batches.

use mayfly_storage::ReadView;
use mayfly_storage::StoreSession;
use std::ops::Deref;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use mayfly_mql::{ParseContext, Update};
use mayfly_query::{Budget, CanonicalQuery, Executor, FindOptions, Flow, Hint, UpdateSpec};
use mayfly_value::bson::{Bson, DateTime, Document, doc};
use mayfly_value::{DocBuf, RawValue};

use crate::counting::{CountingEngine, Reads};
use crate::fixture::{Fixture, id_of};

/// A fixture that counts reads of records.
struct Pages {
    fixture: Fixture,
    reads: Reads,
}

impl Deref for Pages {
    type Target = Fixture;

    fn deref(&self) -> &Fixture {
        &self.fixture
    }
}

fn fixture(indexes: &[Document]) -> Pages {
    let (engine, reads) = CountingEngine::new();
    Pages { fixture: Fixture::over(Arc::new(engine), indexes), reads }
}

fn by_k() -> Pages {
    fixture(&[doc! { "key": { "k": 1 }, "name": "k" }])
}

impl Pages {
    /// Inserts documents 0 to `count` - 1, with `k` in another order than that of insertion.
    fn scatter(&self, count: i32) {
        (0..count).for_each(|n| self.insert(&doc! { "_id": n * 7 % count, "k": n * 7 % count }));
    }

    fn executor(&self, filter: &Document, backward: bool, limit: u64) -> Executor {
        let filter = DocBuf::from_bson(filter);
        let sort = DocBuf::from_bson(&doc! { "k": if backward { -1 } else { 1 } });
        let hint = Some(Hint::Name("k".to_owned()));
        let sort = Some(sort.as_doc());
        let options = FindOptions { sort, limit, hint, ..FindOptions::default() };
        let query = CanonicalQuery::parse(filter.as_doc(), options).unwrap();
        let executor = Executor::new(&ReadView::now(), self.collection.clone(), query).unwrap();
        assert!(!executor.plan().blocking_sort(), "{}", executor.plan().summary());
        executor
    }

    fn delete(&self, id: i32) {
        let key = self
            .store
            .locate(&ReadView::now(), &self.collection, RawValue::Int32(id))
            .unwrap()
            .unwrap();
        let delete = |unit: &mut mayfly_storage::WriteUnit<'_>| match unit.read(&key)? {
            Some(document) => unit.delete(&key, &document),
            None => panic!("document {id} is missing"),
        };
        self.store.write(&self.op, &ReadView::now(), &self.collection, delete).unwrap();
    }

    fn update(&self, filter: &Document, update: &Document) -> i64 {
        let (filter, update) = (DocBuf::from_bson(filter), DocBuf::from_bson(update));
        let context = ParseContext::default();
        let update = Update::parse_value(RawValue::Document(update.as_doc()), &context).unwrap();
        let query = CanonicalQuery::parse(filter.as_doc(), FindOptions::default()).unwrap();
        let spec = UpdateSpec {
            query,
            update,
            multi: true,
            upsert: false,
            supplied: None,
            new_id: [0; 12],
            bypass_validation: false,
            repeatable: None,
            budget: Budget::default(),
            encrypted: None,
        };
        mayfly_query::update(
            StoreSession::new(&self.store, &self.op, &ReadView::now()),
            &self.collection,
            &spec,
        )
        .unwrap()
        .modified
    }

    /// The ids of all remaining results.
    fn rest(&self, executor: &mut Executor) -> Vec<i32> {
        let mut ids = Vec::new();
        while !executor.is_done() {
            self.run(executor, &mut |id| {
                ids.push(id);
                Flow::More
            });
        }
        ids
    }

    fn run(&self, executor: &mut Executor, see: &mut dyn FnMut(i32) -> Flow) {
        executor
            .run(
                StoreSession::new(&self.store, &self.op, &ReadView::now()),
                &mut |_, document, _| Ok(see(id_of(document))),
            )
            .unwrap();
    }

    /// Keys and documents examined, and records read, since the last call.
    fn examined(&self) -> (u64, u64, usize) {
        let read = self.reads.lock().unwrap().drain(..).sum();
        (self.op.keys_examined.swap(0, Relaxed), self.op.docs_examined.swap(0, Relaxed), read)
    }
}

fn many_values(values: impl IntoIterator<Item = i32>) -> Document {
    let values: Vec<Bson> = values.into_iter().map(Bson::Int32).collect();
    doc! { "k": { "$in": values } }
}

#[test]
fn a_scan_goes_on_where_it_stopped_whatever_the_page() {
    const COUNT: i32 = 120;
    let f = by_k();
    f.scatter(COUNT);
    let filters = [doc! { "k": { "$gte": 0 } }, many_values(0..COUNT)];
    for (filter, backward) in filters.iter().flat_map(|it| [(it, false), (it, true)]) {
        let mut expected: Vec<i32> = (0..COUNT).collect();
        if backward {
            expected.reverse();
        }
        assert_eq!(f.rest(&mut f.executor(filter, backward, 0)), expected, "{filter}");
        for at in 0..COUNT as usize {
            for flow in [Flow::Pause, Flow::Refused] {
                let mut executor = f.executor(filter, backward, 0);
                f.examined();
                let mut seen = Vec::new();
                f.run(&mut executor, &mut |id| {
                    if flow == Flow::Refused && seen.len() == at {
                        return flow;
                    }
                    seen.push(id);
                    if seen.len() == at + 1 { flow } else { Flow::More }
                });
                let (keys, documents, _) = f.examined();
                assert_eq!((keys, documents), (at as u64 + 1, at as u64 + 1));
                assert_eq!(seen.len(), if flow == Flow::Pause { at + 1 } else { at });
                assert!(!executor.is_done());
                seen.extend(f.rest(&mut executor));
                assert_eq!(seen, expected, "{filter} {flow:?} at {at}");
                let (keys, documents, _) = f.examined();
                let left = (COUNT as usize - at - 1) as u64;
                assert_eq!((keys, documents), (left, left), "{filter} {flow:?} at {at}");
            }
        }
    }
}

#[test]
fn many_values_come_in_order_in_batches_of_any_size() {
    let f = by_k();
    (0..3000).for_each(|n| f.insert(&doc! { "_id": n, "k": n * 17 % 1000 }));
    let filter = many_values((0..2000).step_by(3));
    for backward in [false, true] {
        for size in [1, 2, 7, 101, 1000, 5000] {
            let (mut executor, mut seen) = (f.executor(&filter, backward, 0), Vec::new());
            while !executor.is_done() {
                let mut count = 0;
                executor.expect(size);
                f.run(&mut executor, &mut |id| {
                    seen.push(id);
                    count += 1;
                    if count == size { Flow::Pause } else { Flow::More }
                });
            }
            let values: Vec<i32> = seen.iter().map(|id| id * 17 % 1000).collect();
            assert_eq!(values.len(), 334 * 3);
            let sorted = match backward {
                false => values.is_sorted(),
                true => values.is_sorted_by(|a, b| a >= b),
            };
            assert!(sorted && values.iter().all(|value| value % 3 == 0));
            seen.sort_unstable();
            seen.dedup();
            assert_eq!(seen.len(), values.len());
        }
    }
}

#[test]
fn what_was_read_ahead_is_read_again_in_the_next_batch() {
    let f = by_k();
    f.scatter(200);
    for filter in [doc! { "k": { "$gte": 0 } }, many_values(0..300)] {
        let (mut executor, mut seen) = (f.executor(&filter, false, 0), Vec::new());
        f.run(&mut executor, &mut |id| {
            seen.push(id);
            if seen.len() == 30 { Flow::Pause } else { Flow::More }
        });
        let (_, _, read) = f.examined();
        assert!(read > 30, "this test is about pages, and {read} records were read");
        f.delete(31);
        f.delete(29);
        f.update(&doc! { "_id": 32 }, &doc! { "$set": { "k": -5 } });
        f.update(&doc! { "_id": 33 }, &doc! { "$set": { "k": 250 } });
        f.insert(&doc! { "_id": 1000, "k": 30 });
        seen.extend(f.rest(&mut executor));
        let mut expected: Vec<i32> = (0..30).chain([30, 1000]).chain(34..200).collect();
        expected.push(33);
        assert_eq!(seen, expected);
        // Restore the documents.
        f.delete(1000);
        f.insert(&doc! { "_id": 29, "k": 29 });
        f.insert(&doc! { "_id": 31, "k": 31 });
        f.update(&doc! { "_id": 32 }, &doc! { "$set": { "k": 32 } });
        f.update(&doc! { "_id": 33 }, &doc! { "$set": { "k": 33 } });
    }
}

#[test]
fn a_document_with_many_keys_is_shown_once_over_all_pages() {
    const COUNT: i32 = 100;
    let f = by_k();
    for n in 0..COUNT {
        f.insert(&doc! { "_id": n, "k": [n, n + 1, n + 2, n + 60, 3 * COUNT - n] });
    }
    for filter in [doc! { "k": { "$gte": 0 } }, many_values(0..400)] {
        for every in [1, 3, 10, 1000] {
            for backward in [false, true] {
                // An index with several keys for a document does not give the order.
                let filter = DocBuf::from_bson(&filter);
                let query = CanonicalQuery::parse(filter.as_doc(), FindOptions::default()).unwrap();
                let mut executor =
                    Executor::new(&ReadView::now(), f.collection.clone(), query).unwrap();
                let (mut seen, mut refused) = (Vec::new(), false);
                while !executor.is_done() {
                    f.run(&mut executor, &mut |id| {
                        if backward && seen.len() % every == 0 && !refused {
                            refused = true;
                            return Flow::Refused;
                        }
                        refused = false;
                        seen.push(id);
                        if seen.len() % every == 0 { Flow::Pause } else { Flow::More }
                    });
                }
                seen.sort_unstable();
                assert_eq!(seen, (0..COUNT).collect::<Vec<_>>());
            }
        }
    }
}

#[test]
fn no_more_is_read_than_a_limit_or_a_batch_can_take() {
    let f = by_k();
    f.scatter(1000);
    for filter in [doc! { "k": { "$gte": 0 } }, many_values(0..1000)] {
        for limit in [1, 2, 5, 100, 300] {
            f.examined();
            assert_eq!(f.rest(&mut f.executor(&filter, false, limit)).len(), limit as usize);
            assert_eq!(f.examined(), (limit, limit, limit as usize), "{filter} limit {limit}");
        }
        let mut executor = f.executor(&filter, true, 0);
        executor.expect(10);
        let mut count = 0;
        f.run(&mut executor, &mut |_| {
            count += 1;
            if count == 10 { Flow::Pause } else { Flow::More }
        });
        assert_eq!(f.examined(), (10, 10, 10));
    }
    // For a filter that the index does not cover, half of the rejected documents may be read in
    // vain.
    let mut executor =
        f.executor(&doc! { "k": { "$gte": 0 }, "_id": { "$mod": [100, 99] } }, false, 3);
    assert_eq!(f.rest(&mut executor), [99, 199, 299]);
    let (keys, documents, read) = f.examined();
    assert_eq!((keys, documents), (300, 300));
    assert!((300..450).contains(&read), "{read}");
    // If the number of requested documents is unknown, pages start small.
    f.run(&mut f.executor(&doc! { "k": { "$gte": 0 } }, false, 0), &mut |_| Flow::Pause);
    assert_eq!(f.examined(), (1, 1, 16));
}

#[test]
fn one_read_of_many_records_serves_many_ranges() {
    let f = by_k();
    f.scatter(1000);
    let mut executor = f.executor(&many_values(0..1000), false, 0);
    executor.expect(1000);
    assert_eq!(f.rest(&mut executor).len(), 1000);
    assert_eq!(*f.reads.lock().unwrap(), [256, 256, 256, 232]);
}

#[test]
fn hidden_documents_are_left_out_of_a_page() {
    let f = fixture(&[
        doc! { "key": { "k": 1 }, "name": "k" },
        doc! { "key": { "at": 1 }, "name": "at", "expireAfterSeconds": 10, "ttl": { "hideExpired": true } },
    ]);
    for n in 0..100 {
        // Every third document is due one second later.
        let at = if n % 3 == 0 { 1_000_000 - 9_000 } else { 1_000_000 };
        f.insert(&doc! { "_id": n, "k": n, "at": DateTime::from_millis(at) });
    }
    let filter = doc! { "k": { "$gte": 0 } };
    assert_eq!(f.rest(&mut f.executor(&filter, false, 0)).len(), 100);
    let mut executor = f.executor(&filter, false, 0);
    let mut seen = Vec::new();
    f.run(&mut executor, &mut |id| {
        seen.push(id);
        if seen.len() == 10 { Flow::Pause } else { Flow::More }
    });
    f.clock.advance_ms(2_000);
    f.examined();
    seen.extend(f.rest(&mut executor));
    let expected: Vec<i32> = (0..10).chain((10..100).filter(|n| n % 3 != 0)).collect();
    assert_eq!(seen, expected);
    let (keys, documents, _) = f.examined();
    assert_eq!((keys, documents), (90, 60), "what nobody may see was not examined");
    let mut executor = f.executor(&many_values(0..100), true, 5);
    assert_eq!(f.rest(&mut executor), [98, 97, 95, 94, 92]);
}

#[test]
fn large_documents_do_not_pile_up() {
    let f = by_k();
    for n in 0..12 {
        f.insert(&doc! { "_id": n, "k": n, "text": "x".repeat(2 << 20) });
    }
    assert_eq!(f.rest(&mut f.executor(&doc! { "k": { "$gte": 0 } }, false, 0)).len(), 12);
    assert!(f.reads.lock().unwrap().drain(..).all(|keys| keys == 1));
    // After one large document among many small ones, pages become smaller.
    (100..1100).for_each(|n| f.insert(&doc! { "_id": n, "k": n }));
    let mut executor = f.executor(&doc! { "k": { "$gte": 0 } }, false, 0);
    executor.expect(usize::MAX);
    assert_eq!(f.rest(&mut executor).len(), 1012);
    let reads = std::mem::take(&mut *f.reads.lock().unwrap());
    assert!(reads[0] < 256 && reads[1] == 1, "{reads:?}");
}

#[test]
fn a_write_that_moves_keys_finds_each_document_once() {
    let f = by_k();
    f.scatter(2000);
    let modified = f.update(&doc! { "k": { "$gte": 0 } }, &doc! { "$inc": { "k": 1000 } });
    assert_eq!(modified, 2000);
    let ids = f.rest(&mut f.executor(&doc! { "k": { "$gte": 1000, "$lt": 3000 } }, false, 0));
    assert_eq!(ids, (0..2000).collect::<Vec<_>>());
}

#[test]
fn a_batch_that_is_full_soon_does_not_take_long() {
    let f = by_k();
    f.scatter(1500);
    let takes_long = |filter: &Document, batch: Option<usize>| {
        let mut executor = f.executor(filter, false, 0);
        batch.into_iter().for_each(|batch| executor.expect(batch));
        executor.may_take_long()
    };
    let range = doc! { "k": { "$gte": 0, "$lt": 1000 } };
    assert!(takes_long(&range, None));
    assert!(!takes_long(&range, Some(101)));
    assert!(takes_long(&range, Some(5000)));
    let rejecting = doc! { "k": { "$gte": 0, "$lt": 1000 }, "other": 1 };
    assert!(takes_long(&rejecting, Some(101)), "nobody knows how many documents it rejects");
}
