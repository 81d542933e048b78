//! The real binary with a data folder that was written in the future: its clock cannot be moved,
//! but that of the previous server can.

use mayfly_storage::ReadView;
use std::sync::Arc;

use mayfly_base::testing::wait_until;
use mayfly_base::{Clock, ManualClock, Namespace, SystemClock};
use mayfly_kv_rocksdb::{RocksEngine, RocksOptions};
use mayfly_storage::{CreateIndexesOptions, Store, StoreOptions};
use mayfly_value::bson::{Bson, DateTime, doc};
use mayfly_value::{DocBuf, RawValue};
use mayfly_work::{OpCtx, OpRegistry};
use tempfile::TempDir;

use crate::common::{Connection, Server};
use crate::expiry::EVERY_SECOND;

const DAY_MS: i64 = 86_400_000;

/// A folder with a document that is due, written by a server whose clock was a day ahead.
fn folder_of_tomorrow() -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    let clock = Arc::new(ManualClock::at_ms(SystemClock::new().now_ms() + DAY_MS));
    let engine = RocksEngine::open(folder.path(), RocksOptions::default()).unwrap();
    let options = StoreOptions { background: false, ..StoreOptions::default() };
    let store =
        Store::open(engine, options, clock.clone(), OpRegistry::new(clock.clone())).unwrap();
    let (op, ns) = (OpCtx::detached(clock), Namespace::parse("test.c").unwrap());
    let index = doc! { "key": { "at": 1 }, "name": "at_1", "expireAfterSeconds": 0 };
    let index = DocBuf::from_bson(&index);
    store
        .create_indexes(
            (&op, &ReadView::now()),
            &ns,
            &[index.as_doc()],
            CreateIndexesOptions::default(),
        )
        .unwrap();
    let at = Bson::DateTime(DateTime::from_millis(0));
    let document = DocBuf::from_bson(&doc! { "_id": 1, "at": at });
    let collection = store.collection(&ReadView::now(), &ns).unwrap();
    store.write(&op, &ReadView::now(), &collection, |unit| unit.insert(document.as_doc())).unwrap();
    store.close().unwrap();
    folder
}

/// A member of `serverStatus().ttl`.
fn status(client: &mut Connection, name: &str) -> Bson {
    let status = client.ok(&doc! { "serverStatus": 1, "$db": "admin" });
    let ttl = status.as_doc().get("ttl").and_then(RawValue::as_document).unwrap();
    match ttl.get(name) {
        Some(RawValue::Bool(flag)) => Bson::Boolean(flag),
        Some(RawValue::Int64(number)) => Bson::Int64(number),
        Some(RawValue::String(text)) => Bson::String(text.to_owned()),
        other => panic!("{name}: {other:?}"),
    }
}

fn stored(client: &mut Connection) -> usize {
    client.all(&doc! { "find": "c", "$db": "test" }).len()
}

#[test]
fn a_folder_of_tomorrow_loses_nothing_until_the_command() {
    let folder = folder_of_tomorrow();
    let server = Server::start_with(folder.path(), EVERY_SECOND);
    let mut client = server.connect();
    wait_until("two passes", || matches!(status(&mut client, "suspendedPasses"), Bson::Int64(2..)));
    assert_eq!(status(&mut client, "reason"), Bson::String("clockBehindData".into()));
    let warnings = client.ok(&doc! { "getLog": "startupWarnings", "$db": "admin" });
    let warnings = format!("{:?}", warnings.as_doc().get("log"));
    assert!(warnings.contains("ttlResume"), "{warnings}");
    assert_eq!(stored(&mut client), 1);
    drop(server);

    let server = Server::start_with(folder.path(), EVERY_SECOND);
    let mut client = server.connect();
    assert_eq!(status(&mut client, "suspended"), Bson::Boolean(true));
    let reply = client.ok(&doc! { "ttlResume": 1, "$db": "admin" });
    assert_eq!(reply.as_doc().get("wasSuspended"), Some(RawValue::Bool(true)));
    wait_until("it goes", || stored(&mut client) == 0);
    drop(server);

    let server = Server::start_with(folder.path(), EVERY_SECOND);
    assert_eq!(status(&mut server.connect(), "suspended"), Bson::Boolean(false));
}

#[test]
fn without_a_limit_every_clock_is_trusted() {
    let folder = folder_of_tomorrow();
    let no_limit = ["--setParameter", "ttlClockJumpLimitSecs=0"];
    let server = Server::start_with(folder.path(), &[EVERY_SECOND, &no_limit].concat());
    let mut client = server.connect();
    wait_until("it goes", || stored(&mut client) == 0);
    assert_eq!(status(&mut client, "suspended"), Bson::Boolean(false));
}
