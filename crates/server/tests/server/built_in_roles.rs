//! What each built-in role may do, command by command. The table is written down from the manual, not from the code: which action a
//! command needs is said by "Privilege Actions" and by the command's own page, which roles have it by the tables of "Built-In Roles"
//! and, where those are silent, by what `rolesInfo` with `showPrivileges` shows on the 8.0 line.

use mayfly_value::bson::{Document, doc};

use crate::authorization::{ok, ok_login, root, run, start};

/// A letter for each role: those of the database `shop` in lower case, those of `admin` in upper case.
const ROLES: &[(char, &str)] = &[
    ('r', "read"),
    ('w', "readWrite"),
    ('d', "dbAdmin"),
    ('u', "userAdmin"),
    ('e', "enableSharding"),
    ('o', "dbOwner"),
    ('M', "clusterMonitor"),
    ('G', "clusterManager"),
    ('H', "hostManager"),
    ('A', "clusterAdmin"),
    ('B', "backup"),
    ('S', "restore"),
    ('R', "readAnyDatabase"),
    ('W', "readWriteAnyDatabase"),
    ('D', "dbAdminAnyDatabase"),
    ('U', "userAdminAnyDatabase"),
    ('X', "root"),
    ('Y', "__system"),
];

/// Commands with their database, and the roles that may run them.
#[rustfmt::skip]
fn table() -> Vec<(&'static str, Document, &'static str)> {
    let over = |stage: Document| doc! { "aggregate": "c", "pipeline": [stage], "cursor": {} };
    vec![
        // Query actions: tables "read", "readAnyDatabase", "backup" (find).
        ("shop", doc! { "find": "c" }, "rwoBRWXY"),
        ("shop", doc! { "count": "c" }, "rwoBRWXY"),
        ("shop", doc! { "distinct": "c", "key": "a" }, "rwoBRWXY"),
        ("shop", doc! { "aggregate": "c", "pipeline": [], "cursor": {} }, "rwoBRWXY"),
        ("shop", doc! { "explain": { "find": "c" } }, "rwoBRWXY"),
        // Table "read": changeStream; "readWrite": insert and remove, which $out and $merge need.
        ("shop", over(doc! { "$changeStream": {} }), "rwoRWXY"),
        ("shop", over(doc! { "$out": "e" }), "woWXY"),
        ("shop", over(doc! { "$merge": { "into": "e", "whenMatched": "fail" } }), "woWXY"),
        // Tables "read", "dbAdmin", "clusterMonitor"; `rolesInfo` of "backup": collStats. Table "clusterMonitor" alone: indexStats.
        ("shop", over(doc! { "$collStats": { "count": {} } }), "rwdoMABRWDXY"),
        ("shop", over(doc! { "$indexStats": {} }), "MAXY"),
        // Tables "readWrite", "restore" (insert), "dbAdmin", "restore" (bypassDocumentValidation).
        ("shop", doc! { "insert": "c", "documents": [{ "a": 1 }] }, "woSWXY"),
        ("shop", doc! { "insert": "c", "documents": [{ "a": 1 }], "bypassDocumentValidation": true }, "oSXY"),
        ("shop", doc! { "update": "c", "updates": [{ "q": { "a": 1 }, "u": { "$set": { "b": 1 } } }] }, "woWXY"),
        ("shop", doc! { "delete": "c", "deletes": [{ "q": { "a": 2 }, "limit": 0 }] }, "woWXY"),
        ("shop", doc! { "findAndModify": "c", "query": { "a": 2 }, "remove": true }, "woWXY"),
        // Tables "readWrite", "dbAdmin", "restore": actions on definitions.
        ("shop", doc! { "create": "c" }, "wdoSWDXY"),
        ("shop", doc! { "createIndexes": "c", "indexes": [{ "key": { "a": 1 }, "name": "a" }] }, "wdoSWDXY"),
        ("shop", doc! { "dropIndexes": "c", "index": "nothing" }, "wdoWDXY"),
        ("shop", doc! { "drop": "nothing" }, "wdoSWDXY"),
        ("shop", doc! { "convertToCapped": "nothing", "size": 10000 }, "wdoSWDXY"),
        // Tables "dbAdmin" and, for collMod, "restore".
        ("shop", doc! { "collMod": "c" }, "doSDXY"),
        ("shop", doc! { "compact": "c" }, "doDXY"),
        ("shop", doc! { "validate": "c" }, "doDXY"),
        ("shop", doc! { "planCacheClear": "c" }, "doDXY"),
        ("shop", doc! { "profile": 0 }, "doDXY"),
        // Tables "read", "dbAdmin", "clusterMonitor": dbStats; "read": dbHash; "dbAdmin", "clusterAdmin": dropDatabase.
        ("shop", doc! { "dbStats": 1 }, "rwdoMARWDXY"),
        ("shop", doc! { "dbHash": 1 }, "rwoRWXY"),
        ("shop", doc! { "dropDatabase": 1 }, "doADXY"),
        // Tables "readWrite", "dbAdmin": renameCollectionSameDB; the page of the command: find, insert and drop between databases.
        ("admin", doc! { "renameCollection": "shop.nothing", "to": "shop.other" }, "wdoWDXY"),
        ("admin", doc! { "renameCollection": "shop.nothing", "to": "elsewhere.other" }, "WXY"),
        ("other", doc! { "find": "c" }, "BRWXY"),
        ("other", doc! { "insert": "c", "documents": [{ "a": 1 }] }, "SWXY"),
        // Tables "backup", "restore", "userAdminAnyDatabase": collections of the system. "restore" has no find on system.roles.
        ("admin", doc! { "find": "system.users" }, "BSUXY"),
        ("admin", doc! { "find": "system.roles" }, "BUXY"),
        ("shop", doc! { "find": "system.profile" }, "doMABDXY"),
        // Tables "clusterManager", "clusterMonitor", "backup": `config` and `local`.
        ("config", doc! { "find": "settings" }, "MGABXY"),
        ("local", doc! { "find": "oplog.rs", "limit": 1 }, "MABXY"),
        // Tables "userAdmin", "userAdminAnyDatabase", "restore".
        ("shop", doc! { "createUser": "x", "pwd": "x", "roles": [], "mechanisms": ["SCRAM-SHA-1"] }, "uoSUXY"),
        ("shop", doc! { "updateUser": "x", "customData": {} }, "uoSUXY"),
        ("shop", doc! { "grantRolesToUser": "x", "roles": ["read"] }, "uoSUXY"),
        ("shop", doc! { "revokeRolesFromUser": "x", "roles": ["read"] }, "uoSUXY"),
        ("shop", doc! { "dropUser": "nobody" }, "uoSUXY"),
        ("shop", doc! { "usersInfo": 1 }, "uoSUXY"),
        ("shop", doc! { "createRole": "x", "privileges": [], "roles": [] }, "uoSUXY"),
        ("shop", doc! { "dropRole": "nothing" }, "uoSUXY"),
        ("shop", doc! { "rolesInfo": 1 }, "uoSUXY"),
        ("shop", doc! { "grantPrivilegesToRole": "x", "privileges": [{ "resource": { "db": "shop", "collection": "" }, "actions": ["find"] }] }, "uoSUXY"),
        ("admin", doc! { "createUser": "x", "pwd": "x", "roles": ["root"], "mechanisms": ["SCRAM-SHA-1"] }, "SUXY"),
        // Tables "hostManager", "userAdminAnyDatabase": invalidateUserCache; "readAnyDatabase" and its kin, "clusterMonitor", "backup": listDatabases.
        ("admin", doc! { "invalidateUserCache": 1 }, "HAUXY"),
        ("admin", doc! { "listDatabases": 1, "authorizedDatabases": false }, "MABRWDUXY"),
        // Tables "clusterMonitor", "hostManager", "backup", "restore": actions on the cluster.
        ("admin", doc! { "serverStatus": 1 }, "MABXY"),
        ("admin", doc! { "currentOp": 1 }, "MAXY"),
        ("admin", doc! { "aggregate": 1, "pipeline": [{ "$currentOp": { "allUsers": true } }], "cursor": {} }, "MAXY"),
        ("admin", doc! { "killOp": 1, "op": 123_456 }, "HAXY"),
        ("admin", doc! { "killAllSessions": [{ "user": "nobody", "db": "shop" }] }, "HAXY"),
        ("admin", doc! { "getParameter": 1, "logLevel": 1 }, "MABSXY"),
        ("admin", doc! { "setParameter": 1, "logLevel": 0 }, "HAXY"),
        ("admin", doc! { "getCmdLineOpts": 1 }, "MAXY"),
        ("admin", doc! { "getLog": "global" }, "MAXY"),
        ("admin", doc! { "hostInfo": 1 }, "MAXY"),
        ("admin", doc! { "top": 1 }, "MAXY"),
        ("admin", doc! { "connPoolStats": 1 }, "MAXY"),
        ("admin", doc! { "fsync": 1 }, "HAXY"),
        ("admin", doc! { "fsyncUnlock": 1 }, "HAXY"),
        ("admin", doc! { "logRotate": 1 }, "HAXY"),
        // Tables "clusterManager", "clusterMonitor", "backup".
        ("admin", doc! { "replSetGetStatus": 1 }, "MGAXY"),
        ("admin", doc! { "replSetStepDown": 1 }, "GAXY"),
        ("admin", doc! { "appendOplogNote": 1, "data": {} }, "GABXY"),
        ("admin", doc! { "getDefaultRWConcern": 1 }, "MGAXY"),
        // `rolesInfo` of "clusterManager", "backup", "restore".
        ("admin", doc! { "getClusterParameter": "*" }, "GAXY"),
        ("admin", doc! { "setFeatureCompatibilityVersion": "8.0", "confirm": true }, "GAXY"),
        ("admin", doc! { "setUserWriteBlockMode": 1, "global": false }, "BSXY"),
        // Tables "dbAdminAnyDatabase" and "restore": applyOps.
        ("admin", doc! { "applyOps": [] }, "SDXY"),
        // The pages of the commands: whoever has logged in.
        ("admin", doc! { "connectionStatus": 1 }, "rwdueoMGHABSRWDUXY"),
        ("admin", doc! { "startSession": 1 }, "rwdueoMGHABSRWDUXY"),
    ]
}

#[test]
fn built_in_roles_run_the_commands_that_the_manual_says() {
    let (_folder, server) = start(&[]);
    let mut admin = root(&server);
    let mut differences = Vec::new();
    for (letter, role) in ROLES {
        let db = if letter.is_lowercase() { "shop" } else { "admin" };
        let user = format!("user-{role}");
        let create = doc! { "createUser": &user, "pwd": "pw", "roles": [*role], "mechanisms": ["SCRAM-SHA-256"], "$db": db };
        ok(&mut admin, create);
        let mut client = server.connect();
        ok_login(&mut client, &user, db, "pw");
        for (db, mut command, allowed) in table() {
            command.insert("$db", db);
            let shown = command.to_string();
            let reply = run(&mut client, command);
            let refused = reply.get_i32("code").is_ok_and(|code| code == 13);
            if refused == allowed.contains(*letter) {
                differences.push(format!("{role}: {shown}: {reply}"));
            }
        }
    }
    assert!(differences.is_empty(), "{differences:#?}");
}
