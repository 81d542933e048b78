//! A count by an index alone equals the number of matching documents, for values of all types.

use mayfly_query::{CanonicalQuery, Executor, FindOptions, Flow, Metadata, Plan};
use mayfly_storage::ReadView;
use mayfly_storage::StoreSession;
use mayfly_value::DocBuf;
use mayfly_value::bson::{Bson, Document, doc, oid::ObjectId};

use crate::fixture::Fixture;

/// Documents with values of every type under `k`, and an index on it.
fn fixture(index: &Document, with_arrays: bool) -> Fixture {
    let fixture = Fixture::new(&[doc! { "key": index, "name": "i" }]);
    let mut values = operands();
    values.extend([
        Bson::Null,
        Bson::MinKey,
        Bson::MaxKey,
        doc! { "a": 1 }.into(),
        Bson::Undefined,
    ]);
    values.push(Bson::Symbol("b".into()));
    if with_arrays {
        values.push(vec![1, 5, 7].into());
        values.push(Bson::Array(Vec::new()));
    }
    for n in 0..200_i32 {
        let mut document = doc! { "_id": n, "other": n % 3 };
        if let Some(value) = values.get(n as usize % (values.len() + 1)) {
            document.insert("k", value.clone());
        }
        fixture.insert(&document);
    }
    fixture
}

fn operands() -> Vec<Bson> {
    let date = mayfly_value::bson::DateTime::from_millis(5);
    vec![
        Bson::Int32(5),
        Bson::Int64(5),
        Bson::Double(5.0),
        Bson::Double(f64::NAN),
        Bson::Double(f64::NEG_INFINITY),
        Bson::Double(-0.0),
        Bson::Int32(0),
        Bson::Int64(i64::MAX),
        Bson::Double(i64::MAX as f64),
        "b".into(),
        "".into(),
        true.into(),
        false.into(),
        date.into(),
        ObjectId::from_bytes([7; 12]).into(),
    ]
}

impl Fixture {
    /// The count, and whether documents were read for it.
    fn count(&self, filter: &Document, keys_only: bool) -> (usize, bool) {
        let filter = DocBuf::from_bson(filter);
        let query = CanonicalQuery::parse(filter.as_doc(), FindOptions::default()).unwrap();
        let mut executor = Executor::new(&ReadView::now(), self.collection.clone(), query).unwrap();
        if keys_only {
            executor.count_only();
        }
        let by_index = matches!(executor.plan().source(), Plan::Index(_));
        let before = self.op.docs_examined.load(std::sync::atomic::Ordering::Relaxed);
        let mut count = 0;
        while !executor.is_done() {
            let mut sink = |_: &[u8], _: mayfly_value::RawDoc<'_>, _: &Metadata| {
                count += 1;
                Ok(Flow::More)
            };
            executor
                .run(StoreSession::new(&self.store, &self.op, &ReadView::now()), &mut sink)
                .unwrap();
        }
        let after = self.op.docs_examined.load(std::sync::atomic::Ordering::Relaxed);
        (count, after > before || !by_index)
    }

    fn check_count(&self, filter: &Document) {
        let counted = self.count(filter, true).0;
        assert_eq!(counted, self.count(filter, false).0, "{filter}");
    }
}

#[test]
fn keys_alone_count_what_documents_would() {
    for index in [doc! { "k": 1 }, doc! { "k": -1 }, doc! { "k": 1, "other": -1 }] {
        for with_arrays in [false, true] {
            let fixture = fixture(&index, with_arrays);
            for low in operands() {
                for op in ["$eq", "$gt", "$gte", "$lt", "$lte", "$in"] {
                    let value = if op == "$in" {
                        vec![low.clone(), true.into()].into()
                    } else {
                        low.clone()
                    };
                    let value: Bson = value;
                    fixture.check_count(&doc! { "k": { op: value.clone() } });
                    fixture.check_count(&doc! { "k": { op: value.clone() }, "other": 1 });
                    fixture.check_count(&doc! { "k": { op: value.clone() }, "_id": { "$gt": 50 } });
                    for high in operands() {
                        fixture.check_count(&doc! { "k": { op: value.clone(), "$lt": high } });
                    }
                }
            }
            fixture.check_count(&doc! { "k": Bson::Null });
            fixture.check_count(&doc! { "k": { "$gte": 0, "$exists": true } });
            fixture
                .check_count(&doc! { "k": { "$gte": 0 }, "$or": [{ "other": 1 }, { "other": 2 }] });
        }
    }
}

#[test]
fn no_document_is_read_where_keys_say_all() {
    let plain = fixture(&doc! { "k": 1 }, false);
    assert!(!plain.count(&doc! { "k": { "$gte": 0, "$lt": 10 } }, true).1);
    assert!(!plain.count(&doc! { "k": "b" }, true).1);
    assert!(plain.count(&doc! { "k": { "$gte": 0 }, "other": 1 }, true).1);
    assert!(!plain.count(&doc! { "k": { "$lt": 10 } }, true).1, "the key of NaN lies outside");
    let arrays = fixture(&doc! { "k": 1 }, true);
    assert!(!arrays.count(&doc! { "k": 5 }, true).1, "many keys of a document count once");
    let two = doc! { "k": { "$gte": 0, "$lt": 10 } };
    assert!(arrays.count(&two, true).1, "two items may hold for one condition each");
}
