//! A connection that is cut at every byte of a write's request and reply, and a server that is
//! killed in between: a retry with the same transaction number has one effect and returns the first
//! result.

use std::io::{Read, Write};

use crate::common::{Connection, Server, message};
use mayfly_value::bson::spec::BinarySubtype;
use mayfly_value::bson::{Binary, Bson, Document, doc};
use mayfly_value::{DocBuf, RawDoc, RawValue};

fn session(number: u8) -> Document {
    let bytes = vec![number; 16];
    doc! { "id": Bson::Binary(Binary { subtype: BinarySubtype::Uuid, bytes }) }
}

/// The writes of one kind, numbered; each is to have exactly one effect.
type Write1 = fn(i32) -> Document;

fn increment(_: i32) -> Document {
    doc! { "update": "c", "updates": [{ "q": { "_id": "n" }, "u": { "$inc": { "n": 1 } } }] }
}

fn insert(number: i32) -> Document {
    doc! { "insert": "i", "documents": [{ "_id": number, "x": 1 }, { "x": 2 }] }
}

fn upsert(number: i32) -> Document {
    let q = doc! { "k": number };
    doc! { "update": "u", "updates": [{ "q": q, "u": { "$push": { "a": 1 } }, "upsert": true }] }
}

fn pop(_: i32) -> Document {
    doc! { "findAndModify": "q", "query": {}, "sort": { "_id": 1 }, "remove": true }
}

fn remove(_: i32) -> Document {
    doc! { "delete": "d", "deletes": [{ "q": {}, "limit": 1 }] }
}

fn bulk(number: i32) -> Document {
    doc! {
        "bulkWrite": 1, "nsInfo": [{ "ns": "retry.b" }],
        "ops": [
            { "insert": 0, "document": { "_id": number } },
            { "update": 0, "filter": { "_id": number }, "updateMods": { "$inc": { "n": 1 } } },
        ],
    }
}

fn numbered(write: Document, session: &Document, number: i32) -> Document {
    let mut command = write;
    let db = if command.contains_key("bulkWrite") { "admin" } else { "retry" };
    command.insert("$db", db);
    command.insert("lsid", session.clone());
    command.insert("txnNumber", i64::from(number));
    command
}

/// Sends the first bytes of a request, reads the first bytes of the reply, and disconnects.
fn cut_off(server: &Server, request: &[u8], sent: usize, taken: usize) {
    let mut stream = server.connect().stream;
    stream.write_all(&request[..sent]).unwrap();
    if taken > 0 {
        stream.read_exact(&mut vec![0; taken]).unwrap();
    }
}

/// Runs the write once for each position of a cut; returns the number of positions.
fn at_every_byte(server: &Server, session: &Document, write: Write1) -> i32 {
    let mut client = server.connect();
    let mut number = 0;
    let mut next = |cut: &dyn Fn(&[u8])| {
        number += 1;
        let command = numbered(write(number), session, number);
        cut(&message(&command));
        // While the first attempt may still run, and once more when it is over.
        let first = client.ok(&command);
        let second = client.ok(&command);
        assert_eq!(without_ids(&first), without_ids(&second), "{command}");
        (message(&command).len(), first.as_bytes().len() + 21)
    };
    let (request_bytes, mut reply_bytes) = next(&|_| {});
    for sent in 0..request_bytes {
        next(&|request| cut_off(server, request, sent.min(request.len()), 0));
    }
    // A cut reply is never received.
    for taken in (0..reply_bytes).step_by(3) {
        (_, reply_bytes) =
            next(&|request| cut_off(server, request, request.len(), taken.min(reply_bytes / 2)));
    }
    number
}

/// A reply without the fields that mark a retry.
fn without_ids(reply: &DocBuf) -> Vec<String> {
    let told = |name: &str| {
        let times = matches!(name, "$clusterTime" | "operationTime");
        times || matches!(name, "retriedStmtIds" | "retriedStmtId" | "cursor")
    };
    let shown = |e: mayfly_value::RawElement<'_>| format!("{}: {:?}", e.name(), e.value());
    reply.as_doc().iter().filter(|e| !told(e.name())).map(shown).collect()
}

fn count(client: &mut Connection, collection: &str) -> i32 {
    let reply = client.ok(&doc! { "count": collection, "query": {}, "$db": "retry" });
    match reply.as_doc().get("n") {
        Some(RawValue::Int32(n)) => n,
        other => panic!("{other:?}"),
    }
}

fn field(document: RawDoc<'_>, name: &str) -> i32 {
    match document.get(name) {
        Some(RawValue::Int32(n)) => n,
        other => panic!("{name}: {other:?}"),
    }
}

#[test]
fn a_write_cut_at_any_byte_has_one_effect() {
    let folder = tempfile::tempdir().unwrap();
    let server = Server::start(folder.path());
    let mut client = server.connect();
    let fill = |client: &mut Connection, name: &str| {
        let documents: Vec<_> = (0..2000).map(|n| Bson::Document(doc! { "_id": n })).collect();
        client.ok(&doc! { "insert": name, "documents": documents, "$db": "retry" });
    };
    client.ok(&doc! { "insert": "c", "documents": [{ "_id": "n", "n": 0 }], "$db": "retry" });
    fill(&mut client, "q");
    fill(&mut client, "d");

    let increments = at_every_byte(&server, &session(1), increment);
    let found = client.all(&doc! { "find": "c", "$db": "retry" });
    assert_eq!(field(found[0].as_doc(), "n"), increments);

    let inserts = at_every_byte(&server, &session(2), insert);
    assert_eq!(count(&mut client, "i"), 2 * inserts);

    let upserts = at_every_byte(&server, &session(3), upsert);
    assert_eq!(count(&mut client, "u"), upserts);
    let twice = doc! { "count": "u", "query": { "a": { "$size": 2 } }, "$db": "retry" };
    assert_eq!(field(client.ok(&twice).as_doc(), "n"), 0);

    let pops = at_every_byte(&server, &session(4), pop);
    assert_eq!(count(&mut client, "q"), 2000 - pops);

    let removes = at_every_byte(&server, &session(5), remove);
    assert_eq!(count(&mut client, "d"), 2000 - removes);

    let bulks = at_every_byte(&server, &session(6), bulk);
    assert_eq!(count(&mut client, "b"), bulks);
    let once = doc! { "count": "b", "query": { "n": 1 }, "$db": "retry" };
    assert_eq!(field(client.ok(&once).as_doc(), "n"), bulks);
}

#[test]
fn the_first_answer_outlives_a_killed_server() {
    let folder = tempfile::tempdir().unwrap();
    let writes: [Write1; 6] = [increment, insert, upsert, pop, remove, bulk];
    let mut answers = Vec::new();
    {
        let server = Server::start(folder.path());
        let mut client = server.connect();
        client.ok(&doc! { "insert": "c", "documents": [{ "_id": "n", "n": 0 }], "$db": "retry" });
        for name in ["q", "d"] {
            let documents = [doc! { "_id": 1 }, doc! { "_id": 2 }];
            client.ok(&doc! { "insert": name, "documents": documents.to_vec(), "$db": "retry" });
        }
        for (at, write) in (10..).zip(writes) {
            answers.push(client.ok(&numbered(write(1), &session(at), 1)));
        }
        // Killed when it goes out of scope: SIGKILL.
    }
    let server = Server::start(folder.path());
    let mut client = server.connect();
    for ((at, write), answer) in (10..).zip(writes).zip(&answers) {
        let again = client.ok(&numbered(write(1), &session(at), 1));
        assert_eq!(without_ids(&again), without_ids(answer));
    }
    let found = client.all(&doc! { "find": "c", "$db": "retry" });
    assert_eq!(field(found[0].as_doc(), "n"), 1);
    for (name, expected) in [("i", 2), ("u", 1), ("q", 1), ("d", 1), ("b", 1)] {
        assert_eq!(count(&mut client, name), expected, "{name}");
    }
    let old = numbered(increment(0), &session(10), 0);
    let refused = client.run(&old).unwrap();
    assert_eq!(field(refused.as_doc(), "code"), 225);
}
