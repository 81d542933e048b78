//! Replays that are opened a second time, or from a copy that was taken within an index build.

use mayfly_kv::EngineWrapper;
use mayfly_value::bson::{DateTime, Document, doc};

use super::tests::{filters, shown};
use super::*;
use crate::testing::{self, NOW, fixture, ns};

/// An engine that can be used after it was closed.
struct Lasting(Arc<dyn Engine>);

impl EngineWrapper for Lasting {
    fn inner(&self) -> &dyn Engine {
        &*self.0
    }

    fn close(&self) -> mayfly_kv::KvResult<()> {
        Ok(())
    }
}

#[test]
fn a_finished_replay_can_be_run_again() {
    let engine: Arc<dyn Engine> = Arc::new(Lasting(testing::memory()));
    let f = testing::open(engine.clone(), testing::clock());
    f.insert("d.c", &doc! { "_id": 1 }).unwrap();
    let uuid = f.store.collection(&ReadView::now(), &ns("d.c")).unwrap().uuid();
    let uuid = mayfly_value::bson::Uuid::from_bytes(uuid);
    drop(f);
    let entry = |increment, op, object: Document| {
        let ts = mayfly_value::bson::Timestamp { time: u32::MAX / 2, increment };
        DocBuf::from_bson(
            &doc! { "op": op, "ns": "d.c", "ui": uuid, "o": object, "o2": { "_id": 1 }, "ts": ts },
        )
    };
    let entries = [
        entry(1, "u", doc! { "$v": 2, "diff": { "u": { "a": 1 } } }),
        entry(2, "d", doc! { "_id": 1 }),
    ];
    for _ in 0..2 {
        let mut replay = Replay::open(engine.clone(), filters()).unwrap();
        entries.iter().for_each(|entry| replay.apply(entry.as_doc()).unwrap());
        replay.finish().unwrap();
    }
}

#[test]
fn a_copy_from_the_middle_of_an_index_build_misses_no_entry() {
    let f = fixture();
    f.insert("d.c", &doc! { "_id": 1, "a": 1 }).unwrap();
    let collection = f.store.collection(&ReadView::now(), &ns("d.c")).unwrap();
    let spec = DocBuf::from_bson(&doc! { "v": 2, "key": { "a": 1 }, "name": "a_1" });
    let spec = crate::IndexSpec::from_catalog(spec).unwrap();
    let begun = f.store.register_building(&collection, vec![spec]).unwrap();
    assert!(!begun[0].is_ready());
    // The copy is the engine as it is now, without the end of the build.
    let next = f.store.oplog().settled() + 1;
    let mut replay = Replay::open(f.engine.clone(), filters()).unwrap();
    let entry = doc! {
        "op": "i", "ns": "d.c", "ui": mayfly_value::bson::Uuid::from_bytes(collection.uuid()),
        "o": { "_id": 2, "a": 2 }, "wall": DateTime::from_millis(NOW),
        "ts": mayfly_value::bson::Timestamp { time: (next >> 32) as u32, increment: next as u32 },
    };
    replay.apply(DocBuf::from_bson(&entry).as_doc()).unwrap();
    assert_eq!(replay.position(), next);
    let (_, _, indexes, documents) = &shown(replay.store())[&collection.uuid()];
    assert_eq!((indexes.len(), documents.len()), (1, 2), "only `_id_` is left");
}
