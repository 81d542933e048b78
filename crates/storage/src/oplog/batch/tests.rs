//! Entries as they are stored, and as readers see them.

use std::ops::ControlFlow;
use std::sync::atomic::AtomicU64;

use mayfly_kv::{Engine, MemoryEngine, TxnOptions};
use mayfly_value::bson::{Document, doc, oid::ObjectId};

use super::*;
use crate::oplog::resolve::Resolver;
use crate::oplog::{LogEntry, decode};

/// Shows an entry to `see`, as readers of the log get it.
fn show<T>(entry: &StoredEntry, see: impl FnOnce(&LogEntry<'_>) -> T) -> T {
    let (engine, cut) = (MemoryEngine::new(), AtomicU64::new(0));
    let txn = engine.begin(TxnOptions::READ_ONLY).unwrap();
    let resolver = Resolver::new(&engine, &*txn, &cut);
    see(&LogEntry::new(1, decode(entry.value()).unwrap(), &resolver))
}

fn whole(entry: &StoredEntry) -> DocBuf {
    show(entry, |entry| entry.whole().unwrap().into_owned())
}

fn bson(document: RawDoc<'_>) -> Document {
    Document::from_reader(document.as_bytes()).unwrap()
}

#[test]
fn deletions_of_a_unit_are_one_item() {
    let by = Some(ExpiredBy { index: "at_1", expire_after_secs: 60 });
    let object = LoggedObject { ns: "shop.carts", uuid: [1; 16] };
    let id = |number: u8| ObjectId::from_bytes([7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, number]);
    let entry = |count: u8| {
        let mut batch = OplogBatch::new();
        for number in 0..count {
            batch.delete(object, RawValue::ObjectId(id(number).bytes()), by, None);
        }
        batch.finish(0)
    };
    let ui = mayfly_value::bson::Binary {
        subtype: mayfly_value::bson::spec::BinarySubtype::Uuid,
        bytes: vec![1; 16],
    };
    let ttl = doc! { "index": "at_1", "expireAfterSeconds": 60 };
    let shown = |number: u8| {
        doc! {
            "op": "d", "ns": "shop.carts", "ui": ui.clone(), "o": { "_id": id(number) },
            "ttl": ttl.clone(),
        }
    };
    let one = bson(whole(&entry(1)).as_doc());
    assert_eq!(one.iter().take(5).collect::<Vec<_>>(), shown(0).iter().collect::<Vec<_>>());
    let (two, many) = (entry(2), entry(200));
    let items = bson(whole(&many).as_doc());
    let items = items.get_document("o").unwrap().get_array("applyOps").unwrap();
    let expected: Vec<_> = (0..200).map(|number| shown(number).into()).collect();
    assert_eq!(*items, expected);
    assert_eq!(whole(&many).as_bytes().len() as u64, many.logical_bytes());
    // Each further deletion takes three bytes in the log, here the last byte of its id.
    assert_eq!(many.value().len() - two.value().len(), 198 * 3);
    let mut seen = Vec::new();
    show(&many, |entry| {
        entry
            .operations(&mut |operation| {
                assert_eq!(operation.get("ns"), Some(RawValue::String("shop.carts")));
                let object = bson(operation.object()?.as_doc());
                assert_eq!(
                    operation.get("o").unwrap().as_document().map(bson),
                    Some(object.clone())
                );
                seen.push(object.get_object_id("_id").unwrap());
                Ok(if seen.len() < 7 { ControlFlow::Continue(()) } else { ControlFlow::Break(()) })
            })
            .unwrap();
    });
    assert_eq!(seen, (0..7).map(id).collect::<Vec<_>>());
}

#[test]
fn operations_that_follow_each_other_say_whose_they_are() {
    let expired = |index, expire_after_secs| Some(ExpiredBy { index, expire_after_secs });
    let names = [("d.a", [1; 16]), ("d.b", [1; 16]), ("d.a", [2; 16]), ("d.$cmd", [0; 16])];
    let reasons = [None, expired("x_1", 5), expired("x_1", 6), expired("y_1", 5)];
    let note = DocBuf::from_bson(&doc! { "create": "c" });
    let mut steps = Vec::new();
    for _ in 0..200 {
        let of = rand::random_range(0..names.len());
        let by = rand::random_range(0..reasons.len());
        // A deletion always has a collection.
        let delete = names[of].1 != [0; 16] && rand::random_range(0..4) > 0;
        steps.extend(vec![(of, by, delete); rand::random_range(1..5)]);
    }
    let mut batch = OplogBatch::new();
    for (of, by, delete) in &steps {
        let (ns, uuid) = names[*of];
        match delete {
            true => {
                batch.delete(LoggedObject { ns, uuid }, RawValue::Int32(7), reasons[*by], None);
            }
            false => batch.command(LoggedCommand::new(ns, uuid, note.as_doc())),
        }
    }
    let entry = batch.finish(0);
    let whole = whole(&entry);
    assert_eq!(whole.as_bytes().len() as u64, entry.logical_bytes());
    let items = whole.as_doc().get("o").and_then(RawValue::as_document).unwrap();
    let items = items.get("applyOps").and_then(RawValue::as_array).unwrap();
    assert_eq!(items.iter().count(), steps.len());
    for (item, (of, by, delete)) in items.iter().zip(steps) {
        let ((ns, uuid), reason) = (names[of], reasons[by].filter(|_| delete));
        let mut alone = DocBuilder::new();
        begin_operation(&mut alone, if delete { "d" } else { "c" }, LoggedObject { ns, uuid });
        match delete {
            true => alone.start_document("o").append("_id", 7).end(),
            false => alone.append("o", note.as_doc()),
        };
        if let Some(expired) = reason {
            alone.append_all(expired.shown().2.as_doc());
        }
        assert_eq!(item.value().as_document(), Some(alone.finish().as_doc()));
    }
}
