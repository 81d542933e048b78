//! The audit log of a server process: its events, its file, and its failure.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use mayfly_base::testing::wait_until;
use mayfly_value::bson::spec::BinarySubtype;
use mayfly_value::bson::{Binary, Bson, Document, doc};
use serde_json::{Value, json};

use crate::authorization::{log_in, ok, ok_login, root, run};
use crate::common::{Connection, Server};

/// The timeout for asynchronous events.
const PATIENCE: Duration = Duration::from_secs(30);

/// A server with an audit log, and how much of that was read.
struct Audited {
    // Ends before its folder is removed.
    server: Server,
    folder: tempfile::TempDir,
    seen: usize,
}

impl Audited {
    fn start(options: &[&str]) -> Audited {
        Audited::start_in(tempfile::tempdir().unwrap(), options)
    }

    fn start_in(folder: tempfile::TempDir, options: &[&str]) -> Audited {
        let path = folder.path().join("audit.json");
        let own = ["--auditDestination", "file", "--auditPath", path.to_str().unwrap()];
        let data = folder.path().join("data");
        std::fs::create_dir_all(&data).unwrap();
        let server = Server::start_with(&data, &[&own, options].concat());
        Audited { server, folder, seen: 0 }
    }

    fn path(&self) -> PathBuf {
        self.folder.path().join("audit.json")
    }

    /// The events since the last call.
    fn events(&mut self) -> Vec<Value> {
        let all = events(&self.path());
        let new = all[self.seen..].to_vec();
        self.seen = all.len();
        new
    }

    /// The events since the last call, each as its kind, result and parameters.
    fn news(&mut self) -> Vec<(String, i64, Value)> {
        let short = |event: Value| {
            let atype = event["atype"].as_str().unwrap().to_owned();
            (atype, event["result"].as_i64().unwrap(), event["param"].clone())
        };
        self.events().into_iter().map(short).collect()
    }

    /// Waits for an asynchronous event of this kind.
    fn await_event(&mut self, atype: &str) -> Value {
        let mut found = None;
        wait_until(atype, || {
            found = self.events().into_iter().find(|event| event["atype"] == atype);
            found.is_some()
        });
        found.unwrap()
    }
}

/// The events of a file; a line that is being written is left out, and so is a file that is being
/// renamed.
fn events(path: &Path) -> Vec<Value> {
    let text = std::fs::read_to_string(path).unwrap_or_default();
    let whole = text.rfind('\n').map_or("", |end| &text[..end]);
    whole.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

fn event(atype: &str, result: i64, param: Value) -> (String, i64, Value) {
    (atype.to_owned(), result, param)
}

fn done(atype: &str, param: Value) -> (String, i64, Value) {
    event(atype, 0, param)
}

/// Manual: "mongo Schema Audit Messages".
#[test]
fn what_is_done_to_users_and_roles_is_an_event_before_its_reply() {
    let mut log = Audited::start(&["--auth"]);
    let mut admin = root(&log.server);
    let first = log.events();
    let kinds: Vec<_> = first.iter().map(|event| event["atype"].as_str().unwrap()).collect();
    // The first user comes with a document in `admin.system.version`.
    let expected = [
        "startup",
        "createDatabase",
        "createCollection",
        "createCollection",
        "createUser",
        "authenticate",
    ];
    assert_eq!(kinds, expected);
    assert_eq!(first[0]["local"], json!({ "isSystemUser": true }));
    assert_eq!(first[0]["param"]["startupOptions"]["auditLog"]["destination"], "file");
    let login = &first[5];
    let param = json!({ "user": "root", "db": "admin", "mechanism": "SCRAM-SHA-256" });
    assert_eq!(login["param"], param);
    assert_eq!(login["local"], json!({ "ip": "127.0.0.1", "port": log.server.port }));
    assert_eq!(login["remote"]["port"], admin.stream.local_addr().unwrap().port());
    assert_eq!(login["uuid"]["$type"], "04");
    assert_eq!(login["uuid"], first[4]["uuid"]);
    assert_ne!(login["uuid"], first[0]["uuid"]);
    assert_eq!(login["users"], json!([{ "user": "root", "db": "admin" }]));
    let role = json!({ "role": "dbOwner", "db": "shop" });
    assert!(login["roles"].as_array().unwrap().contains(&role), "{login}");
    let names: Vec<_> = login.as_object().unwrap().keys().map(String::as_str).collect();
    let in_order = ["atype", "ts", "uuid", "local", "remote", "users", "roles", "param", "result"];
    assert_eq!(names, in_order);

    let read = json!([{ "role": "read", "db": "shop" }]);
    let find = json!([{ "resource": { "db": "shop", "collection": "c" }, "actions": ["find"] }]);
    let privileges = doc! { "resource": { "db": "shop", "collection": "c" }, "actions": ["find"] };
    let user = |rest: Value| {
        let mut param = json!({ "user": "u", "db": "shop" });
        param.as_object_mut().unwrap().extend(rest.as_object().unwrap().clone());
        param
    };
    let of_role = |rest: Value| {
        let mut param = json!({ "role": "r", "db": "shop" });
        param.as_object_mut().unwrap().extend(rest.as_object().unwrap().clone());
        param
    };
    let steps = [
        (
            doc! { "createUser": "u", "pwd": "hunter2", "roles": ["read"], "customData": { "a": 1 } },
            user(json!({ "roles": read, "customData": { "a": 1 } })),
        ),
        (doc! { "updateUser": "u", "pwd": "hunter3" }, user(json!({ "passwordChanged": true }))),
        (
            doc! { "updateUser": "u", "customData": {} },
            user(json!({ "passwordChanged": false, "customData": {} })),
        ),
        (doc! { "grantRolesToUser": "u", "roles": ["read"] }, user(json!({ "roles": read }))),
        (doc! { "revokeRolesFromUser": "u", "roles": ["read"] }, user(json!({ "roles": read }))),
        (doc! { "dropUser": "u" }, user(json!({}))),
        (
            doc! { "createRole": "r", "privileges": [&privileges], "roles": [] },
            of_role(json!({ "privileges": find, "roles": [] })),
        ),
        (doc! { "updateRole": "r", "roles": ["read"] }, of_role(json!({ "roles": read }))),
        (
            doc! { "grantPrivilegesToRole": "r", "privileges": [&privileges] },
            of_role(json!({ "privileges": find })),
        ),
        (
            doc! { "revokePrivilegesFromRole": "r", "privileges": [&privileges] },
            of_role(json!({ "privileges": find })),
        ),
        (doc! { "grantRolesToRole": "r", "roles": ["read"] }, of_role(json!({ "roles": read }))),
        (doc! { "revokeRolesFromRole": "r", "roles": ["read"] }, of_role(json!({ "roles": read }))),
        (doc! { "dropRole": "r" }, of_role(json!({}))),
        (doc! { "dropAllUsersFromDatabase": 1 }, json!({ "db": "shop" })),
        (doc! { "dropAllRolesFromDatabase": 1 }, json!({ "db": "shop" })),
    ];
    for (mut command, param) in steps {
        let name = command.keys().next().unwrap().clone();
        command.insert("$db", "shop");
        ok(&mut admin, command);
        let mut news = log.news();
        news.retain(|(atype, ..)| atype != "createCollection");
        assert_eq!(news, [done(&name, param)]);
    }
    // A failure is an event, too, with its code.
    run(&mut admin, doc! { "dropUser": "nobody", "$db": "shop" });
    let param = json!({ "user": "nobody", "db": "shop" });
    assert_eq!(log.news(), [event("dropUser", 11, param)]);
    // Users and roles as documents, whose contents are omitted.
    let set = doc! { "$set": { "roles": [] } };
    let updates = vec![doc! { "q": { "_id": "shop.u" }, "u": set }];
    ok(&mut admin, doc! { "update": "system.users", "updates": updates, "$db": "admin" });
    let param = json!({ "ns": "admin.system.users", "operation": "update" });
    assert_eq!(log.news(), [done("directAuthMutation", param)]);
    ok(&mut admin, doc! { "logApplicationMessage": "a \"b\"\nc", "$db": "admin" });
    assert_eq!(log.news(), [done("applicationMessage", json!({ "msg": "a \"b\"\nc" }))]);
    assert!(!std::fs::read_to_string(log.path()).unwrap().contains("hunter"));
}

#[test]
fn logins_and_what_is_refused_are_events() {
    let mut log = Audited::start(&["--auth"]);
    let mut admin = root(&log.server);
    let create = doc! { "createUser": "u", "pwd": "pw", "roles": ["read"], "$db": "shop" };
    ok(&mut admin, create);
    log.events();
    let login = |result, name: &str| {
        let param = json!({ "user": name, "db": "shop", "mechanism": "SCRAM-SHA-256" });
        event("authenticate", result, param)
    };
    let mut client = log.server.connect();
    for (user, password) in [("u", "wrong"), ("nobody", "pw")] {
        log_in(&mut client, user, "shop", password);
        assert_eq!(log.news(), [login(18, user)]);
    }
    run(&mut client, doc! { "saslStart": 1, "mechanism": "PLAIN", "payload": "", "$db": "shop" });
    let param = json!({ "user": "", "db": "shop", "mechanism": "PLAIN" });
    assert_eq!(log.news(), [event("authenticate", 334, param)]);
    // A login that is replaced by another one, or that ends with its connection.
    let begin = doc! { "saslStart": 1, "mechanism": "SCRAM-SHA-256",
    "payload": "biwsbj11LHI9YWJjZGVmZ2hpamtsbW5vcA==", "$db": "shop" };
    ok(&mut client, begin.clone());
    assert!(log.news().is_empty());
    ok_login(&mut client, "u", "shop", "pw");
    assert_eq!(log.news(), [login(337, "u"), login(0, "u")]);
    let mut half = log.server.connect();
    ok(&mut half, begin);
    drop(half);
    let abandoned = log.await_event("authenticate");
    assert_eq!(
        (abandoned["result"].as_i64(), &abandoned["param"]["user"]),
        (Some(337), &json!("u"))
    );

    // An allowed command is no event, a refused one is; secrets in commands are omitted.
    ok(&mut client, doc! { "find": "c", "$db": "shop" });
    assert!(log.news().is_empty());
    run(&mut client, doc! { "find": "d", "filter": { "a": 1 }, "$db": "other" });
    let args = json!({ "find": "d", "filter": { "a": 1 }, "$db": "other" });
    let param = json!({ "command": "find", "ns": "other.d", "args": args });
    assert_eq!(log.news(), [event("authCheck", 13, param)]);
    let create = doc! { "createUser": "v", "pwd": "hunter2", "roles": [], "$db": "shop" };
    run(&mut client, create);
    let args = json!({ "createUser": "v", "pwd": "xxx", "roles": [], "$db": "shop" });
    let param = json!({ "command": "createUser", "ns": "shop.v", "args": args });
    assert_eq!(log.news(), [event("authCheck", 13, param)]);
    // With the parameter, allowed commands are events, too.
    let parameter = doc! { "setParameter": 1, "auditAuthorizationSuccess": true, "$db": "admin" };
    ok(&mut admin, parameter);
    ok(&mut client, doc! { "find": "c", "$db": "shop" });
    ok(&mut client, doc! { "ping": 1, "$db": "shop" });
    let args = json!({ "find": "c", "$db": "shop" });
    let param = json!({ "command": "find", "ns": "shop.c", "args": args });
    assert_eq!(log.news(), [done("authCheck", param)]);

    // The same for rights that follow from parsed stages.
    for (db, code) in [("shop", 0), ("other", 13)] {
        let command = doc! { "aggregate": "c", "pipeline": [], "cursor": {}, "$db": db };
        run(&mut client, command);
        let args = json!({ "aggregate": "c", "pipeline": [], "cursor": {}, "$db": db });
        let param = json!({ "command": "aggregate", "ns": format!("{db}.c"), "args": args });
        assert_eq!(log.news(), [event("authCheck", code, param)]);
    }

    let metadata = doc! { "driver": { "name": "d", "version": "1" }, "os": { "type": "Linux" } };
    ok(&mut client, doc! { "hello": 1, "client": &metadata, "$db": "admin" });
    let sent = json!({ "driver": { "name": "d", "version": "1" }, "os": { "type": "Linux" } });
    let local = json!({ "ip": "127.0.0.1", "port": log.server.port });
    let param = json!({ "localEndpoint": local, "clientMetadata": sent });
    assert_eq!(log.news(), [done("clientMetadata", param)]);
    ok(&mut client, doc! { "logout": 1, "$db": "shop" });
    let user = json!([{ "user": "u", "db": "shop" }]);
    let logout = |reason: &str, user: &Value| {
        done("logout", json!({ "reason": reason, "initialUsers": user, "updatedUsers": [] }))
    };
    assert_eq!(log.news(), [logout("Explicit logout from shop", &user)]);
    ok_login(&mut client, "u", "shop", "pw");
    log.events();
    drop(client);
    let left = log.await_event("logout");
    let reason = "Implicit logout due to client connection closure";
    assert_eq!((&left["param"]["reason"], &left["users"]), (&json!(reason), &user));
    run(&mut admin, doc! { "shutdown": 1, "$db": "admin" });
    let last = log.await_event("shutdown");
    assert_eq!(last["users"], json!([{ "user": "root", "db": "admin" }]));
}

#[test]
fn definitions_are_events_whichever_command_makes_them() {
    let mut log = Audited::start(&["--storageEngine", "memory"]);
    let mut client = log.server.connect();
    log.events();
    let ns = |name: &str| json!({ "ns": name });
    let index = |state: &str, result: i64| {
        let spec = json!({ "v": 2, "key": { "a": 1 }, "name": "a_1" });
        let param = json!({ "ns": "shop.c", "indexName": "a_1", "indexSpec": spec,
            "indexBuildState": state });
        event("createIndex", result, param)
    };
    let view =
        json!({ "ns": "shop.v", "viewOn": "shop.c", "pipeline": [{ "$match": { "a": 1 } }] });
    let create_index =
        doc! { "createIndexes": "c", "indexes": [{ "key": { "a": 1 }, "name": "a_1" }] };
    let unique = doc! { "key": { "b": 1 }, "name": "b_1", "unique": true };
    let spec = json!({ "v": 2, "key": { "b": 1 }, "name": "b_1", "unique": true });
    let unique_event = |state: &str, result: i64| {
        let param = json!({ "ns": "shop.c", "indexName": "b_1", "indexSpec": spec,
            "indexBuildState": state });
        event("createIndex", result, param)
    };
    let id = Binary { subtype: BinarySubtype::Uuid, bytes: vec![1; 16] };
    let part = |mut command: Document| {
        command.extend(doc! { "lsid": { "id": &id }, "txnNumber": 1_i64, "autocommit": false });
        command
    };
    let documents = vec![doc! { "_id": 1, "b": 1 }, doc! { "_id": 2, "b": 1 }];
    let steps: Vec<(Document, Vec<_>)> = vec![
        // The first write creates the collection.
        (
            doc! { "insert": "c", "documents": documents },
            vec![done("createDatabase", ns("shop")), done("createCollection", ns("shop.c"))],
        ),
        (doc! { "create": "d" }, vec![done("createCollection", ns("shop.d"))]),
        (create_index, vec![index("IndexBuildStarted", 0), index("IndexBuildSucceeded", 0)]),
        (
            doc! { "reIndex": "c" },
            vec![index("IndexBuildStarted", 0), index("IndexBuildSucceeded", 0)],
        ),
        (
            doc! { "dropIndexes": "c", "index": "a_1" },
            vec![done("dropIndex", json!({ "ns": "shop.c", "indexName": "a_1" }))],
        ),
        (
            doc! { "create": "v", "viewOn": "c", "pipeline": [{ "$match": { "a": 1 } }] },
            vec![
                done("createCollection", ns("shop.system.views")),
                done("createCollection", view.clone()),
            ],
        ),
        (doc! { "drop": "v" }, vec![done("dropCollection", view)]),
        (
            doc! { "renameCollection": "shop.d", "to": "shop.e", "$db": "admin" },
            vec![done("renameCollection", json!({ "old": "shop.d", "new": "shop.e" }))],
        ),
        (doc! { "drop": "e" }, vec![done("dropCollection", ns("shop.e"))]),
        (doc! { "drop": "nothing" }, vec![event("dropCollection", 26, ns("shop.nothing"))]),
        // Collections of a transaction are created by its commit.
        (part(doc! { "create": "t", "startTransaction": true }), vec![]),
        (part(doc! { "insert": "t", "documents": [{ "_id": 1 }] }), vec![]),
        (
            part(doc! { "commitTransaction": 1, "$db": "admin" }),
            vec![done("createCollection", ns("shop.t"))],
        ),
    ];
    for (mut command, expected) in steps {
        if !command.contains_key("$db") {
            command.insert("$db", "shop");
        }
        ok(&mut client, command.clone());
        assert_eq!(log.news(), expected, "{command}");
    }
    run(&mut client, doc! { "createIndexes": "c", "indexes": [unique], "$db": "shop" });
    let news = log.events();
    let remote = client.stream.local_addr().unwrap().port();
    assert!(news[..2].iter().all(|event| event["remote"]["port"] == remote), "{news:?}");
    log.seen -= news.len();
    let mut news = log.news();
    news.truncate(2);
    let expected = [unique_event("IndexBuildStarted", 0), unique_event("IndexBuildAborted", 276)];
    assert_eq!(news, expected);
    log.events();
    ok(&mut client, doc! { "dropDatabase": 1, "$db": "shop" });
    let expected = [
        done("dropCollection", ns("shop.c")),
        done("dropCollection", ns("shop.system.views")),
        done("dropCollection", ns("shop.t")),
        done("dropDatabase", ns("shop")),
    ];
    assert_eq!(log.news(), expected);
}

fn set_config(client: &mut Connection, filter: Document, success: bool) -> Document {
    let command = doc! { "setAuditConfig": 1, "filter": filter,
    "auditAuthorizationSuccess": success, "$db": "admin" };
    run(client, command)
}

#[test]
fn a_filter_that_a_command_sets_holds_after_a_restart() {
    let runtime = ["--auditRuntimeConfiguration"];
    let mut log = Audited::start(&runtime);
    let mut client = log.server.connect();
    let get = doc! { "getAuditConfig": 1, "$db": "admin" };
    let before = ok(&mut client, get.clone());
    assert_eq!(before.get_document("filter").unwrap(), &doc! {});
    assert_eq!(set_config(&mut client, doc! { "$no": 1 }, true).get_i32("code").ok(), Some(2));
    log.events();
    let filter = doc! { "atype": { "$in": ["createCollection", "authCheck"] }, "param.ns": "a.c" };
    let reply = set_config(&mut client, filter.clone(), true);
    assert_eq!(reply.get_f64("ok").ok(), Some(1.0), "{reply}");
    let news = log.news();
    let (atype, result, param) = news.last().unwrap();
    assert_eq!((atype.as_str(), *result), ("auditConfigure", 0));
    assert_eq!(param["previous"]["filter"], json!({}));
    assert_eq!(param["config"]["auditAuthorizationSuccess"], json!(true));
    let set = ok(&mut client, get.clone());
    assert_eq!(set.get_document("filter").unwrap(), &filter);
    assert_ne!(set.get("generation"), before.get("generation"));
    let parameter = ok(&mut client, doc! { "getClusterParameter": "auditConfig", "$db": "admin" });
    let parameter = parameter.get_array("clusterParameters").unwrap()[0].as_document().unwrap();
    assert_eq!(parameter.get_document("filter").unwrap(), &filter);
    ok(&mut client, doc! { "create": "b", "$db": "a" });
    ok(&mut client, doc! { "create": "c", "$db": "a" });
    let kinds = |news: Vec<(String, i64, Value)>| -> Vec<String> {
        news.into_iter().map(|(atype, ..)| atype).collect()
    };
    assert_eq!(kinds(log.news()), ["authCheck", "createCollection"]);

    let Audited { folder, mut server, .. } = log;
    ok(&mut client, doc! { "shutdown": 1, "$db": "admin" });
    server.child.wait().unwrap();
    let mut log = Audited::start_in(folder, &runtime);
    let mut client = log.server.connect();
    log.events();
    assert_eq!(ok(&mut client, get).get("generation"), set.get("generation"));
    ok(&mut client, doc! { "find": "c", "$db": "a" });
    ok(&mut client, doc! { "find": "b", "$db": "a" });
    assert_eq!(kinds(log.news()), ["authCheck"]);
    let set = doc! { "auditConfig": { "filter": {}, "auditAuthorizationSuccess": false } };
    ok(&mut client, doc! { "setClusterParameter": set, "$db": "admin" });
    assert_eq!(kinds(log.news()), ["setClusterParameter"]);
}

#[test]
fn without_runtime_configuration_the_filter_is_the_configurations() {
    let mut log = Audited::start(&["--auditFilter", "{ atype: 'applicationMessage' }"]);
    let mut client = log.server.connect();
    let reply = set_config(&mut client, doc! {}, true);
    assert_eq!(reply.get_i32("code").ok(), Some(345), "{reply}");
    let config = ok(&mut client, doc! { "getAuditConfig": 1, "$db": "admin" });
    let filter = doc! { "atype": "applicationMessage" };
    assert_eq!(config.get_document("filter").unwrap(), &filter);
    ok(&mut client, doc! { "create": "c", "$db": "a" });
    ok(&mut client, doc! { "logApplicationMessage": "m", "$db": "admin" });
    assert_eq!(log.news(), [done("applicationMessage", json!({ "msg": "m" }))]);
}

#[test]
fn the_file_is_rotated_with_the_log_or_alone() {
    let mut log = Audited::start(&[]);
    let mut client = log.server.connect();
    let files = |log: &Audited| -> Vec<PathBuf> {
        let entries = std::fs::read_dir(log.folder.path()).unwrap();
        let paths = entries.map(|entry| entry.unwrap().path());
        paths.filter(|path| path != &log.path() && path.is_file()).collect()
    };
    let message = |client: &mut Connection, text: &str| {
        ok(client, doc! { "logApplicationMessage": text, "$db": "admin" });
    };
    message(&mut client, "one");
    ok(&mut client, doc! { "logRotate": "server", "$db": "admin" });
    assert!(files(&log).is_empty());
    ok(&mut client, doc! { "logRotate": "audit", "$db": "admin" });
    let [old] = files(&log).try_into().unwrap();
    assert_eq!(events(&old).last().unwrap()["param"]["msg"], "one");
    let rotated = log.news();
    let status = json!({ "status": "OK", "rotatedLogPath": old.to_str().unwrap(), "errors": [] });
    assert_eq!(rotated, [done("rotateLog", json!({ "logRotationStatus": status }))]);
    message(&mut client, "two");
    assert_eq!(log.news().len(), 1);
    // The names of rotated files contain seconds, so that a name may exist already. Each rotation
    // is an event; the test waits for it before the next one.
    let rotations = |log: &Audited| -> Vec<i64> {
        let all = files(log).into_iter().chain([log.path()]).flat_map(|path| events(&path));
        let all = all.filter(|event| event["atype"] == "rotateLog");
        all.map(|event| event["result"].as_i64().unwrap()).collect()
    };
    let begun = Instant::now();
    let process = rustix::process::Pid::from_child(&log.server.child);
    let mut seen = rotations(&log);
    while seen.iter().filter(|result| **result == 0).count() < 2 {
        rustix::process::kill_process(process, rustix::process::Signal::USR1).unwrap();
        assert!(begun.elapsed() < PATIENCE);
        wait_until("an event", || rotations(&log).len() > seen.len());
        seen = rotations(&log);
    }
    message(&mut client, "three");
    let all: Vec<Value> = files(&log).iter().chain([&log.path()]).flat_map(|p| events(p)).collect();
    let texts: Vec<_> = all.iter().filter_map(|event| event["param"]["msg"].as_str()).collect();
    for text in ["one", "two", "three"] {
        assert_eq!(texts.iter().filter(|it| **it == text).count(), 1, "{texts:?}");
    }
}

#[test]
fn a_file_may_hold_bson() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("audit.bson");
    let options = [
        "--auditDestination",
        "file",
        "--auditFormat",
        "BSON",
        "--auditPath",
        path.to_str().unwrap(),
    ];
    let server = Server::start_with(folder.path(), &options);
    ok(&mut server.connect(), doc! { "logApplicationMessage": "m", "$db": "admin" });
    let bytes = std::fs::read(&path).unwrap();
    let mut rest = bytes.as_slice();
    let mut kinds = Vec::new();
    while !rest.is_empty() {
        let event = Document::from_reader(&mut rest).unwrap();
        assert!(matches!(event.get("ts"), Some(Bson::DateTime(_))));
        kinds.push(event.get_str("atype").unwrap().to_owned());
    }
    assert_eq!(kinds, ["startup", "applicationMessage"]);
}

/// As in the reference. Here the log is a device that is always full.
/// Manual: "Configure Auditing".
#[test]
fn events_may_go_to_the_console() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    let console = std::fs::File::create(path("console")).unwrap();
    let data = path("data");
    std::fs::create_dir_all(&data).unwrap();
    let options = ["--auth", "--auditDestination", "console"];
    let server = Server::start_logging_to(console.into(), &data, &path("log"), &options);
    let _admin = root(&server);
    let events = events(&path("console"));
    let last = events.last().unwrap();
    assert_eq!((last["atype"].as_str(), last["result"].as_i64()), (Some("authenticate"), Some(0)));
    assert_eq!(last["param"]["user"], "root");
}

#[test]
fn a_server_that_cannot_write_an_event_stops_and_does_not_answer() {
    let folder = tempfile::tempdir().unwrap();
    let options = [
        "--auditDestination",
        "file",
        "--auditPath",
        "/dev/full",
        "--auditFilter",
        "{ atype: 'createCollection' }",
    ];
    let mut server = Server::start_with(folder.path(), &options);
    let mut client = server.connect();
    ok(&mut client, doc! { "ping": 1, "$db": "admin" });
    assert!(client.run(&doc! { "create": "c", "$db": "a" }).is_err());
    assert_eq!(server.child.wait().unwrap().code(), Some(1));
}
