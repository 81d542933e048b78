//! Passwords and keys are stored only where they are needed. Values of documents are not in the log
//! of a server that redacts them.

use std::path::Path;

use mayfly_value::bson::{Document, doc};

use crate::authorization::{ok, ok_login, run};
use crate::common::{Connection, Server};

/// All files below a folder that hold the text: their paths.
fn holding(folder: &Path, text: &str) -> Vec<String> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            found.extend(holding(&path, text));
            continue;
        }
        // A file of the store may be removed meanwhile.
        let bytes = std::fs::read(&path).unwrap_or_default();
        if bytes.windows(text.len()).any(|window| window == text.as_bytes()) {
            found.push(path.display().to_string());
        }
    }
    found
}

/// Starts a server that logs, profiles and audits as much as possible.
fn start(folder: &Path) -> (Server, Connection) {
    let (log, audit) = (folder.join("server.log"), folder.join("audit.json"));
    let data = folder.join("data");
    std::fs::create_dir(&data).unwrap();
    let options = [
        "--auth",
        "-vvvvv",
        "--auditDestination",
        "file",
        "--auditPath",
        audit.to_str().unwrap(),
        "--setParameter",
        "auditAuthorizationSuccess=true",
    ];
    let server = Server::start_logging(&data, &log, &options);
    let client = server.connect();
    (server, client)
}

fn profile(client: &mut Connection, db: &str) {
    ok(client, doc! { "profile": 2, "slowms": -1, "$db": db });
}

#[test]
fn no_password_is_written_anywhere() {
    const PASSWORDS: &[&str] = &["hunter-root", "hunter-new", "hunter-refused", "hunter-wrong"];
    let folder = tempfile::tempdir().unwrap();
    let (server, mut admin) = start(folder.path());
    let create = doc! { "createUser": "root", "pwd": "hunter-root", "roles": ["root"] };
    let on = |db: &str, mut command: Document| {
        command.insert("$db", db);
        command
    };
    ok(&mut admin, on("admin", create));
    ok_login(&mut admin, "root", "admin", "hunter-root");
    profile(&mut admin, "admin");
    profile(&mut admin, "shop");
    let new = |name: &str, password: &str| doc! { name: "u", "pwd": password, "roles": ["read"] };
    ok(&mut admin, on("shop", new("createUser", "hunter-new")));
    ok(&mut admin, on("shop", new("updateUser", "hunter-new")));
    let mut client = server.connect();
    let reply = crate::authorization::log_in(&mut client, "u", "shop", "hunter-wrong");
    assert_eq!(reply.get_i32("code").ok(), Some(18));
    ok_login(&mut client, "u", "shop", "hunter-new");
    // A refused command, an invalid one, a repeated one, and an unknown one.
    let refused = [
        (new("createUser", "hunter-refused"), 13),
        (new("updateUser", "hunter-refused"), 13),
        (on("shop", doc! { "createUser": 1, "pwd": "hunter-refused", "roles": [] }), 14),
        (doc! { "creatUser": "u", "pwd": "hunter-refused" }, 59),
    ];
    for (command, code) in refused {
        let command = if command.contains_key("$db") { command } else { on("shop", command) };
        let reply = run(&mut client, command.clone());
        assert_eq!(reply.get_i32("code").ok(), Some(code), "{command}: {reply}");
        assert!(!reply.to_string().contains("hunter"), "{reply}");
    }
    let reply = run(&mut admin, on("shop", new("createUser", "hunter-refused")));
    assert!(!reply.to_string().contains("hunter"), "{reply}");
    // Documents of users, as tools restore them.
    let user =
        ok(&mut admin, on("admin", doc! { "find": "system.users", "filter": { "user": "u" } }));
    let user = user.get_document("cursor").unwrap().get_array("firstBatch").unwrap()[0].clone();
    let mut user = user.as_document().unwrap().clone();
    let key = user.get_document("credentials").unwrap().get_document("SCRAM-SHA-256").unwrap();
    let key = key.get_str("storedKey").unwrap().to_owned();
    user.insert("_id", "shop.again");
    user.insert("user", "again");
    ok(&mut admin, on("admin", doc! { "insert": "tempusers", "documents": [&user] }));
    ok(&mut admin, on("admin", doc! { "insert": "system.users", "documents": [&user] }));
    let op = doc! { "op": "i", "ns": "admin.tempusers", "o": { "_id": 1, "credentials": &user } };
    ok(&mut admin, on("admin", doc! { "applyOps": [&op] }));
    let op = doc! { "op": "c", "ns": "admin.$cmd", "o": { "applyOps": [op] } };
    let refused = run(&mut admin, on("admin", doc! { "applyOps": [op] })).to_string();
    assert!(refused.contains("not authorized") && !refused.contains(&key), "{refused}");

    let shown = ok(&mut admin, on("admin", doc! { "currentOp": 1, "$all": true })).to_string();
    let ring = ok(&mut admin, on("admin", doc! { "getLog": "global" })).to_string();
    let mut profiles = String::new();
    for db in ["admin", "shop"] {
        let find = on(db, doc! { "find": "system.profile", "batchSize": 1000 });
        profiles += &ok(&mut admin, find).to_string();
    }
    // The log, the profiler and the audit log have recorded the commands.
    let log = std::fs::read_to_string(folder.path().join("server.log")).unwrap();
    let audit = std::fs::read_to_string(folder.path().join("audit.json")).unwrap();
    for place in [&log, &audit, &profiles] {
        for command in ["createUser", "updateUser", "saslStart", "tempusers"] {
            assert!(
                place.contains(command) || command == "saslStart" && *place == audit,
                "{command} is not in {place}"
            );
        }
    }
    for (place, text) in
        [("log", &log), ("audit", &audit), ("profile", &profiles), ("ring", &ring), ("op", &shown)]
    {
        assert!(!text.contains("hunter"), "{place}: {text}");
        assert!(!text.contains(&key), "{place}: {text}");
    }
    for password in PASSWORDS {
        assert_eq!(holding(folder.path(), password), Vec::<String>::new(), "{password}");
    }
}

/// Manual: `security.redactClientLogData`.
#[test]
fn values_stay_out_of_the_log_where_that_is_asked_for() {
    let folder = tempfile::tempdir().unwrap();
    let log = folder.path().join("server.log");
    let data = folder.path().join("data");
    std::fs::create_dir(&data).unwrap();
    let server = Server::start_logging(&data, &log, &["--redactClientLogData"]);
    let mut client = server.connect();
    ok(&mut client, doc! { "profile": 0, "slowms": -1, "$db": "shop" });
    let validator = doc! { "a": { "$type": "int" } };
    ok(
        &mut client,
        doc! { "create": "c", "validator": validator, "validationAction": "warn", "$db": "shop" },
    );
    ok(
        &mut client,
        doc! { "insert": "c", "documents": [{ "_id": "secret-1", "a": "secret-2" }], "$db": "shop" },
    );
    let find =
        |text: &str| doc! { "find": "c", "filter": { "a": { "$in": [text] } }, "$db": "shop" };
    ok(&mut client, find("secret-3"));
    let lines = std::fs::read_to_string(&log).unwrap();
    assert!(lines.contains("would fail validation"), "{lines}");
    assert!(lines.contains("filter: { a: { $in: [ \\\"###\\\" ] } }"), "{lines}");
    assert!(!lines.contains("secret"), "{lines}");
    let parameter =
        |on: bool| doc! { "setParameter": 1, "redactClientLogData": on, "$db": "admin" };
    ok(&mut client, parameter(false));
    ok(&mut client, find("secret-4"));
    assert!(std::fs::read_to_string(&log).unwrap().contains("secret-4"));
}
