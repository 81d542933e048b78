//! Little memory by a limit of the process: a control group, which only root can make, or the
//! address space. The server may refuse commands; it is not killed and does not abort.

use std::path::{Path, PathBuf};
use std::process::Command;

use mayfly_value::RawValue;
use mayfly_value::bson::{Document, doc};

use crate::common::{Connection, Server};

/// A control group with a limit, removed when dropped.
struct Group(PathBuf);

impl Group {
    fn of(megabytes: u64) -> std::io::Result<Group> {
        let name = format!("mayflydb-test-{}-{megabytes}", std::process::id());
        let first = Path::new("/sys/fs/cgroup/memory");
        let (mount, file) = match first.is_dir() {
            true => (first, "memory.limit_in_bytes"),
            false => (Path::new("/sys/fs/cgroup"), "memory.max"),
        };
        let group = Group(mount.join(name));
        std::fs::create_dir(&group.0)?;
        std::fs::write(group.0.join(file), (megabytes << 20).to_string())?;
        Ok(group)
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir(&self.0);
    }
}

/// A shell that runs a command before it becomes the program.
fn after(first: &str) -> Command {
    let mut command = Command::new("sh");
    command.args(["-c", &format!("{first} && exec \"$0\" \"$@\"")]);
    command.arg(env!("CARGO_BIN_EXE_mayflydb"));
    command
}

/// Runs a command, which may be refused for lack of memory or room.
fn ask(client: &mut Connection, command: &Document) {
    let reply = client.run(command).expect("the server answers");
    let ok = reply.as_doc().get("ok") == Some(RawValue::Double(1.0));
    let refused = matches!(reply.as_doc().get("code"), Some(RawValue::Int32(146 | 292 | 14031)));
    assert!(ok || refused, "{reply:?}");
}

fn load(server: &Server) {
    let mut clients: Vec<Connection> = (0..200).map(|_| server.connect()).collect();
    for client in &mut clients {
        client.ok(&doc! { "ping": 1, "$db": "admin" });
    }
    let client = &mut clients[0];
    let index = doc! { "key": { "at": 1 }, "name": "at_1", "expireAfterSeconds": 1_000_000_000 };
    ask(client, &doc! { "createIndexes": "c", "indexes": [index], "$db": "little" });
    for batch in 0..60 {
        let documents: Vec<Document> = (0..1000)
            .map(|n| doc! { "a": rand::random::<f64>(), "n": batch * 1000 + n, "text": "x".repeat(1000) })
            .collect();
        ask(client, &doc! { "insert": "c", "documents": documents, "$db": "little" });
    }
    let index = doc! { "key": { "a": 1 }, "name": "a_1" };
    ask(client, &doc! { "createIndexes": "c", "indexes": [index], "$db": "little" });
    let group = doc! { "$group": { "_id": "$a", "texts": { "$push": "$text" } } };
    let pipeline = [group, doc! { "$count": "n" }].to_vec();
    ask(client, &doc! { "aggregate": "c", "pipeline": pipeline, "cursor": {}, "$db": "little" });
    ask(client, &doc! { "find": "c", "sort": { "text": 1, "n": -1 }, "$db": "little" });
    ask(
        client,
        &doc! { "delete": "c", "deletes": [{ "q": { "a": { "$lt": 0.5 } }, "limit": 0 }], "$db": "little" },
    );
    client.ok(&doc! { "ping": 1, "$db": "admin" });
}

#[test]
fn a_small_control_group_is_enough() {
    for megabytes in [128, 256] {
        let group = match Group::of(megabytes) {
            Ok(group) => group,
            Err(error) => {
                println!("SKIPPED: no control group can be made, which root may do: {error}");
                return;
            }
        };
        let folder = tempfile::tempdir().unwrap();
        let first = format!("echo $$ > {}", group.0.join("cgroup.procs").display());
        let server = Server::start_by(after(&first), folder.path(), &[]);
        load(&server);
        drop(server);
    }
}

#[test]
fn a_small_address_space_is_enough_or_refused() {
    let folder = tempfile::tempdir().unwrap();
    let server = Server::start_by(after("ulimit -v 1500000"), folder.path(), &[]);
    server.connect().ok(&doc! { "ping": 1, "$db": "admin" });
    drop(server);
    let refused =
        after("ulimit -v 300000").args(["--port", "0", "--dbpath"]).arg(folder.path()).output();
    let refused = refused.unwrap();
    assert!(refused.status.code().is_some_and(|code| code != 0), "{refused:?}");
    let text = [refused.stdout, refused.stderr].concat();
    assert!(String::from_utf8_lossy(&text).contains("address space"), "{text:?}");
}
