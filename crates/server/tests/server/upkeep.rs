//! Compaction in the background, and lines of the log that settings select.

use std::path::Path;
use std::time::{Duration, Instant};

use mayfly_base::testing::wait_until;
use mayfly_value::bson::{Document, doc};

use crate::authorization::ok;
use crate::common::{Connection, Server};

/// The lines of the log in memory.
fn log(client: &mut Connection) -> Vec<String> {
    let reply = ok(client, doc! { "getLog": "global", "$db": "admin" });
    let lines = reply.get_array("log").unwrap();
    lines.iter().map(|line| line.as_str().unwrap().to_owned()).collect()
}

fn count(client: &mut Connection, text: &str) -> usize {
    log(client).iter().filter(|line| line.contains(text)).count()
}

/// The size of the engine's tables.
fn table_bytes(folder: &Path) -> u64 {
    let entries = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap());
    entries
        .map(|entry| match entry.path() {
            path if path.is_dir() => table_bytes(&path),
            path if path.extension().is_some_and(|it| it == "sst") => {
                entry.metadata().map_or(0, |data| data.len())
            }
            _ => 0,
        })
        .sum()
}

/// Manual: "autoCompact".
#[test]
fn compaction_in_the_background_frees_space_and_ends_with_the_server() {
    let folder = tempfile::tempdir().unwrap();
    let mut server = Server::start_with(folder.path(), &[]);
    let mut client = server.connect();
    // Documents that the oplog refers to are kept, so the oplog is small.
    ok(&mut client, doc! { "replSetResizeOplog": 1, "size": 1.0, "$db": "admin" });
    let mut seed = 7u64;
    for batch in 0..8 {
        let mut document = |id: i32| {
            let text: String = (0..64)
                .map(|_| {
                    seed = seed.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
                    format!("{seed:016x}")
                })
                .collect();
            doc! { "_id": batch * 1000 + id, "text": text }
        };
        let documents: Vec<Document> = (0..1000).map(&mut document).collect();
        ok(&mut client, doc! { "insert": "c", "documents": documents, "$db": "test" });
    }
    // It also moves the documents from memory to tables.
    ok(&mut client, doc! { "compact": "c", "$db": "test" });
    ok(&mut client, doc! { "delete": "c", "deletes": [{ "q": {}, "limit": 0 }], "$db": "test" });
    let before = table_bytes(folder.path());
    let once =
        doc! { "autoCompact": true, "runOnce": true, "freeSpaceTargetMB": 1, "$db": "admin" };
    ok(&mut client, once);
    wait_until("a round of compaction", || {
        count(&mut client, "autoCompact has compacted all collections") == 1
    });
    let after = table_bytes(folder.path());
    assert!(before > 4 << 20 && after < before / 2, "{before} bytes before, {after} bytes after");

    // Rounds are an hour apart; the server does not wait for the next one.
    ok(&mut client, doc! { "autoCompact": true, "$db": "admin" });
    wait_until("a round of compaction", || {
        count(&mut client, "autoCompact has compacted all collections") == 2
    });
    let began = Instant::now();
    let _ = client.run(&doc! { "shutdown": 1, "$db": "admin" });
    assert!(server.child.wait().unwrap().success());
    assert!(began.elapsed() < Duration::from_secs(20), "{:?}", began.elapsed());
}

/// Manual: "Server Parameters", `quiet`.
#[test]
fn a_quiet_log_leaves_out_connections() {
    let folder = tempfile::tempdir().unwrap();
    let server = Server::start_with(folder.path(), &[]);
    let mut client = server.connect();
    let quiet = |client: &mut Connection, is_quiet: bool| {
        ok(client, doc! { "setParameter": 1, "quiet": is_quiet, "$db": "admin" });
    };
    let before = count(&mut client, "Connection accepted");
    quiet(&mut client, true);
    ok(&mut server.connect(), doc! { "ping": 1, "$db": "admin" });
    assert_eq!(count(&mut client, "Connection accepted"), before);
    quiet(&mut client, false);
    ok(&mut server.connect(), doc! { "ping": 1, "$db": "admin" });
    assert_eq!(count(&mut client, "Connection accepted"), before + 1);
}

/// The command `profile` is never recorded in `system.profile`; a slow one is in the log.
#[test]
fn a_slow_profile_command_is_logged_and_not_recorded() {
    let folder = tempfile::tempdir().unwrap();
    let server = Server::start_with(folder.path(), &[]);
    let mut client = server.connect();
    ok(&mut client, doc! { "profile": 2, "slowms": -1, "$db": "test" });
    ok(&mut client, doc! { "profile": -1, "comment": "asked", "$db": "test" });
    let logged = log(&mut client).into_iter().filter(|line| {
        line.contains("Slow query") && line.contains("profile") && line.contains("asked")
    });
    assert_eq!(logged.count(), 1);
    let recorded = doc! { "count": "system.profile", "query": { "command.profile": { "$exists": true } }, "$db": "test" };
    assert_eq!(ok(&mut client, recorded).get_i32("n").unwrap(), 0);
}
