//! Sessions of different users: one id names another session for each of them. Manual: "Server
//! Sessions", `killSessions`, `killAllSessions`, `killAllSessionsByPattern`, `$listLocalSessions`,
//! `endSessions`.

use mayfly_value::bson::spec::BinarySubtype;
use mayfly_value::bson::{Binary, Bson, Document, doc};

use crate::authorization::{ok, ok_login, refused, root, run, start};
use crate::common::{Connection, Server};

fn lsid(byte: u8) -> Document {
    doc! { "id": Binary { subtype: BinarySubtype::Uuid, bytes: vec![byte; 16] } }
}

/// The same session of another user, whose digest this is.
fn of_owner(byte: u8, uid: &Bson) -> Document {
    let mut lsid = lsid(byte);
    lsid.insert("uid", uid.clone());
    lsid
}

fn user(server: &Server, admin: &mut Connection, name: &str, role: &str) -> Connection {
    let create = doc! { "createUser": name, "pwd": "pw", "roles": [role], "$db": "shop" };
    ok(admin, create);
    let mut client = server.connect();
    ok_login(&mut client, name, "shop", "pw");
    client
}

fn insert(number: i64, id: i32) -> Document {
    doc! { "insert": "c", "documents": [{ "_id": id }], "lsid": lsid(7), "txnNumber": number, "$db": "shop" }
}

/// A statement of the transaction with this number.
fn statement(number: i64, id: i32) -> Document {
    let mut insert = insert(number, id);
    insert.insert("autocommit", false);
    insert
}

fn begin(number: i64, id: i32) -> Document {
    let mut begin = statement(number, id);
    begin.insert("startTransaction", true);
    begin
}

fn commit(number: i64) -> Document {
    doc! { "commitTransaction": 1, "lsid": lsid(7), "txnNumber": number, "autocommit": false, "$db": "admin" }
}

fn listed(client: &mut Connection, options: Document) -> Vec<Document> {
    let list = doc! { "aggregate": 1, "pipeline": [{ "$listLocalSessions": options }], "cursor": {}, "$db": "shop" };
    let reply = ok(client, list);
    let batch = reply.get_document("cursor").unwrap().get_array("firstBatch").unwrap();
    batch
        .iter()
        .map(|one| one.as_document().unwrap().get_document("_id").unwrap().clone())
        .collect()
}

#[test]
fn one_id_is_another_session_for_each_user() {
    let (_folder, server) = start(&[]);
    let mut admin = root(&server);
    let mut ann = user(&server, &mut admin, "ann", "readWrite");
    let mut bob = user(&server, &mut admin, "bob", "readWrite");

    // Writes that are sent again, and later numbers.
    ok(&mut ann, insert(5, 1));
    ok(&mut bob, insert(1, 2));
    let again = ok(&mut ann, insert(5, 1));
    assert_eq!(again.get_i32("n").ok(), Some(1));
    assert!(!again.contains_key("writeErrors"), "{again}");
    let other = ok(&mut bob, insert(1, 2));
    assert!(!other.contains_key("writeErrors"), "{other}");

    // Concurrent transactions with the same id and number.
    ok(&mut ann, begin(6, 10));
    ok(&mut bob, begin(6, 20));
    ok(&mut ann, statement(6, 11));
    ok(&mut bob, commit(6));
    ok(&mut ann, commit(6));
    let count = ok(&mut ann, doc! { "count": "c", "$db": "shop" });
    assert_eq!(count.get_i32("n").ok(), Some(5), "{count}");

    // A user ends or kills only its own sessions; an unauthenticated client none.
    ok(&mut ann, begin(7, 30));
    let mut nobody = server.connect();
    for client in [&mut bob, &mut nobody] {
        ok(client, doc! { "endSessions": [lsid(7)], "$db": "admin" });
    }
    ok(&mut bob, doc! { "killSessions": [lsid(7)], "$db": "admin" });
    ok(&mut bob, doc! { "killSessions": [], "$db": "admin" });
    ok(&mut ann, statement(7, 31));
    ok(&mut ann, doc! { "killSessions": [], "$db": "admin" });
    assert_eq!(run(&mut ann, commit(7)).get_i32("code").ok(), Some(251));
}

#[test]
fn others_sessions_are_named_by_those_who_may() {
    let (_folder, server) = start(&[]);
    let mut admin = root(&server);
    let mut ann = user(&server, &mut admin, "ann", "readWrite");
    let mut bob = user(&server, &mut admin, "bob", "readWrite");
    ok(&mut ann, begin(1, 1));
    ok(&mut bob, begin(1, 2));

    let own = listed(&mut ann, doc! {});
    assert_eq!(own.len(), 1, "{own:?}");
    let uid = own[0].get("uid").unwrap().clone();
    assert_eq!(listed(&mut admin, doc! { "allUsers": true }).len(), 2);
    let users = doc! { "users": [{ "user": "ann", "db": "shop" }] };
    assert_eq!(listed(&mut admin, users.clone()), own);
    let listing = |options: Document| {
        doc! { "aggregate": 1, "pipeline": [{ "$listLocalSessions": options }], "cursor": {}, "$db": "shop" }
    };
    refused(&mut bob, listing(doc! { "allUsers": true }));
    refused(&mut bob, listing(users));

    // The digest of another user gives no access.
    let mut theirs = statement(1, 3);
    theirs.insert("lsid", of_owner(7, &uid));
    refused(&mut bob, theirs.clone());
    for command in ["killSessions", "endSessions", "refreshSessions"] {
        refused(&mut bob, doc! { command: [of_owner(7, &uid)], "$db": "admin" });
    }
    refused(&mut bob, doc! { "killAllSessions": [], "$db": "admin" });
    ok(&mut ann, theirs);

    let ended = |client: &mut Connection, number: i64| {
        assert_eq!(run(client, commit(number)).get_i32("code").ok(), Some(251));
    };
    let kill_ann = [
        doc! { "killSessions": [of_owner(7, &uid)] },
        doc! { "killAllSessions": [{ "user": "ann", "db": "shop" }] },
        doc! { "killAllSessionsByPattern": [{ "users": [{ "user": "ann", "db": "shop" }] }] },
        doc! { "killAllSessionsByPattern": [{ "uid": uid }] },
    ];
    for (at, mut kill) in kill_ann.into_iter().enumerate() {
        let number = at as i64 + 1;
        if at > 0 {
            ok(&mut ann, begin(number, 1));
        }
        kill.insert("$db", "admin");
        ok(&mut admin, kill);
        ended(&mut ann, number);
    }
    ok(&mut bob, statement(1, 4));
    let roles = doc! { "roles": [{ "role": "readWrite", "db": "shop" }] };
    ok(&mut admin, doc! { "killAllSessionsByPattern": [roles], "$db": "admin" });
    ended(&mut bob, 1);
}

#[test]
fn sessions_before_a_login_are_limited() {
    let (_folder, server) = start(&[]);
    let mut admin = root(&server);
    let mut nobody = server.connect();
    ok(&mut nobody, doc! { "ping": 1, "lsid": lsid(1), "$db": "admin" });
    refused(&mut nobody, doc! { "startSession": 1, "$db": "admin" });
    assert!(listed(&mut admin, doc! { "allUsers": true }).is_empty());
}
