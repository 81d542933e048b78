//! Expiry as a client of the real binary sees it: archives and `kill -9`, a broken archive, and
//! its effect on other traffic. A process cannot be given a clock, so each of these waits for
//! the first pass, a second after the start. The pace of deletion, which is about time, is tested
//! with a clock that is moved (`pace.rs`).

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use crate::common::{Connection, Server};
use mayfly_base::testing::wait_until;
use mayfly_value::bson::{Bson, DateTime, Document, doc};
use mayfly_value::{DocBuf, RawDoc, RawValue};
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};

/// Options with which a pass begins a second after the start.
pub(crate) const EVERY_SECOND: &[&str] = &["--setParameter", "ttlMonitorSleepSecs=1"];
/// Options with which no pass begins.
const NEVER: &[&str] = &["--setParameter", "ttlMonitorEnabled=false"];

fn number(document: RawDoc<'_>, name: &str) -> f64 {
    match document.get(name) {
        Some(RawValue::Int32(value)) => f64::from(value),
        Some(RawValue::Int64(value)) => value as f64,
        Some(RawValue::Double(value)) => value,
        other => panic!("{name}: {other:?}"),
    }
}

/// A member of `serverStatus().metrics.ttl`.
fn metric(client: &mut Connection, name: &str) -> f64 {
    let status = client.ok(&doc! { "serverStatus": 1, "$db": "admin" });
    let metrics = status.as_doc().get("metrics").and_then(RawValue::as_document).unwrap();
    number(metrics.get("ttl").and_then(RawValue::as_document).unwrap(), name)
}

/// All documents of a collection, in one batch.
fn documents(client: &mut Connection, db: &str, collection: &str) -> Vec<DocBuf> {
    let find = doc! { "find": collection, "batchSize": 1_000_000, "$db": db };
    client.all(&find)
}

/// `_id`, or the `_id` under which a document was archived when its own was taken.
fn id_of(document: RawDoc<'_>) -> i64 {
    match document.get("_id") {
        Some(RawValue::Document(id)) => number(id, "id") as i64,
        _ => number(document, "_id") as i64,
    }
}

fn ids(client: &mut Connection, db: &str) -> Vec<i64> {
    documents(client, db, "c").iter().map(|document| id_of(document.as_doc())).collect()
}

fn make_policy(client: &mut Connection, ttl: Document) {
    client.ok(&doc! { "createIndexes": "c", "$db": "crash", "indexes": [
        { "key": { "at": 1 }, "name": "at_1", "expireAfterSeconds": 0, "ttl": ttl },
        { "key": { "a": 1 }, "name": "a_1" },
    ] });
}

/// Inserts documents that are due, and waits until they are durable.
fn insert_due(client: &mut Connection, ids: std::ops::Range<i64>) {
    let at = DateTime::from_millis(1_000_000);
    let documents: Vec<Bson> = ids
        .map(|id| doc! { "_id": id, "at": at, "a": id % 7, "v": "x".repeat(100) }.into())
        .collect();
    for some in documents.chunks(1000) {
        client.ok(&doc! {
            "insert": "c", "$db": "crash", "documents": some.to_vec(),
            "writeConcern": { "w": "majority" },
        });
    }
}

/// The `$ttlStats` of the policy.
fn ttl_stats(client: &mut Connection) -> DocBuf {
    let command = doc! {
        "aggregate": "c", "pipeline": [{ "$ttlStats": {} }], "cursor": {}, "$db": "crash",
    };
    client.all(&command).swap_remove(0)
}

fn kill(mut server: Server) {
    server.child.kill().unwrap();
    server.child.wait().unwrap();
}

const ROUNDS: i64 = 4;
const EACH: i64 = 4000;

/// T-71: whenever the server dies, every document is in the collection or in the archive, and never
/// in both.
#[test]
fn t_71_no_document_is_lost_while_it_is_archived_into_a_collection() {
    let folder = tempfile::tempdir().unwrap();
    let (mut torn, mut inserted) = (0, 0);
    for round in 0..ROUNDS {
        let server = Server::start_with(folder.path(), EVERY_SECOND);
        let mut client = server.connect();
        if round == 0 {
            make_policy(&mut client, doc! { "archive": { "collection": "old.c" } });
        }
        insert_due(&mut client, inserted..inserted + EACH);
        inserted += EACH;
        wait_until("something goes", || metric(&mut client, "deletedDocuments") > 0.0);
        std::thread::sleep(Duration::from_millis(20 * round as u64));
        kill(server);

        let server = Server::start_with(folder.path(), NEVER);
        let mut client = server.connect();
        let (left, old) = (ids(&mut client, "crash"), ids(&mut client, "old"));
        torn += i32::from(!left.is_empty() && !old.is_empty());
        let mut all: Vec<i64> = left.into_iter().chain(old).collect();
        all.sort_unstable();
        assert!(all.into_iter().eq(0..inserted), "round {round}: each document is there once");
        for db in ["crash", "old"] {
            let validated = client.ok(&doc! { "validate": "c", "$db": db });
            assert_eq!(validated.as_doc().get("valid"), Some(RawValue::Bool(true)), "{db}");
        }
        kill(server);
    }
    assert!(torn > 0, "some kill came between two units");
    let server = Server::start_with(folder.path(), EVERY_SECOND);
    let mut client = server.connect();
    wait_until("everything goes", || ids(&mut client, "crash").is_empty());
    assert_eq!(ids(&mut client, "old").len() as i64, inserted);
}

/// The documents in the finished files of an archive.
fn archived(folder: &Path, found: &mut BTreeSet<i64>) {
    for entry in fs::read_dir(folder).into_iter().flatten() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            archived(&path, found);
        } else if path.extension().is_some_and(|extension| extension == "zst") {
            let bytes = zstd::decode_all(fs::File::open(&path).unwrap()).unwrap();
            let mut rest = bytes.as_slice();
            while let Some(length) = rest.first_chunk() {
                let (document, behind) = rest.split_at(u32::from_le_bytes(*length) as usize);
                found.insert(id_of(RawDoc::new(document).unwrap()));
                rest = behind;
            }
        }
    }
}

/// T-71 for files: a document may be in both, as the file comes first.
#[test]
fn t_71_no_document_is_lost_while_it_is_archived_into_files() {
    let folder = tempfile::tempdir().unwrap();
    let archive = tempfile::tempdir().unwrap();
    let in_archive = || {
        let mut found = BTreeSet::new();
        archived(archive.path(), &mut found);
        found
    };
    let place = ["--archiveFolder", archive.path().to_str().unwrap()];
    let (with_passes, without) = ([EVERY_SECOND, &place].concat(), [NEVER, &place].concat());
    let mut inserted = 0;
    for round in 0..ROUNDS {
        let server = Server::start_with(folder.path(), &with_passes);
        let mut client = server.connect();
        if round == 0 {
            let ttl = doc! { "archive": { "path": "some/where", "format": "bson.zst" } };
            make_policy(&mut client, ttl);
        }
        let before = in_archive().len();
        insert_due(&mut client, inserted..inserted + EACH);
        inserted += EACH;
        wait_until("a file", || in_archive().len() > before);
        std::thread::sleep(Duration::from_millis(5 * round as u64));
        kill(server);

        let server = Server::start_with(folder.path(), &without);
        let left = ids(&mut server.connect(), "crash");
        let mut all = in_archive();
        all.extend(left);
        assert!(all.into_iter().eq(0..inserted), "round {round}: every document is somewhere");
        kill(server);
    }
    let server = Server::start_with(folder.path(), &with_passes);
    let mut client = server.connect();
    wait_until("everything goes", || ids(&mut client, "crash").is_empty());
    assert!(in_archive().into_iter().eq(0..inserted), "all of them are archived");
}

#[test]
fn an_archive_that_cannot_be_written_keeps_everything() {
    let folder = tempfile::tempdir().unwrap();
    let archive = tempfile::tempdir().unwrap();
    // The path of the policy's folder is a file.
    let in_the_way = archive.path().join("old");
    fs::write(&in_the_way, "in the way").unwrap();
    let place = ["--archiveFolder", archive.path().to_str().unwrap()];
    let server = Server::start_with(folder.path(), &[EVERY_SECOND, &place].concat());
    let mut client = server.connect();
    let ttl = doc! { "archive": { "path": "old", "format": "bson.zst" } };
    // A policy that could never archive is refused.
    let refused = client.run(&doc! { "createIndexes": "c", "$db": "crash", "indexes": [
        { "key": { "x": 1 }, "name": "x_1", "expireAfterSeconds": 0, "ttl": ttl.clone() },
    ] });
    let refused = refused.unwrap();
    assert_eq!(refused.as_doc().get("code"), Some(RawValue::Int32(72)));
    fs::remove_file(&in_the_way).unwrap();
    make_policy(&mut client, ttl);
    // A later obstacle is an error of the policy.
    fs::write(&in_the_way, "in the way").unwrap();
    insert_due(&mut client, 0..100);
    wait_until("a visit fails", || {
        ttl_stats(&mut client).as_doc().get("lastError") != Some(RawValue::Null)
    });
    assert_eq!(ids(&mut client, "crash").len(), 100);
    let stats = ttl_stats(&mut client);
    let error = stats.as_doc().get("lastError").and_then(RawValue::as_str).unwrap();
    assert!(error.contains("cannot write the archive"), "{error}");
    assert_eq!(number(stats.as_doc(), "due"), 100.0);

    fs::remove_file(&in_the_way).unwrap();
    wait_until("everything goes", || ids(&mut client, "crash").is_empty());
    // A visit notes how it ended after its last deletion.
    wait_until("the error is forgotten", || {
        ttl_stats(&mut client).as_doc().get("lastError") == Some(RawValue::Null)
    });
    let mut found = BTreeSet::new();
    archived(archive.path(), &mut found);
    assert!(found.into_iter().eq(0..100));
}

/// T-58: no write of a client waits for a pass, whether its document is due or not.
#[test]
fn t_58_updates_during_a_long_pass_are_quick() {
    const DUE: i64 = 60_000;
    let folder = tempfile::tempdir().unwrap();
    let server = Server::start_with(folder.path(), NEVER);
    let mut client = server.connect();
    make_policy(&mut client, doc! {});
    insert_due(&mut client, 0..DUE);
    let stay: Vec<Bson> = (0..100).map(|id| doc! { "_id": DUE + id, "v": 0 }.into()).collect();
    client.ok(&doc! { "insert": "c", "$db": "crash", "documents": stay });
    for (name, value) in
        [("ttlMonitorSleepSecs", Bson::Int32(1)), ("ttlMonitorEnabled", true.into())]
    {
        client.ok(&doc! { "setParameter": 1, name: value, "$db": "admin" });
    }
    let mut watcher = server.connect();
    wait_until("the pass", || metric(&mut watcher, "deletedDocuments") > 0.0);
    let (mut took, mut refreshed) = (Vec::new(), 0);
    let future = DateTime::from_millis(4_000_000_000_000);
    while metric(&mut watcher, "deletedDocuments") < (DUE - refreshed) as f64 {
        // The latest of the due documents, and one that is never due.
        for id in [DUE - 1 - took.len() as i64, DUE + took.len() as i64 % 100] {
            let change = doc! { "$set": { "at": future }, "$inc": { "v2": 1 } };
            let update = doc! { "q": { "_id": id }, "u": change };
            // Without waiting for the disk, which may be busy.
            let concern = doc! { "w": 1 };
            let command = doc! {
                "update": "c", "$db": "crash", "updates": [update], "writeConcern": concern,
            };
            let begun = Instant::now();
            let reply = client.ok(&command);
            took.push(begun.elapsed());
            refreshed += i64::from(id < DUE && number(reply.as_doc(), "n") == 1.0);
        }
        assert!(took.len() < 1_000_000, "the pass does not end");
    }
    took.sort_unstable();
    let (most, worst) = (took[took.len() * 99 / 100], took[took.len() - 1]);
    println!("{} updates, 99 of 100 within {most:?}, the slowest {worst:?}", took.len());
    assert!(took.len() > 5, "the pass was over too soon");
    assert!(most < Duration::from_millis(100), "99 of 100 updates within {most:?}");
    // The machine may be busy; waiting for a pass would take longer than this.
    assert!(worst < Duration::from_millis(1000), "the slowest update took {worst:?}");
    let left = ids(&mut client, "crash");
    assert_eq!(left.len() as i64, 100 + refreshed, "what was refreshed in time stayed");
}

/// The size of all files of a folder.
fn bytes_in(folder: &Path) -> u64 {
    let size = |entry: std::io::Result<fs::DirEntry>| match entry.and_then(|e| e.metadata()) {
        Ok(file) => file.len(),
        // It was removed concurrently.
        Err(_) => 0,
    };
    fs::read_dir(folder).unwrap().map(size).sum()
}

/// T-75: disk space is freed without `compact`.
#[test]
fn t_75_the_space_of_what_expired_comes_back_by_itself() {
    const DOCUMENTS: u32 = 24_000;
    let folder = tempfile::tempdir().unwrap();
    let options = [NEVER, &["--oplogSize", "1", "--cacheSizeGB", "0.05"]].concat();
    let server = Server::start_with(folder.path(), &options);
    let mut client = server.connect();
    make_policy(&mut client, doc! {});
    let mut random = SmallRng::seed_from_u64(1);
    for chunk in 0..DOCUMENTS / 1000 {
        let document = |n: u32| {
            let bytes: Vec<u8> = (0..4000).map(|_| random.random()).collect();
            let subtype = mayfly_value::bson::spec::BinarySubtype::Generic;
            let blob = mayfly_value::bson::Binary { subtype, bytes };
            Bson::from(doc! { "_id": chunk * 1000 + n, "at": DateTime::from_millis(1), "v": blob })
        };
        let documents: Vec<Bson> = (0..1000).map(document).collect();
        client.ok(&doc! { "insert": "c", "$db": "crash", "documents": documents });
    }
    let full = bytes_in(folder.path());
    for (name, value) in
        [("ttlMonitorSleepSecs", Bson::Int32(1)), ("ttlMonitorEnabled", true.into())]
    {
        client.ok(&doc! { "setParameter": 1, name: value, "$db": "admin" });
    }
    wait_until("all of them go", || {
        metric(&mut client, "deletedDocuments") == f64::from(DOCUMENTS)
    });
    // The log of operations keeps a copy for its own time.
    let documents = u64::from(DOCUMENTS) * 4000;
    let mut left = 0;
    wait_until("the space comes back", || {
        let stats = client.ok(&doc! { "collStats": "c", "$db": "crash" });
        left = bytes_in(folder.path());
        number(stats.as_doc(), "storageSize") < 1e6 && left < full - documents / 2
    });
    println!("{full} bytes before, {left} after");
}
