//! The operation log frees its space when it is resized. Recovery from a full disk is tested on
//! real file systems, by the step `disk` of the torture program.

use mayfly_base::testing::wait_until;
use mayfly_value::RawValue;
use mayfly_value::bson::{Binary, Document, doc, spec::BinarySubtype};
use rand::RngCore;

use crate::common::{Connection, Server};

/// The bytes that the log and the documents kept for it use in the engine.
fn stored(client: &mut Connection) -> i64 {
    let reply = client.ok(&doc! { "collStats": "oplog.rs", "$db": "local" });
    match reply.as_doc().get("storageSize") {
        Some(RawValue::Int32(bytes)) => i64::from(bytes),
        Some(RawValue::Int64(bytes)) => bytes,
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_smaller_log_gives_its_space_back_within_a_minute() {
    const BATCHES: i64 = 40;
    let folder = tempfile::tempdir().unwrap();
    let server = Server::start(folder.path());
    let mut client = server.connect();
    for batch in 0..BATCHES {
        let documents: Vec<Document> = (0..100)
            .map(|n| {
                let mut bytes = vec![0; 10_000];
                rand::rng().fill_bytes(&mut bytes);
                let bytes = Binary { subtype: BinarySubtype::Generic, bytes };
                doc! { "_id": batch * 100 + n, "bytes": bytes }
            })
            .collect();
        client.ok(&doc! { "insert": "c", "documents": documents, "$db": "log" });
    }
    // Each of them is kept for the log.
    client.ok(&doc! { "delete": "c", "deletes": [{ "q": {}, "limit": 0 }], "$db": "log" });
    // Data in memtables is not counted.
    client.ok(&doc! { "fsync": 1, "$db": "admin" });
    client.ok(&doc! { "replSetResizeOplog": 1, "size": 1.0, "$db": "admin" });
    let folder_bytes = || {
        let files = std::fs::read_dir(folder.path()).unwrap().flatten();
        let tables = files.filter(|file| file.path().extension().is_some_and(|it| it == "sst"));
        tables.map(|file| file.metadata().map_or(0, |it| it.len())).sum::<u64>()
    };
    // Uses real time, because that is the guarantee.
    wait_until("log and tables are small", || {
        stored(&mut client) <= 2 << 20 && folder_bytes() <= 60 << 20
    });
}
