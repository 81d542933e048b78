//! Copies of the data folder that another program makes while `fsync` holds its lock: under load no
//! file changes, and each copy opens with exactly the data of the moment.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, SystemTime};

use mayfly_value::RawValue;
use mayfly_value::bson::{DateTime, Document, doc};

use crate::common::{Connection, Server};

/// Copies in one run.
const ROUNDS: u32 = 3;
const WRITERS: u32 = 4;
/// The time that each round writes before the lock.
const LOAD: Duration = Duration::from_millis(700);

/// Size and time of change of every file.
fn files(folder: &Path) -> BTreeMap<String, (u64, SystemTime)> {
    let mut found = BTreeMap::new();
    for entry in std::fs::read_dir(folder).unwrap() {
        let entry = entry.unwrap();
        let name = entry.file_name().into_string().unwrap();
        let about = entry.metadata().unwrap();
        if about.is_dir() {
            let inner = files(&entry.path()).into_iter();
            found.extend(inner.map(|(file, about)| (format!("{name}/{file}"), about)));
        } else {
            found.insert(name, (about.len(), about.modified().unwrap()));
        }
    }
    found
}

fn hash(client: &mut Connection) -> String {
    let reply = client.ok(&doc! { "dbHash": 1, "$db": "copied" });
    match reply.as_doc().get("md5") {
        Some(RawValue::String(text)) => text.to_owned(),
        other => panic!("md5 is {other:?}"),
    }
}

/// Inserts, updates, deletions, and documents that expire at once, until the end.
fn write(mut client: Connection, writer: u32, ended: &AtomicBool) {
    let text = "t".repeat(2000);
    for round in 0.. {
        if ended.load(Ordering::Relaxed) {
            return;
        }
        let documents: Vec<Document> = (0..200)
            .map(|n| {
                let at = DateTime::from_system_time(SystemTime::now());
                doc! { "w": writer, "n": round * 200 + n, "s": &text, "at": at }
            })
            .collect();
        client.ok(&doc! { "insert": "kept", "documents": documents.clone(), "$db": "copied" });
        client.ok(&doc! { "insert": "expiring", "documents": documents, "$db": "copied" });
        let q = doc! { "w": writer, "n": { "$lt": round * 100 } };
        client.ok(&doc! { "delete": "kept", "deletes": [{ "q": q, "limit": 0 }], "$db": "copied" });
    }
}

#[test]
fn a_copy_of_the_folder_is_the_moment_of_the_lock() {
    let folder = tempfile::tempdir().unwrap();
    let arguments = ["--setParameter", "ttlMonitorSleepSecs=1", "--oplogSize", "4"];
    let server = Server::start_with(folder.path(), &arguments);
    let mut client = server.connect();
    let at = doc! { "key": { "at": 1 }, "name": "at", "expireAfterSeconds": 1 };
    client.ok(&doc! { "createIndexes": "expiring", "indexes": [at], "$db": "copied" });
    let by = doc! { "key": { "w": 1, "n": 1 }, "name": "by" };
    client.ok(&doc! { "createIndexes": "kept", "indexes": [by], "$db": "copied" });
    let ended = AtomicBool::new(false);
    let (server, ended) = (&server, &ended);
    std::thread::scope(|threads| {
        for writer in 0..WRITERS {
            let connection = server.connect();
            threads.spawn(move || write(connection, writer, ended));
        }
        for round in 0..ROUNDS {
            std::thread::sleep(LOAD);
            client.ok(&doc! { "fsync": 1, "lock": true, "$db": "admin" });
            let before = files(folder.path());
            let copy = tempfile::tempdir().unwrap();
            let to = copy.path().join("data");
            let copied = Command::new("cp").arg("-a").arg(folder.path()).arg(&to).status().unwrap();
            assert!(copied.success());
            // A scan that ends under the lock lets go of obsolete files.
            client.ok(&doc! { "count": "kept", "query": { "s": "x" }, "$db": "copied" });
            let expected = hash(&mut client);
            assert_eq!(files(folder.path()), before, "round {round}");
            client.ok(&doc! { "fsyncUnlock": 1, "$db": "admin" });
            let opened = Server::start_with(&to, &["--setParameter", "ttlMonitorEnabled=false"]);
            let mut reader = opened.connect();
            assert_eq!(hash(&mut reader), expected, "round {round}");
            let checked = reader.ok(&doc! { "validate": "kept", "full": true, "$db": "copied" });
            assert_eq!(checked.as_doc().get("valid"), Some(RawValue::Bool(true)));
        }
        ended.store(true, Ordering::Relaxed);
    });
}
