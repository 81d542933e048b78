//! The exact rights that a command needs, according to the manual: "Privilege Actions", the
//! commands' and the stages' own pages, section "Access Control" or "Required Privileges". A user
//! with all of them may run it; a user that lacks one may not.

use mayfly_value::bson::{Document, doc};

use crate::authorization::{ok, ok_login, root, run, start};

/// A right: database, collection (empty: all of them that are not the system's), action.
type Right = (&'static str, &'static str, &'static str);

fn on(collection: &'static str, actions: &[&'static str]) -> Vec<Right> {
    actions.iter().map(|action| ("shop", collection, *action)).collect()
}

fn people(actions: &[&'static str]) -> Vec<Right> {
    on("", actions)
}

/// Commands with their database and the rights that they need.
#[rustfmt::skip]
fn table() -> Vec<(&'static str, Document, Vec<Vec<Right>>)> {
    let over = |collection: &str, stages: Vec<Document>| doc! { "aggregate": collection, "pipeline": stages, "cursor": {} };
    let lookup = |from: &str, stages: Vec<Document>| doc! { "$lookup": { "from": from, "pipeline": stages, "as": "b" } };
    let graph = |from: &str| doc! { "$graphLookup": { "from": from, "startWith": "$a", "connectFromField": "a", "connectToField": "a", "as": "b" } };
    let nested = doc! { "$facet": {
        "a": [lookup("d", vec![graph("f")])],
        "b": [{ "$unionWith": { "coll": "g", "pipeline": [lookup("h", vec![])] } }],
    } };
    let upsert = |upsert: bool| doc! { "update": "c", "updates": [{ "q": { "a": 9 }, "u": { "$set": { "a": 9 } }, "upsert": upsert }] };
    let modify = |rest: Document| {
        let mut command = doc! { "findAndModify": "c", "query": { "a": 8 } };
        command.extend(rest);
        command
    };
    let set = doc! { "update": { "$set": { "a": 8 } } };
    let merge = |rest: Document| {
        let mut spec = doc! { "into": "e" };
        spec.extend(rest);
        over("c", vec![doc! { "$merge": spec }])
    };
    let bypass = |mut command: Document| {
        command.insert("bypassDocumentValidation", true);
        command
    };
    let explain = |command: Document| doc! { "explain": command };
    let index = |archive: &str| doc! { "key": { "at": 1 }, "name": "at", "expireAfterSeconds": 60, "ttl": { "archive": { "collection": archive } } };
    let writes = |ops: Vec<Document>| doc! { "bulkWrite": 1, "ops": ops, "nsInfo": [{ "ns": "shop.c" }, { "ns": "shop.d" }, { "ns": "other.c" }] };
    let f = |collection| on(collection, &["find"]);
    vec![
        // The right to a view suffices to read it, whatever collections it reads.
        ("shop", doc! { "find": "c" }, vec![f("c")]),
        ("shop", doc! { "find": "v" }, vec![f("v")]),
        ("shop", doc! { "count": "v" }, vec![f("v")]),
        ("shop", doc! { "distinct": "v", "key": "a" }, vec![f("v")]),
        ("shop", over("v", vec![lookup("d", vec![])]), vec![f("v"), f("d")]),
        ("shop", over("c", vec![doc! { "$unionWith": "v" }]), vec![f("c"), f("v")]),
        ("shop", explain(doc! { "find": "v" }), vec![f("v")]),
        // Changing a view needs the rights to its collections. Creating one does for a client that
        // can read it (`views_are_created_without_the_rights_to_read_them_and_their_collections`).
        ("shop", doc! { "create": "w", "viewOn": "c", "pipeline": [lookup("d", vec![doc! { "$unionWith": "g" }])] },
            vec![on("w", &["createCollection"])]),
        ("shop", doc! { "collMod": "v", "viewOn": "c", "pipeline": [lookup("d", vec![])] }, vec![on("v", &["collMod"]), f("c"), f("d")]),
        // Pipelines.
        ("shop", over("c", vec![nested.clone()]), vec![f("c"), f("d"), f("f"), f("g"), f("h")]),
        ("shop", explain(doc! { "aggregate": "c", "pipeline": [nested], "cursor": {} }), vec![f("c"), f("d"), f("f"), f("g"), f("h")]),
        ("shop", over("c", vec![doc! { "$out": "e" }]), vec![f("c"), on("e", &["insert", "remove"])]),
        ("shop", bypass(over("c", vec![doc! { "$out": "e" }])), vec![f("c"), on("e", &["insert", "remove", "bypassDocumentValidation"])]),
        ("shop", over("c", vec![doc! { "$out": { "db": "other", "coll": "e" } }]), vec![f("c"), vec![("other", "e", "insert"), ("other", "e", "remove")]]),
        ("shop", explain(over("c", vec![doc! { "$out": "e" }])), vec![f("c"), on("e", &["insert", "remove"])]),
        ("shop", merge(doc! {}), vec![f("c"), on("e", &["insert", "update"])]),
        ("shop", bypass(merge(doc! {})), vec![f("c"), on("e", &["insert", "update", "bypassDocumentValidation"])]),
        ("shop", merge(doc! { "whenMatched": "fail" }), vec![f("c"), on("e", &["insert"])]),
        ("shop", merge(doc! { "whenNotMatched": "discard" }), vec![f("c"), on("e", &["update"])]),
        ("shop", merge(doc! { "whenMatched": [{ "$set": { "a": 1 } }], "whenNotMatched": "fail" }), vec![f("c"), on("e", &["update"])]),
        ("shop", over("c", vec![doc! { "$changeStream": {} }]), vec![on("c", &["find", "changeStream"])]),
        ("shop", doc! { "aggregate": 1, "pipeline": [{ "$changeStream": {} }], "cursor": {} }, vec![on("", &["find", "changeStream"])]),
        ("admin", doc! { "aggregate": 1, "pipeline": [{ "$changeStream": { "allChangesForCluster": true } }], "cursor": {} },
            vec![vec![("", "", "find"), ("", "", "changeStream")]]),
        ("shop", over("c", vec![doc! { "$collStats": { "count": {} } }]), vec![on("c", &["collStats"])]),
        ("shop", over("c", vec![doc! { "$indexStats": {} }]), vec![on("c", &["indexStats"])]),
        ("shop", over("c", vec![doc! { "$listCatalog": {} }]), vec![on("c", &["listCollections", "listIndexes"])]),
        ("shop", over("c", vec![lookup("d", vec![doc! { "$collStats": {} }])]), vec![f("c"), on("d", &["find", "collStats"])]),
        ("shop", over("c", vec![doc! { "$planCacheStats": {} }]), vec![on("c", &["planCacheRead"])]),
        ("shop", over("c", vec![doc! { "$collStats": { "count": {} } }, doc! { "$unionWith": "d" }]), vec![on("c", &["collStats"]), f("d")]),
        // Writes.
        ("shop", doc! { "insert": "c", "documents": [{ "a": 1 }] }, vec![on("c", &["insert"])]),
        ("shop", bypass(doc! { "insert": "c", "documents": [{ "a": 1 }] }), vec![on("c", &["insert", "bypassDocumentValidation"])]),
        ("shop", upsert(false), vec![on("c", &["update"])]),
        ("shop", upsert(true), vec![on("c", &["update", "insert"])]),
        ("shop", bypass(upsert(false)), vec![on("c", &["update", "bypassDocumentValidation"])]),
        ("shop", explain(upsert(false)), vec![on("c", &["update"])]),
        ("shop", explain(upsert(true)), vec![on("c", &["update", "insert"])]),
        ("shop", doc! { "delete": "c", "deletes": [{ "q": { "a": 7 }, "limit": 0 }] }, vec![on("c", &["remove"])]),
        ("shop", explain(doc! { "delete": "c", "deletes": [{ "q": { "a": 7 }, "limit": 0 }] }), vec![on("c", &["remove"])]),
        ("shop", modify(doc! { "remove": true }), vec![on("c", &["find", "remove"])]),
        ("shop", modify(set.clone()), vec![on("c", &["find", "update"])]),
        ("shop", modify(doc! { "update": { "$set": { "a": 8 } }, "upsert": true }), vec![on("c", &["find", "update", "insert"])]),
        ("shop", bypass(modify(set.clone())), vec![on("c", &["find", "update", "bypassDocumentValidation"])]),
        ("shop", explain(modify(set)), vec![on("c", &["find", "update"])]),
        ("shop", explain(modify(doc! { "remove": true })), vec![on("c", &["find", "remove"])]),
        ("admin", writes(vec![doc! { "insert": 0, "document": {} }]), vec![on("c", &["insert"])]),
        ("admin", writes(vec![doc! { "insert": 0, "document": {} }, doc! { "update": 1, "filter": { "a": 6 }, "updateMods": { "$set": { "a": 6 } }, "upsert": true },
            doc! { "delete": 2, "filter": {} }]), vec![on("c", &["insert"]), on("d", &["update", "insert"]), vec![("other", "c", "remove")]]),
        ("admin", explain(writes(vec![doc! { "delete": 2, "filter": {} }])), vec![vec![("other", "c", "remove")]]),
        ("shop", doc! { "getMore": 1_i64, "collection": "c" }, vec![f("c")]),
        // Definitions. "create": createCollection or insert.
        ("shop", doc! { "create": "i" }, vec![on("i", &["createCollection"])]),
        ("shop", doc! { "create": "j" }, vec![on("j", &["insert"])]),
        ("shop", doc! { "createIndexes": "c", "indexes": [index("shop.old")] }, vec![on("c", &["createIndex"]), on("old", &["insert"])]),
        ("shop", doc! { "collMod": "c", "index": { "name": "at", "ttl": { "archive": { "collection": "other.old" } } } },
            vec![on("c", &["collMod"]), vec![("other", "old", "insert")]]),
        ("shop", doc! { "listIndexes": "c" }, vec![on("c", &["listIndexes"])]),
        ("shop", doc! { "dropIndexes": "c", "index": "nothing" }, vec![on("c", &["dropIndex"])]),
        ("shop", doc! { "drop": "nothing" }, vec![on("nothing", &["dropCollection"])]),
        ("shop", doc! { "listCollections": 1 }, vec![on("", &["listCollections"])]),
        ("admin", doc! { "renameCollection": "shop.nothing", "to": "shop.k" }, vec![on("nothing", &["renameCollectionSameDB"]), on("k", &["renameCollectionSameDB"])]),
        ("admin", doc! { "renameCollection": "shop.nothing", "to": "shop.k", "dropTarget": true },
            vec![on("nothing", &["renameCollectionSameDB"]), on("k", &["renameCollectionSameDB", "dropCollection"])]),
        ("admin", doc! { "renameCollection": "shop.nothing", "to": "other.k" },
            vec![on("nothing", &["find", "dropCollection"]), vec![("other", "k", "insert"), ("other", "k", "createIndex")]]),
        ("shop", doc! { "cloneCollectionAsCapped": "c", "toCollection": "k", "size": 4096 }, vec![f("c"), on("k", &["insert", "createIndex", "convertToCapped"])]),
        // Users and roles.
        ("shop", doc! { "createUser": "x", "pwd": "x", "roles": [], "mechanisms": ["SCRAM-SHA-1"] }, vec![people(&["createUser"])]),
        ("shop", doc! { "createUser": "y", "pwd": "x", "roles": [{ "role": "read", "db": "other" }], "mechanisms": ["SCRAM-SHA-1"] },
            vec![people(&["createUser"]), vec![("other", "", "grantRole")]]),
        ("shop", doc! { "createUser": "z", "pwd": "x", "roles": [], "mechanisms": ["SCRAM-SHA-1"], "authenticationRestrictions": [{ "clientSource": ["10.0.0.1"] }] },
            vec![people(&["createUser", "setAuthenticationRestriction"])]),
        ("shop", doc! { "updateUser": "x", "customData": {} }, vec![people(&["changeCustomData"])]),
        ("shop", doc! { "updateUser": "x", "pwd": "y" }, vec![people(&["changePassword"])]),
        ("shop", doc! { "updateUser": "x", "authenticationRestrictions": [] }, vec![people(&["setAuthenticationRestriction"])]),
        ("shop", doc! { "updateUser": "x", "roles": [{ "role": "read", "db": "other" }] }, vec![vec![("", "", "revokeRole"), ("other", "", "grantRole")]]),
        ("shop", doc! { "grantRolesToUser": "x", "roles": [{ "role": "read", "db": "other" }] }, vec![vec![("other", "", "grantRole")]]),
        ("shop", doc! { "revokeRolesFromUser": "x", "roles": [{ "role": "read", "db": "other" }] }, vec![vec![("other", "", "revokeRole")]]),
        ("shop", doc! { "usersInfo": "x" }, vec![people(&["viewUser"])]),
        ("shop", doc! { "createRole": "r", "privileges": [], "roles": [] }, vec![people(&["createRole"])]),
        ("shop", doc! { "createRole": "s", "privileges": [{ "resource": { "db": "other", "collection": "c" }, "actions": ["find"] }], "roles": ["read"] },
            vec![people(&["createRole", "grantRole"]), vec![("other", "", "grantRole")]]),
        ("shop", doc! { "updateRole": "r", "roles": [{ "role": "read", "db": "other" }] }, vec![vec![("", "", "revokeRole"), ("other", "", "grantRole")]]),
        ("shop", doc! { "grantPrivilegesToRole": "r", "privileges": [{ "resource": { "db": "other", "collection": "c" }, "actions": ["find"] }] },
            vec![vec![("other", "", "grantRole")]]),
        ("shop", doc! { "revokePrivilegesFromRole": "r", "privileges": [{ "resource": { "db": "other", "collection": "c" }, "actions": ["find"] }] },
            vec![vec![("other", "", "revokeRole")]]),
        ("shop", doc! { "grantRolesToRole": "r", "roles": [{ "role": "read", "db": "other" }] }, vec![vec![("other", "", "grantRole")]]),
        ("shop", doc! { "revokeRolesFromRole": "r", "roles": [{ "role": "read", "db": "other" }] }, vec![vec![("other", "", "revokeRole")]]),
        ("shop", doc! { "rolesInfo": "r" }, vec![people(&["viewRole"])]),
        ("shop", doc! { "dropRole": "r" }, vec![people(&["dropRole"])]),
        ("shop", doc! { "dropUser": "x" }, vec![people(&["dropUser"])]),
    ]
}

#[test]
fn commands_need_just_the_rights_that_the_manual_says() {
    let (_folder, server) = start(&[]);
    let mut admin = root(&server);
    for name in ["c", "d", "f", "g", "h"] {
        ok(&mut admin, doc! { "insert": name, "documents": [{ "a": 1 }], "$db": "shop" });
    }
    let lookup =
        doc! { "$lookup": { "from": "d", "localField": "a", "foreignField": "a", "as": "b" } };
    ok(&mut admin, doc! { "create": "v", "viewOn": "c", "pipeline": [lookup], "$db": "shop" });
    let role = doc! { "createRole": "probe", "privileges": [], "roles": [], "$db": "admin" };
    ok(&mut admin, role);
    ok(
        &mut admin,
        doc! { "createUser": "probe", "pwd": "pw", "roles": ["probe"], "mechanisms": ["SCRAM-SHA-256"], "$db": "admin" },
    );
    let mut client = server.connect();
    ok_login(&mut client, "probe", "admin", "pw");
    let mut differences = Vec::new();
    for (db, mut command, needs) in table() {
        command.insert("$db", db);
        let needs = needs.concat();
        // Without each of them, then with all.
        for without in (0..needs.len()).map(Some).chain([None]) {
            let privileges: Vec<_> = (0..needs.len())
                .filter(|at| Some(*at) != without)
                .map(|at| {
                    let (db, collection, action) = needs[at];
                    doc! { "resource": { "db": db, "collection": collection }, "actions": [action] }
                })
                .collect();
            let update = doc! { "updateRole": "probe", "privileges": privileges, "$db": "admin" };
            ok(&mut admin, update);
            let reply = run(&mut client, command.clone());
            let refused = reply.get_i32("code").is_ok_and(|code| code == 13);
            if refused != without.is_some() {
                let without = without.map(|at| needs[at]);
                differences.push(format!("{command} without {without:?}: {reply}"));
            }
        }
    }
    assert!(differences.is_empty(), "{differences:#?}");
}

/// Manual: `create`, Access Control.
#[test]
fn views_are_created_without_the_rights_to_read_them_and_their_collections() {
    let (_folder, server) = start(&[]);
    let mut admin = root(&server);
    let role = doc! { "createRole": "probe", "privileges": [], "roles": [], "$db": "admin" };
    ok(&mut admin, role);
    ok(
        &mut admin,
        doc! { "createUser": "probe", "pwd": "pw", "roles": ["probe"], "mechanisms": ["SCRAM-SHA-256"], "$db": "admin" },
    );
    let mut client = server.connect();
    ok_login(&mut client, "probe", "admin", "pw");
    let lookup =
        doc! { "$lookup": { "from": "d", "localField": "a", "foreignField": "a", "as": "b" } };
    let create = doc! { "create": "w", "viewOn": "c", "pipeline": [lookup], "$db": "shop" };
    let find = |collection| (collection, "find");
    let made = ("w", "createCollection");
    for (rights, is_allowed) in [
        (vec![made], true),
        (vec![made, find("c")], true),
        (vec![("w", "insert")], false),
        (vec![made, find("w")], false),
        (vec![made, find("w"), find("c")], false),
        (vec![made, find("w"), find("d")], false),
        (vec![made, find("w"), find("c"), find("d")], true),
    ] {
        let privilege = |(collection, action): &(&str, &str)| doc! { "resource": { "db": "shop", "collection": *collection }, "actions": [*action] };
        let privileges: Vec<_> = rights.iter().map(privilege).collect();
        ok(&mut admin, doc! { "updateRole": "probe", "privileges": privileges, "$db": "admin" });
        let reply = run(&mut client, create.clone());
        assert_eq!(reply.get_i32("code").ok() != Some(13), is_allowed, "{rights:?}: {reply}");
        run(&mut admin, doc! { "drop": "w", "$db": "shop" });
    }
}
