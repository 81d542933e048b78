//! The server's own documents in `local` and `config`.

use std::path::Path;

use mayfly_value::bson::{Document, doc};

use crate::authorization::{ok, run};
use crate::common::{Connection, Server};

fn all(client: &mut Connection, db: &str, collection: &str) -> Vec<Document> {
    let reply = ok(client, doc! { "find": collection, "$db": db });
    let batch = reply.get_document("cursor").unwrap().get_array("firstBatch").unwrap();
    batch.iter().map(|document| document.as_document().unwrap().clone()).collect()
}

/// A server that is shut down cleanly, so that its writes persist.
fn with_server<T>(folder: &Path, options: &[&str], act: impl FnOnce(&mut Connection) -> T) -> T {
    let mut server = Server::start_with(folder, options);
    let mut client = server.connect();
    let result = act(&mut client);
    // The reply to a clean shutdown need not arrive.
    let _ = client.run(&doc! { "shutdown": 1, "$db": "admin" });
    server.child.wait().unwrap();
    result
}

#[test]
fn every_start_is_noted_in_local_startup_log() {
    let folder = tempfile::tempdir().unwrap();
    let see = |client: &mut Connection| all(client, "local", "startup_log");
    let first = with_server(folder.path(), &[], see);
    let [start] = &first[..] else { panic!("{first:?}") };
    assert!(start.get_str("_id").unwrap().starts_with(start.get_str("hostname").unwrap()));
    assert!(start.get_datetime("startTime").is_ok() && start.get_i64("pid").is_ok(), "{start}");
    assert!(start.get_document("cmdLine").is_ok() && start.get_document("buildinfo").is_ok());
    let second = with_server(folder.path(), &[], see);
    assert_eq!((second.len(), &second[0]), (2, start));
}

#[test]
fn a_router_is_a_cluster_of_one_shard_and_a_member_is_none() {
    let folder = tempfile::tempdir().unwrap();
    let see = |client: &mut Connection| {
        let [version, shards, set] =
            [("config", "version"), ("config", "shards"), ("local", "system.replset")]
                .map(|(db, name)| all(client, db, name));
        (version, shards, set)
    };
    let (version, shards, set) = with_server(folder.path(), &[], see);
    let cluster = version[0].get_object_id("clusterId").unwrap();
    assert_eq!((version.len(), set.len()), (1, 0));
    let [shard] = &shards[..] else { panic!("{shards:?}") };
    assert!(shard.get_str("host").unwrap().contains(':'), "{shard}");
    assert_eq!(shard.get_i32("state").unwrap(), 1);
    // The cluster id is the same after a restart, and the log does not contain the documents.
    let (again, log) =
        with_server(folder.path(), &[], |client| (see(client).0, all(client, "local", "oplog.rs")));
    assert_eq!(again[0].get_object_id("clusterId").unwrap(), cluster);
    let names: Vec<_> = log.iter().filter_map(|entry| entry.get_str("ns").ok()).collect();
    assert!(
        !names.iter().any(|name| name.starts_with("config.") || name.starts_with("local.")),
        "{names:?}"
    );
    let (version, shards, set) = with_server(folder.path(), &["--replSet", "rs0"], see);
    assert_eq!((version.len(), shards.len(), set.len()), (0, 0, 1));
    assert_eq!(set[0].get_str("_id").unwrap(), "rs0");
    // Another name of the set replaces the document.
    let (_, _, set) = with_server(folder.path(), &["--replSet", "rs1"], see);
    assert_eq!(set.len(), 1);
    assert_eq!(set[0].get_str("_id").unwrap(), "rs1");
}

#[test]
fn a_configuration_is_there_after_a_restart() {
    let folder = tempfile::tempdir().unwrap();
    let member = ["--replSet", "rs0"];
    let config = |client: &mut Connection| {
        let reply = ok(client, doc! { "replSetGetConfig": 1, "$db": "admin" });
        reply.get_document("config").unwrap().clone()
    };
    with_server(folder.path(), &member, |client| {
        let mut new = config(client);
        new.insert("version", 7);
        new.get_document_mut("settings").unwrap().insert("heartbeatIntervalMillis", 500);
        ok(client, doc! { "replSetReconfig": new, "$db": "admin" });
    });
    let own_address = with_server(folder.path(), &member, |client| {
        let now = config(client);
        assert_eq!(now.get_i32("version").unwrap(), 7);
        let settings = now.get_document("settings").unwrap();
        assert_eq!(settings.get_i32("heartbeatIntervalMillis").unwrap(), 500);
        let mut new = now.clone();
        new.insert("version", 8);
        let members = new.get_array_mut("members").unwrap();
        let host = members[0].as_document_mut().unwrap();
        let before = host.insert("host", "db.example:27018").unwrap();
        ok(client, doc! { "replSetReconfig": new, "$db": "admin" });
        before.as_str().unwrap().to_owned()
    });
    // An address that was taken from the connection is not kept: the server has another port now.
    assert!(own_address.starts_with("127.0.0.1:"), "{own_address}");
    with_server(folder.path(), &member, |client| {
        let hello = ok(client, doc! { "hello": 1, "$db": "admin" });
        assert_eq!(hello.get_str("me").unwrap(), "db.example:27018");
        assert_eq!(hello.get_i32("setVersion").unwrap(), 8);
    });
    with_server(folder.path(), &["--replSet", "rs0", "--advertise", "here:1"], |client| {
        assert_eq!(
            ok(client, doc! { "hello": 1, "$db": "admin" }).get_str("me").unwrap(),
            "here:1"
        );
        let mut new = config(client);
        new.insert("version", 9);
        ok(client, doc! { "replSetReconfig": new.clone(), "$db": "admin" });
        new.insert("version", 10);
        new.get_array_mut("members").unwrap()[0]
            .as_document_mut()
            .unwrap()
            .insert("host", "there:1");
        let reply = run(client, doc! { "replSetReconfig": new, "$db": "admin" });
        assert_eq!(reply.get_i32("code").ok(), Some(93), "{reply}");
    });
}
