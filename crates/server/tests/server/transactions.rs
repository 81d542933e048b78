//! Multi-document transactions with concurrent writes: writers that wait for a transaction must not
//! keep it from ending.

use std::sync::Arc;
use std::time::{Duration, Instant};

use mayfly_base::SystemClock;
use mayfly_base::testing::wait_until;
use mayfly_server::{Running, StartOptions, start};
use mayfly_testkit::outside::TaskConnection;
use mayfly_value::bson::{Binary, Document, doc, spec::BinarySubtype};

use crate::connections::server;

/// More than the runtime has workers.
const WRITERS: i32 = 24;

/// The arguments of a statement of a session's transaction.
fn part(session: u8, number: i64, begins: bool) -> Document {
    let id = Binary { subtype: BinarySubtype::Uuid, bytes: vec![session; 16] };
    let mut part = doc! {"lsid": {"id": id}, "txnNumber": number, "autocommit": false};
    if begins {
        part.insert("startTransaction", true);
    }
    part
}

fn with(mut command: Document, part: Document) -> Document {
    command.extend(part);
    command
}

fn increment() -> Document {
    doc! {"update": "c", "updates": [{"q": {"_id": 1}, "u": {"$inc": {"n": 1}}}]}
}

fn int(reply: &Document, name: &str) -> i32 {
    reply.get_i32(name).unwrap_or(0)
}

async fn ok(client: &mut TaskConnection, command: Document) -> Document {
    let reply = client.run(command).await;
    let succeeded = reply.get_f64("ok").unwrap() == 1.0 && !reply.contains_key("writeErrors");
    assert!(succeeded, "{reply}");
    reply
}

async fn counted(client: &mut TaskConnection) -> i32 {
    let found = ok(client, doc! {"find": "c", "filter": {"_id": 1}}).await;
    let batch = found.get_document("cursor").unwrap().get_array("firstBatch").unwrap();
    batch[0].as_document().unwrap().get_i32("n").unwrap()
}

/// Starts writers of the record that a transaction has written, each on its own connection; returns
/// them when all wait.
async fn waiting_writers(server: &Running) -> Vec<tokio::task::JoinHandle<()>> {
    let mut writers = Vec::new();
    for at in 0..WRITERS {
        let mut client = TaskConnection::open(server.address()).await;
        // Some of them under sessions, of which two share one.
        let session = (at % 3 == 0).then(|| {
            let id = Binary { subtype: BinarySubtype::Uuid, bytes: vec![100 + (at / 6) as u8; 16] };
            doc! {"lsid": {"id": id}, "txnNumber": i64::from(at + 1)}
        });
        writers.push(tokio::spawn(async move {
            let command = with(increment(), session.unwrap_or_default());
            let reply = client.run(command).await;
            // Of two writers with one session, the one with the older number fails if the other one
            // was first.
            assert!(int(&reply, "n") == 1 || int(&reply, "code") == 225, "{reply}");
        }));
    }
    let conflicts =
        || server.service.store.write_conflicts.load(std::sync::atomic::Ordering::Relaxed);
    let before = conflicts();
    // On a slow machine the transaction may end before all writers wait.
    let over =
        |writers: &[tokio::task::JoinHandle<()>]| writers.iter().all(|one| one.is_finished());
    wait_until("they conflict", || {
        conflicts() >= before + 20 * i64::from(WRITERS) || over(&writers)
    });
    writers
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_commit_succeeds_while_more_writers_wait_than_there_are_workers() {
    let server = server().await;
    let mut client = TaskConnection::open(server.address()).await;
    ok(&mut client, doc! {"insert": "c", "documents": [{"_id": 1, "n": 0}]}).await;
    ok(&mut client, with(increment(), part(1, 1, true))).await;
    let writers = waiting_writers(&server).await;
    let mut committer = TaskConnection::open(server.address()).await;
    let began = Instant::now();
    ok(&mut committer, with(doc! {"commitTransaction": 1}, part(1, 1, false))).await;
    for writer in writers {
        writer.await.unwrap();
    }
    assert!(began.elapsed() < Duration::from_secs(20), "{:?}", began.elapsed());
    assert!(counted(&mut client).await > WRITERS / 2);
    server.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_transaction_ends_by_itself_and_waiting_writers_go_on() {
    let clock = Arc::new(SystemClock::new());
    let server = start(StartOptions::for_tests(clock).unwrap()).await.unwrap();
    let mut client = TaskConnection::open(server.address()).await;
    ok(&mut client, doc! {"setParameter": 1, "transactionLifetimeLimitSeconds": 1}).await;
    ok(&mut client, doc! {"insert": "c", "documents": [{"_id": 1, "n": 0}]}).await;
    ok(&mut client, with(increment(), part(1, 1, true))).await;
    // Its connection is closed, which does not end the transaction.
    for writer in waiting_writers(&server).await {
        writer.await.unwrap();
    }
    let counts = server.service.sessions.transactions.counts();
    assert_eq!(counts.active + counts.inactive, 0);
    let reply = client.run(with(doc! {"commitTransaction": 1}, part(1, 1, false))).await;
    assert_eq!(int(&reply, "code"), 251, "{reply}");
    server.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_stops_while_a_transaction_is_open() {
    let server = server().await;
    let mut client = TaskConnection::open(server.address()).await;
    ok(&mut client, with(doc! {"insert": "c", "documents": [{"_id": 1}]}, part(1, 1, true))).await;
    server.stop().await.unwrap();
}

/// Manual, "Transactions", "In Progress Transactions and Write Conflicts": a change of a definition
/// waits for transactions.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_change_of_a_definition_waits_as_long_as_it_may() {
    let clock = Arc::new(SystemClock::new());
    let server = start(StartOptions::for_tests(clock).unwrap()).await.unwrap();
    let mut client = TaskConnection::open(server.address()).await;
    ok(&mut client, doc! {"insert": "c", "documents": [{"_id": 1, "n": 0}]}).await;
    ok(&mut client, with(increment(), part(1, 1, true))).await;
    let mut other = TaskConnection::open(server.address()).await;
    for mut change in [
        doc! {"drop": "c"},
        doc! {"dropIndexes": "c", "index": "*"},
        doc! {"renameCollection": "admin.c", "to": "admin.d"},
    ] {
        change.insert("maxTimeMS", 30);
        let reply = other.run(change).await;
        assert_eq!(int(&reply, "code"), 50, "{reply}");
    }
    // Their number exceeds the runtime's workers; the transaction continues and commits.
    let mut changes = Vec::new();
    for number in 0..WRITERS {
        let mut client = TaskConnection::open(server.address()).await;
        changes.push(tokio::spawn(async move {
            // There is no index of this name; the command notices that only after its wait.
            let reply =
                client.run(doc! {"dropIndexes": "c", "index": format!("no_{number}")}).await;
            assert_eq!(int(&reply, "code"), 27, "{reply}");
        }));
    }
    let index = doc! {"createIndexes": "c", "indexes": [{"key": {"n": 1}, "name": "n_1"}]};
    ok(&mut other, index).await;
    ok(&mut client, with(increment(), part(1, 1, false))).await;
    ok(&mut client, with(doc! {"commitTransaction": 1}, part(1, 1, false))).await;
    for change in changes {
        change.await.unwrap();
    }
    let found = ok(&mut client, doc! {"find": "c", "filter": {"n": 2}, "hint": "n_1"}).await;
    let batch = found.get_document("cursor").unwrap().get_array("firstBatch").unwrap();
    assert_eq!(batch.len(), 1);
    // A transaction that is not ended by its client ends when its lifetime is over.
    ok(&mut client, doc! {"setParameter": 1, "transactionLifetimeLimitSeconds": 1}).await;
    ok(&mut client, with(increment(), part(1, 2, true))).await;
    ok(&mut other, doc! {"drop": "c"}).await;
    server.stop().await.unwrap();
}
