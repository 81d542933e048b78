//! Figures that only a server with a folder has: the disk, the write-ahead log, sizes before anything was flushed.

use crate::common::{Connection, Server};
use mayfly_value::bson::{Document, doc};

fn found(client: &mut Connection, command: &Document) -> Document {
    let reply = client.ok(command);
    Document::from_reader(reply.as_bytes()).unwrap()
}

fn size_of(client: &mut Connection, db: &str) -> i64 {
    let databases = found(client, &doc! { "listDatabases": 1, "$db": "admin" });
    let databases = databases.get_array("databases").unwrap();
    let mut databases = databases.iter().map(|database| database.as_document().unwrap());
    databases.find(|it| it.get_str("name").ok() == Some(db)).unwrap().get_i64("sizeOnDisk").unwrap()
}

#[test]
fn sizes_are_there_from_the_first_write() {
    // The folder is the default, `./data`.
    let folder = tempfile::tempdir().unwrap();
    let mut command = std::process::Command::new("sh");
    let enter = format!("cd '{}' && exec \"$@\"", folder.path().display());
    command.args(["-c", &enter, "sh", env!("CARGO_BIN_EXE_mayflydb")]);
    let server = Server::start_in_default_folder(command, &[]);
    let mut client = server.connect();
    let documents: Vec<_> = (0..100).map(|id| doc! { "_id": id, "t": "x".repeat(100) }).collect();
    client.ok(&doc! { "insert": "c", "documents": documents, "$db": "test" });
    assert!(size_of(&mut client, "test") > 10_000);
    assert!(size_of(&mut client, "local") > 0);
    let stats = found(&mut client, &doc! { "dbStats": 1, "$db": "test" });
    let disk = |name: &str| stats.get_f64(name).unwrap();
    assert!(disk("fsUsedSize") > 0.0 && disk("fsTotalSize") >= disk("fsUsedSize"), "{stats}");
    let stats = found(&mut client, &doc! { "dbStats": 1, "$db": "local" });
    assert!(stats.get_i64("objects").unwrap() > 0 && stats.get_f64("storageSize").unwrap() > 0.0);
    let status = found(&mut client, &doc! { "serverStatus": 1, "$db": "admin" });
    let engine = status.get_document("storageEngine").unwrap();
    assert!(engine.get_i64("writeAheadLogBytes").unwrap() > 0, "{engine}");
    // What is deleted while the log refers to it is kept for change streams.
    client.ok(&doc! { "delete": "c", "deletes": [{ "q": {}, "limit": 0 }], "$db": "test" });
    client.ok(&doc! { "fsync": 1, "$db": "admin" });
    client.ok(&doc! { "compact": "c", "$db": "test" });
    let status = found(&mut client, &doc! { "serverStatus": 1, "$db": "admin" });
    let engine = status.get_document("storageEngine").unwrap();
    assert!(engine.get_i64("keptVersionBytes").is_ok(), "{engine}");
}
