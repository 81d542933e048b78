//! No client can make the process exceed its memory limit.

use std::io::Write;
use std::time::Duration;

use mayfly_base::testing::wait_until;
use mayfly_value::RawValue;
use mayfly_value::bson::{Document, doc};

use crate::common::{Connection, Server, message};

/// Number of clients that request 15 MB and do not read the reply.
const UNREAD: usize = 100;
/// The memory limit of the process, in megabytes.
const LIMIT: usize = 300;
/// Free memory that allocators retain, and memory that is allocated between two checks.
const BESIDE: usize = 350;

fn start(folder: &std::path::Path) -> Server {
    let limit = format!("memoryLimitMB={LIMIT}");
    Server::start_with(folder, &["--cacheSizeGB", "0.1", "--setParameter", &limit])
}

/// The peak memory of the process, in megabytes.
fn most_memory(server: &Server) -> usize {
    let status = std::fs::read_to_string(format!("/proc/{}/status", server.child.id())).unwrap();
    let line = status.lines().find(|line| line.starts_with("VmHWM:")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse::<usize>().unwrap() / 1024
}

fn insert(client: &mut Connection, collection: &str, documents: Vec<Document>) {
    client.ok(&doc! { "insert": collection, "documents": documents, "$db": "m" });
}

fn code(client: &mut Connection, command: &Document) -> Option<i32> {
    let reply = client.run(command).unwrap();
    match reply.as_doc().get("code") {
        Some(RawValue::Int32(code)) => Some(code),
        _ => None,
    }
}

fn heap(client: &mut Connection, field: &str) -> i64 {
    let reply = client.ok(&doc! { "serverStatus": 1, "$db": "admin" });
    let heap = reply.as_doc().get("mem").and_then(RawValue::as_document).unwrap();
    let heap = heap.get("heap").and_then(RawValue::as_document).unwrap();
    match heap.get(field) {
        Some(RawValue::Int64(value)) => value,
        other => panic!("{field} is {other:?}"),
    }
}

#[test]
#[cfg(target_os = "linux")]
fn operations_end_before_the_process_does() {
    let folder = tempfile::tempdir().unwrap();
    let server = start(folder.path());
    let mut client = server.connect();
    let text = "x".repeat(1000);
    insert(&mut client, "c", (0..1500).map(|n| doc! { "_id": n, "s": &text }).collect());
    // Each branch is far below every limit of its own.
    let facets: Document = (0..500)
        .map(|n| (format!("f{n}"), doc! { "$group": { "_id": null, "a": { "$push": "$s" } } }))
        .map(|(name, group)| {
            (name, vec![group, doc! { "$project": { "n": { "$size": "$a" } } }].into())
        })
        .collect();
    let facet =
        doc! { "aggregate": "c", "pipeline": [{ "$facet": facets }], "cursor": {}, "$db": "m" };
    assert_eq!(code(&mut client, &facet), Some(146));
    // Idle cursors that may not spill and hold their sorted results.
    let sorted = doc! {
        "aggregate": "c", "pipeline": [{ "$sort": { "s": 1, "_id": 1 } }, { "$set": { "q": 1 } }],
        "cursor": { "batchSize": 1 }, "allowDiskUse": false, "$db": "m"
    };
    for _ in 0..250 {
        let refused = code(&mut client, &sorted);
        assert!(matches!(refused, None | Some(146)), "{refused:?}");
    }
    assert!(heap(&mut client, "closedCursors") > 0);
    assert!(heap(&mut client, "cursorBytes") > 0);
    // A transaction that does not end.
    let lsid = doc! { "id": mayfly_value::bson::Binary {
        subtype: mayfly_value::bson::spec::BinarySubtype::Uuid, bytes: vec![7; 16],
    } };
    let large = "t".repeat(1 << 20);
    let refused = (0..500).find_map(|n| {
        let mut insert = doc! {
            "insert": "t", "documents": [{ "_id": n, "s": &large }], "lsid": lsid.clone(), "txnNumber": 1i64,
            "autocommit": false, "$db": "m"
        };
        if n == 0 {
            insert.insert("startTransaction", true);
        }
        code(&mut client, &insert)
    });
    assert!(refused.is_some());
    assert!(heap(&mut client, "refusedOperations") >= 2);
    let most = most_memory(&server);
    assert!(most < LIMIT + BESIDE, "{most} MB");
    assert_eq!(client.all(&doc! { "find": "c", "filter": { "_id": 3 }, "$db": "m" }).len(), 1);
}

#[test]
#[cfg(target_os = "linux")]
fn messages_under_way_have_a_limit() {
    let folder = tempfile::tempdir().unwrap();
    let server = start(folder.path());
    let mut client = server.connect();
    let text = "x".repeat(1 << 20);
    for n in 0..15 {
        insert(&mut client, "big", vec![doc! { "_id": n, "s": &text }]);
    }
    // Replies of 15 MB that clients do not read.
    let find = message(&doc! { "find": "big", "$db": "m" });
    let mut unread: Vec<_> = (0..UNREAD).map(|_| server.connect()).collect();
    for one in &mut unread {
        one.stream.write_all(&find).unwrap();
    }
    wait_until("replies are put into files", || server_files(&server) >= 3);
    client.ok(&doc! { "ping": 1, "$db": "admin" });
    // Replies in files arrive completely; other clients got an error for lack of memory.
    let mut whole = 0;
    for one in &mut unread {
        let reply = one.read_reply().unwrap();
        match reply.as_doc().get("code") {
            None => whole += usize::from(reply.as_doc().as_bytes().len() > 15 << 20),
            Some(code) => assert_eq!(code, RawValue::Int32(146)),
        }
    }
    assert!(whole >= 3, "{whole}");
    drop(unread);
    // Halves of large requests.
    let mut half = Vec::new();
    for word in [40_000_000, 1, 0, 2013, 0] {
        half.extend_from_slice(&i32::to_le_bytes(word));
    }
    half.resize(8 << 20, 0);
    let mut halves: Vec<_> = (0..40).map(|_| server.connect()).collect();
    for one in &mut halves {
        one.stream.set_write_timeout(Some(Duration::from_millis(50))).unwrap();
        // Requests that wait for memory are not read.
        let _ = one.stream.write_all(&half);
    }
    client.ok(&doc! { "ping": 1, "$db": "admin" });
    insert(&mut client, "c", vec![doc! { "s": "small" }]);
    // Stalled requests are closed, and a complete one is executed.
    insert(&mut client, "c", vec![doc! { "s": "y".repeat(14 << 20) }]);
    let most = most_memory(&server);
    assert!(most < LIMIT + BESIDE, "{most} MB");
    assert!(heap(&mut client, "closedConnections") > 0);
}

/// Files without names that the server has open.
fn server_files(server: &Server) -> usize {
    let files = std::fs::read_dir(format!("/proc/{}/fd", server.child.id())).unwrap();
    files
        .filter_map(|file| std::fs::read_link(file.ok()?.path()).ok())
        .filter(|path| path.to_string_lossy().ends_with(" (deleted)"))
        .count()
}
