//! A server with `--auth`, and a minimal client that logs in by SCRAM.

use std::io::Write;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use hmac::{Hmac, KeyInit, Mac};
use mayfly_value::bson::spec::BinarySubtype;
use mayfly_value::bson::{Binary, Bson, Document, doc};
use sha2::{Digest, Sha256};

use crate::common::{Connection, Server, message};

pub(crate) fn start(options: &[&str]) -> (tempfile::TempDir, Server) {
    let folder = tempfile::tempdir().unwrap();
    let options = [&["--auth", "--storageEngine", "memory"], options].concat();
    let server = Server::start_with(folder.path(), &options);
    (folder, server)
}

pub(crate) fn run(client: &mut Connection, command: Document) -> Document {
    let reply = client.run(&command).unwrap();
    Document::from_reader(reply.as_bytes()).unwrap()
}

pub(crate) fn ok(client: &mut Connection, command: Document) -> Document {
    let reply = run(client, command.clone());
    assert_eq!(reply.get_f64("ok").ok(), Some(1.0), "{command}: {reply}");
    reply
}

pub(crate) fn refused(client: &mut Connection, command: Document) -> String {
    let reply = run(client, command.clone());
    assert_eq!(reply.get_i32("code").ok(), Some(13), "{command}: {reply}");
    reply.get_str("errmsg").unwrap().to_owned()
}

pub(crate) fn bytes(text: &str) -> Bson {
    let bytes = text.as_bytes().to_vec();
    Bson::Binary(Binary { subtype: BinarySubtype::Generic, bytes })
}

pub(crate) fn text(reply: &Document) -> String {
    String::from_utf8(reply.get_binary_generic("payload").unwrap().clone()).unwrap()
}

fn keyed(key: &[u8], data: &[u8]) -> Vec<u8> {
    let mut mac = Hmac::<Sha256>::new_from_slice(key).unwrap();
    mac.update(data);
    mac.finalize().into_bytes().to_vec()
}

/// The client's side of SCRAM-SHA-256 after the server's first message.
pub(crate) fn proof(bare: &str, first: &str, password: &str) -> String {
    let part = |name: &str| first.split(',').find_map(|part| part.strip_prefix(name)).unwrap();
    let salt = STANDARD.decode(part("s=")).unwrap();
    let mut block = keyed(password.as_bytes(), &[salt.as_slice(), &[0, 0, 0, 1]].concat());
    let mut salted = block.clone();
    for _ in 1..part("i=").parse::<u32>().unwrap() {
        block = keyed(password.as_bytes(), &block);
        salted.iter_mut().zip(&block).for_each(|(byte, other)| *byte ^= other);
    }
    let key = keyed(&salted, b"Client Key");
    let start = format!("c=biws,r={}", part("r="));
    let signed = format!("{bare},{first},{start}");
    let signature = keyed(&Sha256::digest(&key), signed.as_bytes());
    let proof: Vec<u8> = key.iter().zip(signature).map(|(a, b)| a ^ b).collect();
    format!("{start},p={}", STANDARD.encode(proof))
}

/// Logs in; returns the last reply, successful or not.
pub(crate) fn log_in(client: &mut Connection, user: &str, db: &str, password: &str) -> Document {
    let bare = format!("n={user},r=abcdefghijklmnop");
    let first = run(
        client,
        doc! { "saslStart": 1, "mechanism": "SCRAM-SHA-256", "payload": bytes(&format!("n,,{bare}")),
        "options": { "skipEmptyExchange": true }, "$db": db },
    );
    if first.get_f64("ok").ok() != Some(1.0) {
        return first;
    }
    let last = proof(&bare, &text(&first), password);
    run(client, doc! { "saslContinue": 1, "conversationId": 1, "payload": bytes(&last), "$db": db })
}

pub(crate) fn root(server: &Server) -> Connection {
    let mut client = server.connect();
    let roles = doc! { "role": "dbOwner", "db": "shop" };
    let create =
        doc! { "createUser": "root", "pwd": "pw", "roles": ["root", roles], "$db": "admin" };
    ok(&mut client, create);
    ok_login(&mut client, "root", "admin", "pw");
    client
}

pub(crate) fn ok_login(client: &mut Connection, user: &str, db: &str, password: &str) {
    let reply = log_in(client, user, db, password);
    assert_eq!(reply.get_f64("ok").ok(), Some(1.0), "{reply}");
    assert_eq!(reply.get_bool("done").ok(), Some(true), "{reply}");
}

#[test]
fn before_the_first_user_exists_clients_can_only_create_it() {
    let (_folder, server) = start(&[]);
    let mut client = server.connect();
    for command in [
        doc! { "hello": 1, "$db": "admin" },
        doc! { "ping": 1, "$db": "admin" },
        doc! { "connectionStatus": 1, "$db": "admin" },
    ] {
        ok(&mut client, command);
    }
    ok(&mut client, doc! { "buildInfo": 1, "$db": "admin" });
    let find = doc! { "find": "c", "$db": "test" };
    assert_eq!(refused(&mut client, find.clone()), "Command find requires authentication");
    refused(&mut client, doc! { "createUser": "u", "pwd": "pw", "roles": [], "$db": "test" });
    refused(&mut client, doc! { "dropUser": "u", "$db": "admin" });
    refused(&mut client, doc! { "usersInfo": 1, "$db": "admin" });
    let mut admin = root(&server);
    // The localhost exception is over.
    refused(&mut client, doc! { "createUser": "v", "pwd": "pw", "roles": [], "$db": "admin" });
    refused(&mut client, find.clone());
    ok(&mut admin, find);
}

#[test]
fn wrong_users_and_wrong_passwords_look_the_same() {
    let (_folder, server) = start(&[]);
    let _admin = root(&server);
    let mut replies = Vec::new();
    for (user, db, password) in
        [("root", "admin", "wrong"), ("nobody", "admin", "pw"), ("root", "test", "pw")]
    {
        let mut client = server.connect();
        let mut reply = log_in(&mut client, user, db, password);
        assert_eq!(reply.get_i32("code").ok(), Some(18), "{reply}");
        reply.remove("$clusterTime");
        reply.remove("operationTime");
        replies.push(reply);
        refused(&mut client, doc! { "find": "c", "$db": "test" });
    }
    assert!(replies.iter().all(|reply| *reply == replies[0]), "{replies:?}");
    assert_eq!(replies[0].get_str("errmsg").ok(), Some("Authentication failed."));
}

#[test]
fn users_do_what_their_roles_allow_and_changes_hold_at_once() {
    let (_folder, server) = start(&[]);
    let mut admin = root(&server);
    for (user, role) in [("reader", "read"), ("writer", "readWrite")] {
        let create = doc! { "createUser": user, "pwd": "pw", "roles": [role], "$db": "shop" };
        ok(&mut admin, create);
    }
    let (mut reader, mut writer) = (server.connect(), server.connect());
    ok_login(&mut reader, "reader", "shop", "pw");
    ok_login(&mut writer, "writer", "shop", "pw");

    let insert = doc! { "insert": "c", "documents": [{ "_id": 1 }, { "_id": 2 }], "$db": "shop" };
    let shown = refused(&mut reader, insert.clone());
    assert!(shown.starts_with("not authorized on shop to execute command { insert: "), "{shown}");
    ok(&mut writer, insert);
    let find = doc! { "find": "c", "batchSize": 1, "$db": "shop" };
    let reply = ok(&mut reader, find.clone());
    // A cursor belongs to the user that made it.
    let cursor = reply.get_document("cursor").unwrap().get_i64("id").unwrap();
    let more = doc! { "getMore": cursor, "collection": "c", "$db": "shop" };
    refused(&mut writer, more.clone());
    let kill = doc! { "killCursors": "c", "cursors": [cursor], "$db": "shop" };
    assert_eq!(ok(&mut writer, kill).get_array("cursorsNotFound").unwrap().len(), 1);
    // Releasing the memory of a cursor needs a right on its collection that no role has.
    let release = doc! { "releaseMemory": [cursor], "$db": "shop" };
    refused(&mut reader, release.clone());
    let resource = doc! { "db": "shop", "collection": "c" };
    let privilege = doc! { "resource": resource, "actions": ["releaseMemoryAnyCursor"] };
    let role =
        doc! { "createRole": "release", "privileges": [privilege], "roles": [], "$db": "shop" };
    ok(&mut admin, role);
    refused(&mut admin, release.clone());
    ok(&mut admin, doc! { "grantRolesToUser": "writer", "roles": ["release"], "$db": "shop" });
    assert_eq!(ok(&mut writer, release).get_array("cursorsReleased").unwrap().len(), 1);
    ok(&mut reader, more);

    for denied in [
        doc! { "find": "c", "$db": "other" },
        doc! { "find": "system.users", "$db": "admin" },
        doc! { "aggregate": "c", "pipeline": [{ "$out": "d" }], "cursor": {}, "$db": "shop" },
        doc! { "aggregate": "c", "pipeline": [{ "$lookup": { "from": { "db": "other", "coll": "x" }, "as": "y", "pipeline": [] } }],
        "cursor": {}, "$db": "shop" },
        doc! { "aggregate": "c", "pipeline": [{ "$facet": { "a": [{ "$unionWith": { "coll": "system.profile" } }] } }],
        "cursor": {}, "$db": "shop" },
        doc! { "explain": { "update": "c", "updates": [{ "q": {}, "u": { "$set": { "a": 1 } } }] }, "$db": "shop" },
        doc! { "findAndModify": "c", "query": {}, "remove": true, "$db": "shop" },
        doc! { "bulkWrite": 1, "ops": [{ "insert": 0, "document": {} }], "nsInfo": [{ "ns": "shop.c" }], "$db": "admin" },
        doc! { "create": "v", "viewOn": "system.profile", "pipeline": [], "$db": "shop" },
        doc! { "renameCollection": "shop.c", "to": "shop.d", "$db": "admin" },
        doc! { "listCollections": 1, "$db": "other" },
        doc! { "currentOp": 1, "$db": "admin" },
        doc! { "shutdown": 1, "$db": "admin" },
        doc! { "serverStatus": 1, "$db": "admin" },
        doc! { "createUser": "x", "pwd": "y", "roles": ["root"], "$db": "admin" },
        doc! { "updateUser": "reader", "roles": ["dbOwner"], "$db": "shop" },
        doc! { "listDatabases": 1, "authorizedDatabases": false, "$db": "admin" },
    ] {
        refused(&mut reader, denied);
    }
    let names = |reply: &Document, list: &str| -> Vec<String> {
        let list = match reply.get_document("cursor") {
            Ok(cursor) => cursor.get_array("firstBatch").unwrap(),
            Err(_) => reply.get_array(list).unwrap(),
        };
        let name = |one: &Bson| one.as_document().unwrap().get_str("name").unwrap().to_owned();
        list.iter().map(name).collect()
    };
    let listed = ok(&mut reader, doc! { "listDatabases": 1, "$db": "admin" });
    assert_eq!(names(&listed, "databases"), ["shop"]);
    let own = doc! { "listCollections": 1, "nameOnly": true, "authorizedCollections": true };
    let mut of_shop = own.clone();
    of_shop.insert("$db", "shop");
    assert_eq!(names(&ok(&mut reader, of_shop), ""), ["c"]);
    let mut of_admin = own;
    of_admin.insert("$db", "admin");
    assert!(names(&ok(&mut reader, of_admin), "").is_empty());
    ok(&mut reader, doc! { "usersInfo": "reader", "$db": "shop" });
    refused(&mut reader, doc! { "usersInfo": "writer", "$db": "shop" });

    // A policy with an archive writes to another collection.
    let index = |to: &str| {
        let policy = doc! { "archive": { "collection": to } };
        let index =
            doc! { "key": { "at": 1 }, "name": to, "expireAfterSeconds": 60, "ttl": policy };
        doc! { "createIndexes": "c", "indexes": [index], "$db": "shop" }
    };
    refused(&mut writer, index("other.c"));
    ok(&mut writer, index("shop.old"));

    // Changes take effect with the next command, however they were written.
    ok(&mut admin, doc! { "grantRolesToUser": "reader", "roles": ["readWrite"], "$db": "shop" });
    ok(&mut reader, doc! { "insert": "c", "documents": [{ "_id": 3 }], "$db": "shop" });
    ok(
        &mut admin,
        doc! { "revokeRolesFromUser": "reader", "roles": ["readWrite", "read"], "$db": "shop" },
    );
    refused(&mut reader, find.clone());
    let privileges = doc! { "resource": { "db": "shop", "collection": "c" }, "actions": ["find"] };
    let role =
        doc! { "createRole": "only-c", "privileges": [privileges], "roles": [], "$db": "shop" };
    ok(&mut admin, role);
    ok(&mut admin, doc! { "grantRolesToUser": "reader", "roles": ["only-c"], "$db": "shop" });
    ok(&mut reader, find.clone());
    refused(&mut reader, doc! { "find": "d", "$db": "shop" });
    // No role but the internal one reaches the documents of roles.
    let create = doc! { "createUser": "inner", "pwd": "pw", "roles": ["__system"], "$db": "admin" };
    ok(&mut admin, create);
    let mut inner = server.connect();
    ok_login(&mut inner, "inner", "admin", "pw");
    ok(
        &mut inner,
        doc! { "update": "system.roles", "$db": "admin",
        "updates": [{ "q": { "_id": "shop.only-c" }, "u": { "$set": { "privileges": "damaged" } } }] },
    );
    refused(&mut reader, find.clone());
    ok(&mut admin, doc! { "dropUser": "writer", "$db": "shop" });
    let shown = refused(&mut writer, find);
    assert_eq!(shown, "Command find requires authentication");
}

/// The rights to the collections of a view are checked for its definer. The client needs rights to
/// all collections that its stages name, at any depth, and a client that may not read a collection
/// gets no information about it from errors. Manual: "Views", "Access Control"; "$lookup",
/// "Behavior".
#[test]
fn stages_of_a_pipeline_need_the_rights_of_what_they_name() {
    let (_folder, server) = start(&[]);
    let mut admin = root(&server);
    ok(&mut admin, doc! { "insert": "c", "documents": [{ "_id": 1, "x": 3 }], "$db": "shop" });
    let view = doc! { "create": "v", "viewOn": "c", "pipeline": [joined_with("c")], "$db": "shop" };
    ok(&mut admin, view);
    let resource = doc! { "db": "shop", "collection": "v" };
    let privileges = doc! { "resource": resource, "actions": ["find"] };
    let role =
        doc! { "createRole": "only-v", "privileges": [privileges], "roles": [], "$db": "shop" };
    ok(&mut admin, role);
    for (user, role) in [("viewer", "only-v"), ("writer", "readWrite")] {
        let create = doc! { "createUser": user, "pwd": "pw", "roles": [role], "$db": "shop" };
        ok(&mut admin, create);
    }
    let (mut viewer, mut writer) = (server.connect(), server.connect());
    ok_login(&mut viewer, "viewer", "shop", "pw");
    ok_login(&mut writer, "writer", "shop", "pw");
    let aggregate = |on: &str, stages: Vec<Document>| {
        doc! { "aggregate": on, "pipeline": stages, "cursor": {}, "$db": "shop" }
    };
    let explained = |on: &str, stages: Vec<Document>| {
        let inner = doc! { "aggregate": on, "pipeline": stages, "cursor": {} };
        doc! { "explain": inner, "verbosity": "queryPlanner", "$db": "shop" }
    };
    let union = doc! { "$unionWith": "c" };

    for read in [
        doc! { "find": "v", "sort": { "x": 1 }, "projection": { "x": 1 }, "$db": "shop" },
        doc! { "count": "v", "query": { "x": 3 }, "$db": "shop" },
        doc! { "distinct": "v", "key": "x", "$db": "shop" },
        aggregate("v", vec![doc! { "$match": { "x": 3 } }, doc! { "$unionWith": "v" }]),
        explained("v", vec![doc! { "$match": { "x": 3 } }]),
        doc! { "explain": { "find": "v", "filter": { "x": 3 } }, "$db": "shop" },
    ] {
        ok(&mut viewer, read);
    }
    // A stage that is only parsed when its variable has a value, and a stage after it.
    let range = doc! { "$set": { "r": { "$range": [0, "$$x"] } } };
    let late = |stage: &Document| {
        let stages = [range.clone(), stage.clone()];
        doc! { "$lookup": { "from": "v", "let": { "x": "$x" }, "pipeline": stages, "as": "l" } }
    };
    ok(&mut viewer, aggregate("v", vec![late(&doc! { "$unionWith": "v" })]));
    for stages in [vec![union.clone()], vec![joined_with("c")], vec![late(&union)]] {
        refused(&mut viewer, aggregate("v", stages.clone()));
        let shown = refused(&mut viewer, explained("v", stages));
        assert!(
            shown.starts_with("not authorized on shop to execute command { explain: "),
            "{shown}"
        );
    }

    // Errors of a pipeline are returned to clients with the right to read.
    for (client, on) in [(&mut viewer, "v"), (&mut writer, "c")] {
        for (stage, code) in
            [(doc! { "$nothing": 1 }, 40324), (doc! { "$lookup": { "from": on } }, 40414)]
        {
            let reply = run(client, aggregate(on, vec![stage]));
            assert_eq!(reply.get_i32("code").ok(), Some(code), "{reply}");
        }
    }
    refused(&mut viewer, aggregate("c", vec![doc! { "$nothing": 1 }]));
    refused(&mut viewer, explained("c", vec![doc! { "$nothing": 1 }]));

    // Defining a view needs the rights to its collections, also in the scope of a variable.
    let define = |name: &str, stage: Document| doc! { "create": name, "viewOn": "c", "pipeline": [stage], "$db": "shop" };
    ok(&mut writer, define("a", late(&union)));
    refused(&mut writer, define("b", late(&doc! { "$unionWith": "system.profile" })));
    let mut out = aggregate("c", vec![doc! { "$out": "o" }]);
    ok(&mut writer, out.clone());
    out.insert("bypassDocumentValidation", true);
    refused(&mut writer, out);
}

fn joined_with(from: &str) -> Document {
    doc! { "$lookup": { "from": from, "localField": "_id", "foreignField": "_id", "as": "j" } }
}

#[test]
fn restrictions_decide_from_where() {
    let (_folder, server) = start(&[]);
    let mut admin = root(&server);
    for (user, source) in [("near", "127.0.0.0/8"), ("far", "10.0.0.1")] {
        ok(
            &mut admin,
            doc! { "createUser": user, "pwd": "pw", "roles": ["read"], "$db": "shop",
            "authenticationRestrictions": [{ "clientSource": [source] }] },
        );
    }
    ok_login(&mut server.connect(), "near", "shop", "pw");
    let reply = log_in(&mut server.connect(), "far", "shop", "pw");
    assert_eq!(reply.get_i32("code").ok(), Some(18), "{reply}");
}

#[test]
fn speculative_logins_and_logouts() {
    let (_folder, server) = start(&[]);
    let _admin = root(&server);
    let mut client = server.connect();
    let bare = "n=root,r=abcdefghijklmnop";
    let first = doc! { "saslStart": 1, "mechanism": "SCRAM-SHA-256", "payload": bytes(&format!("n,,{bare}")), "db": "admin" };
    let hello = doc! { "hello": 1, "saslSupportedMechs": "admin.root", "speculativeAuthenticate": first, "$db": "admin" };
    let reply = ok(&mut client, hello);
    let offered = reply.get_array("saslSupportedMechs").unwrap();
    assert_eq!(offered, &[Bson::from("SCRAM-SHA-1"), Bson::from("SCRAM-SHA-256")]);
    let speculative = reply.get_document("speculativeAuthenticate").unwrap();
    let last = proof(bare, &text(speculative), "pw");
    let next = |payload: &str| {
        doc! { "saslContinue": 1, "conversationId": 1, "payload": bytes(payload), "$db": "admin" }
    };
    assert_eq!(ok(&mut client, next(&last)).get_bool("done").ok(), Some(false));
    // Without skipEmptyExchange the login is not over before the client has agreed.
    refused(&mut client, doc! { "find": "c", "$db": "test" });
    assert_eq!(ok(&mut client, next("")).get_bool("done").ok(), Some(true));
    let status =
        ok(&mut client, doc! { "connectionStatus": 1, "showPrivileges": true, "$db": "admin" });
    let info = status.get_document("authInfo").unwrap();
    assert_eq!(
        info.get_array("authenticatedUsers").unwrap(),
        &[Bson::from(doc! { "user": "root", "db": "admin" })]
    );
    assert!(!info.get_array("authenticatedUserPrivileges").unwrap().is_empty());
    ok(&mut client, doc! { "find": "c", "$db": "test" });
    ok(&mut client, doc! { "logout": 1, "$db": "admin" });
    refused(&mut client, doc! { "find": "c", "$db": "test" });
}

#[test]
fn passwords_are_not_shown() {
    let (_folder, server) = start(&["-vvvvv"]);
    let mut admin = root(&server);
    ok(&mut admin, doc! { "profile": 2, "slowms": 0, "$db": "shop" });
    let secret = "hunter2hunter2";
    let create = doc! { "createUser": "u", "pwd": secret, "roles": ["read"], "$db": "shop" };
    ok(&mut admin, create.clone());
    let mut shown = vec![run(&mut admin, create).to_string()];
    ok(&mut admin, doc! { "updateUser": "u", "pwd": secret, "$db": "shop" });
    let mut user = server.connect();
    ok_login(&mut user, "u", "shop", secret);
    shown.push(refused(
        &mut user,
        doc! { "createUser": "v", "pwd": secret, "roles": ["root"], "$db": "admin" },
    ));
    shown.push(
        run(
            &mut admin,
            doc! { "createUser": "w", "pwd": { "x": secret }, "roles": [], "$db": "shop" },
        )
        .to_string(),
    );
    let profile = ok(
        &mut admin,
        doc! { "aggregate": "system.profile", "$db": "shop", "cursor": { "batchSize": 1000 },
        "pipeline": [{ "$match": {} }] },
    );
    shown.push(profile.to_string());
    assert!(shown.iter().all(|text| !text.contains(secret)), "{shown:#?}");
    let log = ok(&mut admin, doc! { "getLog": "global", "$db": "admin" }).to_string();
    assert!(log.contains("Slow query") && log.contains("createUser"), "{log}");
    assert!(!log.contains(secret), "{log}");
}

/// Manual: "$currentOp", `allUsers`; "killOp", "Access Control".
#[test]
fn users_see_and_end_their_own_operations() {
    let (_folder, server) = start(&[]);
    let mut admin = root(&server);
    for user in ["ann", "bob"] {
        let create = doc! { "createUser": user, "pwd": "pw", "roles": ["read"], "$db": "shop" };
        ok(&mut admin, create);
    }
    ok(&mut admin, doc! { "insert": "c", "documents": [{}], "$db": "shop" });
    let connect = |user: &str| {
        let mut client = server.connect();
        ok_login(&mut client, user, "shop", "pw");
        client
    };
    let (mut ann, mut bob, mut busy) = (connect("ann"), connect("bob"), connect("ann"));
    let script =
        doc! { "$function": { "body": "function() { for (;;); }", "args": [], "lang": "js" } };
    let endless =
        doc! { "find": "c", "filter": { "$expr": script }, "comment": "endless", "$db": "shop" };
    busy.stream.write_all(&message(&endless)).unwrap();
    let listed = |options: Document| {
        doc! { "aggregate": 1, "cursor": {}, "$db": "admin", "pipeline": [
            { "$currentOp": options }, { "$match": { "command.comment": "endless" } },
        ] }
    };
    let found = |client: &mut Connection, options: Document| {
        let reply = ok(client, listed(options));
        let batch = reply.get_document("cursor").unwrap().get_array("firstBatch").unwrap().clone();
        batch.first().map(|op| op.as_document().unwrap().get_i32("opid").unwrap())
    };
    let began = std::time::Instant::now();
    let op = loop {
        if let Some(op) = found(&mut ann, doc! {}) {
            break op;
        }
        assert!(began.elapsed().as_secs() < 60, "the script does not run");
    };
    assert_eq!(found(&mut bob, doc! { "allUsers": false }), None);
    assert_eq!(found(&mut admin, doc! { "allUsers": true }), Some(op));
    refused(&mut ann, listed(doc! { "allUsers": true }));
    refused(&mut ann, doc! { "currentOp": 1, "$db": "admin" });
    refused(&mut ann, doc! { "currentOp": 1, "$ownOps": false, "$db": "admin" });
    let own = doc! { "currentOp": 1, "$ownOps": true, "$db": "admin" };
    let shown =
        |client: &mut Connection| {
            let reply = ok(client, own.clone());
            reply.get_array("inprog").unwrap().iter().any(|one| {
                one.as_document().is_some_and(|one| one.get_i32("opid").ok() == Some(op))
            })
        };
    assert!(shown(&mut ann) && !shown(&mut bob));
    let kill = doc! { "killOp": 1, "op": op, "$db": "admin" };
    refused(&mut bob, kill.clone());
    ok(&mut ann, kill);
    let reply = Document::from_reader(busy.read_reply().unwrap().as_bytes()).unwrap();
    assert_eq!(reply.get_i32("code").ok(), Some(11601), "{reply}");
}

/// Manual: "Built-In Roles", `restore`; "Privilege Actions", `applyOps`, `forceUUID`. Replaying a
/// log needs the rights of its entries.
#[test]
fn entries_of_a_log_need_the_rights_of_what_they_do() {
    let (_folder, server) = start(&[]);
    let mut admin = root(&server);
    let of_log = doc! { "resource": { "cluster": true }, "actions": ["applyOps"] };
    let role =
        doc! { "createRole": "replays", "privileges": [of_log], "roles": [], "$db": "admin" };
    ok(&mut admin, role);
    for (user, roles) in [("restores", vec!["restore"]), ("replays", vec!["replays"])] {
        let create = doc! { "createUser": user, "pwd": "pw", "roles": roles, "$db": "admin" };
        ok(&mut admin, create);
    }
    let (mut restores, mut replays) = (server.connect(), server.connect());
    ok_login(&mut restores, "restores", "admin", "pw");
    ok_login(&mut replays, "replays", "admin", "pw");
    let apply = |entry: Document| doc! { "applyOps": [entry], "$db": "admin" };
    let uuid = mayfly_value::bson::Uuid::from_bytes([7; 16]);
    let create = doc! { "op": "c", "ns": "shop.$cmd", "ui": uuid, "o": { "create": "c" } };
    let insert = doc! { "op": "i", "ns": "shop.c", "o": { "_id": 1 } };
    let index = doc! { "op": "c", "ns": "shop.$cmd",
    "o": { "createIndexes": "c", "v": 2, "key": { "a": 1 }, "name": "a" } };
    let allowed = [create, insert.clone(), index];
    let mut named = insert.clone();
    named.insert("ui", uuid);
    let refused_all = [
        doc! { "op": "u", "ns": "shop.c", "o2": { "_id": 1 }, "o": { "$v": 2, "diff": {} } },
        doc! { "op": "d", "ns": "shop.c", "o": { "_id": 1 } },
        doc! { "op": "i", "ns": "admin.system.roles", "o": { "_id": "a.b" } },
        doc! { "op": "c", "ns": "shop.$cmd", "o": { "dropDatabase": 1 } },
        doc! { "op": "c", "ns": "shop.$cmd", "o": { "applyOps": [insert] } },
        doc! { "op": "c", "ns": "shop.$cmd", "o": { "nothing": 1 } },
        doc! { "op": "n", "ns": "", "o": {} },
        doc! { "op": "i" },
        named,
    ];
    for entry in allowed.iter().chain(&refused_all) {
        refused(&mut replays, apply(entry.clone()));
    }
    ok(&mut replays, doc! { "applyOps": [], "$db": "admin" });
    for entry in allowed {
        ok(&mut restores, apply(entry));
    }
    for entry in refused_all {
        refused(&mut restores, apply(entry.clone()));
    }
    // One entry that may not be applied keeps the others from being applied.
    let other = doc! { "op": "i", "ns": "shop.c", "o": { "_id": 2 } };
    let removal = doc! { "op": "d", "ns": "shop.c", "o": { "_id": 1 } };
    refused(&mut restores, doc! { "applyOps": [other, removal], "$db": "admin" });
    let count = ok(&mut admin, doc! { "count": "c", "$db": "shop" });
    assert_eq!(count.get_i32("n").ok(), Some(1), "{count}");
}

/// The monitoring users of agents and exporters: `clusterMonitor` on `admin`, and `read` on
/// `local`. Manual: "Built-In Roles", `userAdminAnyDatabase`, differs from what `rolesInfo` shows.
#[test]
fn roles_on_local_and_config_may_be_granted() {
    let (_folder, server) = start(&[]);
    let mut root = root(&server);
    let create = |name: &str, roles: Vec<Document>| {
        doc! { "createUser": name, "pwd": "pw", "roles": roles, "$db": "admin" }
    };
    let administrator = vec![doc! { "role": "userAdminAnyDatabase", "db": "admin" }];
    ok(&mut root, create("administrator", administrator));
    let mut administrator = server.connect();
    ok_login(&mut administrator, "administrator", "admin", "pw");
    for (number, client) in [&mut root, &mut administrator].into_iter().enumerate() {
        let name = format!("monitor{number}");
        let roles = vec![
            doc! { "role": "clusterMonitor", "db": "admin" },
            doc! { "role": "read", "db": "local" },
        ];
        ok(client, create(&name, roles));
        let roles = vec![doc! { "role": "read", "db": "config" }];
        ok(client, doc! { "grantRolesToUser": &name, "roles": roles.clone(), "$db": "admin" });
        let privilege =
            doc! { "resource": { "db": "local", "collection": "" }, "actions": ["find"] };
        let role = format!("role{number}");
        let create_role = doc! { "createRole": &role, "privileges": [privilege], "roles": roles.clone(), "$db": "admin" };
        ok(client, create_role);
        let mut monitor = server.connect();
        ok_login(&mut monitor, &name, "admin", "pw");
        ok(&mut monitor, doc! { "find": "oplog.rs", "limit": 1, "$db": "local" });
        ok(&mut monitor, doc! { "find": "settings", "$db": "config" });
        refused(&mut monitor, doc! { "insert": "c", "documents": [{}], "$db": "local" });
        ok(client, doc! { "revokeRolesFromUser": &name, "roles": roles, "$db": "admin" });
    }
    // They have no right to create users and roles.
    let mut create = create("elsewhere", Vec::new());
    create.insert("$db", "local");
    assert_eq!(run(&mut root, create).get_i32("code").ok(), Some(2));
}
