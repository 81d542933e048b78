//! Clients that request large replies and read nothing do not stall others: an operation ends, and
//! returns its turn, before its reply is sent.

use std::io::Write;
use std::time::Duration;

use mayfly_base::testing::wait_until;
use mayfly_value::RawValue;
use mayfly_value::bson::{Document, doc};

use crate::common::{Connection, Server, message};

/// Number of clients that read nothing. The scheduler has far fewer turns.
const UNREAD: usize = 200;
/// The memory limit of the process, in megabytes. All replies together are five times as large.
const LIMIT: usize = 300;
/// Free memory that allocators retain, and memory that is allocated between two checks.
const BESIDE: usize = 500;

/// The peak memory of the process, in megabytes.
fn most_memory(server: &Server) -> usize {
    let status = std::fs::read_to_string(format!("/proc/{}/status", server.child.id())).unwrap();
    let line = status.lines().find(|line| line.starts_with("VmHWM:")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse::<usize>().unwrap() / 1024
}

fn running(client: &mut Connection) -> i32 {
    let reply = client.ok(&doc! { "serverStatus": 1, "$db": "admin" });
    let connections = reply.as_doc().get("connections").and_then(RawValue::as_document).unwrap();
    match connections.get("active") {
        Some(RawValue::Int32(running)) => running,
        other => panic!("connections.active is {other:?}"),
    }
}

#[test]
#[cfg(target_os = "linux")]
fn clients_that_do_not_read_stall_no_others() {
    let folder = tempfile::tempdir().unwrap();
    let limit = format!("memoryLimitMB={LIMIT}");
    let options = ["--cacheSizeGB", "0.1", "--setParameter", &limit];
    let server = Server::start_with(folder.path(), &options);
    let mut client = server.connect();
    let text = "x".repeat(1 << 20);
    // A reply of 8 MB is larger than the buffers of a connection.
    for n in 0..8 {
        let documents = vec![doc! { "_id": n, "s": &text }];
        client.ok(&doc! { "insert": "big", "documents": documents, "$db": "m" });
    }
    let documents: Vec<Document> = (0..100).map(|n| doc! { "_id": n, "g": n % 10 }).collect();
    client.ok(&doc! { "insert": "small", "documents": documents, "$db": "m" });
    let find = message(&doc! { "find": "big", "$db": "m" });
    // Commands that may be long get a first turn before they start.
    let pipeline = vec![doc! { "$match": { "_id": { "$gte": 0 } } }];
    let aggregate =
        message(&doc! { "aggregate": "big", "pipeline": pipeline, "cursor": {}, "$db": "m" });
    let mut unread: Vec<_> = (0..UNREAD).map(|_| server.connect()).collect();
    for (number, one) in unread.iter_mut().enumerate() {
        one.stream.write_all(if number % 2 == 0 { &find } else { &aggregate }).unwrap();
    }
    // Every operation ends, although no client reads.
    for one in &unread {
        one.stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
        assert!(one.stream.peek(&mut [0; 16]).unwrap() > 0);
    }
    wait_until("the operations have ended", || running(&mut client) < 20);
    client.ok(&doc! { "ping": 1, "$db": "admin" });
    assert_eq!(client.all(&doc! { "find": "small", "$db": "m" }).len(), 100);
    let groups = doc! {
        "aggregate": "small", "pipeline": [{ "$group": { "_id": "$g" } }], "cursor": {}, "$db": "m"
    };
    assert_eq!(client.all(&groups).len(), 10);
    let most = most_memory(&server);
    assert!(most < LIMIT + BESIDE, "{most} MB");
    // Nothing was read before: the replies that arrive now are complete.
    let mut whole = 0;
    for one in &mut unread {
        let reply = one.read_reply().unwrap();
        match reply.as_doc().get("code") {
            None => whole += usize::from(reply.as_doc().as_bytes().len() > 8 << 20),
            Some(code) => assert_eq!(code, RawValue::Int32(146)),
        }
    }
    assert!(whole >= 3, "{whole}");
}
