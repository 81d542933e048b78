//! The commands that each built-in role may run. The table follows the manual, not the code: the
//! actions of a command are from "Privilege Actions" and the command's own page, and the roles with
//! an action from the tables of "Built-In Roles" or, where those say nothing, from `rolesInfo` with
//! `showPrivileges` on the 8.0 line.

use std::collections::BTreeSet;

use mayfly_query::STAGES;
use mayfly_value::bson::spec::BinarySubtype;
use mayfly_value::bson::{Binary, Bson, Document, doc};

use crate::authorization::{ok, ok_login, root, run, start};

/// A letter for each role: lower case for the database `shop`, upper case for `admin`. In addition,
/// `0` is a user without a role, and `-` a client without a login.
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
    ('I', "directShardOperations"),
    ('Y', "__system"),
];
/// All users.
const USERS: &str = "rwdueoMGHABSRWDUXIY0";
/// All clients.
const EVERYBODY: &str = "rwdueoMGHABSRWDUXIY0-";
/// Commands of a login: other tests are about them, and here they would end the logins of the
/// users.
const LOGIN: &[&str] = &["authenticate", "logout", "saslContinue", "saslStart"];

fn no_copy() -> Bson {
    Bson::Binary(Binary { subtype: BinarySubtype::Uuid, bytes: vec![7; 16] })
}

/// Commands with their database, and the roles that may run them.
#[rustfmt::skip]
fn table() -> Vec<(&'static str, Document, &'static str)> {
    vec![
        // Query actions: tables "read", "readAnyDatabase", "backup" (find).
        ("shop", doc! { "find": "c" }, "rwoBRWXY"),
        ("shop", doc! { "count": "c" }, "rwoBRWXY"),
        ("shop", doc! { "distinct": "c", "key": "a" }, "rwoBRWXY"),
        ("shop", doc! { "aggregate": "c", "pipeline": [], "cursor": {} }, "rwoBRWXY"),
        ("shop", doc! { "explain": { "find": "c" } }, "rwoBRWXY"),
        ("shop", doc! { "filemd5": 1, "root": "c" }, "rwoBRWXY"),
        ("shop", doc! { "mapReduce": "c", "map": "0", "reduce": "0", "out": { "inline": 1 } }, "rwoBRWXY"),
        ("shop", doc! { "mapReduce": "c", "map": "0", "reduce": "0", "out": "e" }, "woWXY"),
        ("shop", doc! { "mapReduce": "c", "map": "0", "reduce": "0", "out": { "merge": "e", "db": "elsewhere" } }, "WXY"),
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
        // The same tables, for search indexes.
        ("shop", doc! { "createSearchIndexes": "c", "indexes": [{ "name": "s", "definition": { "mappings": { "dynamic": true } } }] }, "wdoSWDXY"),
        ("shop", doc! { "updateSearchIndex": "c", "name": "nothing", "definition": { "mappings": { "dynamic": true } } }, "wdoSWDXY"),
        ("shop", doc! { "dropSearchIndex": "c", "name": "nothing" }, "wdoWDXY"),
        // Tables "dbAdmin" and, for collMod, "restore".
        ("shop", doc! { "collMod": "c" }, "doSDXY"),
        ("shop", doc! { "compact": "c" }, "doDXY"),
        ("shop", doc! { "validate": "c" }, "doDXY"),
        ("shop", doc! { "planCacheClear": "c" }, "doDXY"),
        ("shop", doc! { "profile": 0 }, "doDXY"),
        // Tables "read", "dbAdmin", "clusterMonitor": dbStats; "read": dbHash; "dbAdmin",
        // "clusterAdmin": dropDatabase.
        ("shop", doc! { "dbStats": 1 }, "rwdoMARWDXY"),
        ("shop", doc! { "dbHash": 1 }, "rwoRWXY"),
        ("shop", doc! { "dropDatabase": 1 }, "doADXY"),
        // Tables "readWrite", "dbAdmin": renameCollectionSameDB; the page of the command: find,
        // insert and drop between databases.
        ("admin", doc! { "renameCollection": "shop.nothing", "to": "shop.other" }, "wdoWDXY"),
        ("admin", doc! { "renameCollection": "shop.nothing", "to": "elsewhere.other" }, "WXY"),
        ("other", doc! { "find": "c" }, "BRWXY"),
        ("other", doc! { "insert": "c", "documents": [{ "a": 1 }] }, "SWXY"),
        // Tables "backup", "restore", "userAdminAnyDatabase": collections of the system. "restore"
        // has no find on system.roles.
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
        // Tables "hostManager", "userAdminAnyDatabase": invalidateUserCache; "readAnyDatabase" and
        // similar roles, "clusterMonitor", "backup": listDatabases.
        ("admin", doc! { "invalidateUserCache": 1 }, "HAUXY"),
        ("admin", doc! { "listDatabases": 1, "authorizedDatabases": false }, "MABRWDUXY"),
        // Tables "clusterMonitor", "hostManager", "backup", "restore": actions on the cluster.
        ("admin", doc! { "serverStatus": 1 }, "MABXY"),
        ("admin", doc! { "currentOp": 1 }, "MAXY"),
        // Extensions. Without a destination the first one fails after its check of rights.
        ("admin", doc! { "backup": 1, "to": "x" }, "BXY"),
        ("admin", doc! { "backupStatus": 1 }, "MABXY"),
        // Extensions; there is no such copy. The second one also needs `fsync` and `shutdown`.
        ("admin", doc! { "copyStore": 1, "step": "end", "copy": no_copy() }, "BXY"),
        ("admin", doc! { "moveStore": 1, "step": "release", "copy": no_copy() }, "XY"),
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
        // The pages of the commands.
        ("admin", doc! { "replSetStepUp": 1 }, "GAXY"),
        ("admin", doc! { "replSetMaintenance": true }, "GAXY"),
        ("admin", doc! { "replSetGetRBID": 1 }, "MGAXY"),
        ("shop", doc! { "setIndexCommitQuorum": "nothing", "indexNames": ["a"], "commitQuorum": 1 }, "wdoSWDXY"),
        ("admin", doc! { "setProfilingFilterGlobally": 1, "filter": {} }, "DXY"),
        ("shop", doc! { "features": 1 }, USERS),
        ("shop", doc! { "compactStructuredEncryptionData": "nothing" }, "woWXY"),
        ("shop", doc! { "cleanupStructuredEncryptionData": "nothing" }, "woWXY"),
        // Table "hostManager"; the pages of the commands.
        ("admin", doc! { "autoCompact": false }, "HAXY"),
        ("admin", doc! { "dropConnections": 1, "hostAndPort": [] }, "HAXY"),
        ("shop", doc! { "validateDBMetadata": 1, "apiParameters": { "version": "1" }, "db": "shop" }, "doDXY"),
        ("admin", doc! { "fsyncUnlock": 1 }, "HAXY"),
        ("admin", doc! { "logRotate": 1 }, "HAXY"),
        ("admin", doc! { "replSetResizeOplog": 1, "size": 1024.0 }, "HAXY"),
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
        // Tables "read", "dbAdmin", "clusterMonitor"; `rolesInfo` of "backup".
        ("shop", doc! { "collStats": "c" }, "rwdoMABRWDXY"),
        ("shop", doc! { "listIndexes": "c" }, "rwdoBRWDXY"),
        ("shop", doc! { "listSearchIndexes": "c" }, "rwdoBRWDXY"),
        ("shop", doc! { "listCollections": 1 }, "rwdoBSRWDXY"),
        ("shop", doc! { "listCollections": 1, "nameOnly": true, "authorizedCollections": true }, USERS),
        ("shop", doc! { "listDatabases": 1 }, ""),
        ("admin", doc! { "listDatabases": 1 }, USERS),
        // "Privilege Actions": find.
        ("shop", doc! { "dataSize": "shop.c" }, "rwoBRWXY"),
        // A deliberate difference: a user that may list or describe a collection may read further
        // batches of its own cursors.
        ("shop", doc! { "getMore": 1_i64, "collection": "c" }, "rwdoMABRWDXY"),
        ("shop", doc! { "killCursors": "c", "cursors": [1_i64] }, USERS),
        // The right is checked for each cursor that exists; authorization.rs has one.
        ("shop", doc! { "releaseMemory": [1_i64] }, USERS),
        ("admin", doc! { "bulkWrite": 1, "ops": [{ "insert": 0, "document": { "a": 1 } }], "nsInfo": [{ "ns": "shop.c" }] }, "woSWXY"),
        ("admin", doc! { "bulkWrite": 1, "ops": [{ "delete": 0, "filter": { "a": 3 } }], "nsInfo": [{ "ns": "shop.c" }] }, "woWXY"),
        ("shop", doc! { "cloneCollectionAsCapped": "c", "toCollection": "capped", "size": "wrong" }, "woWXY"),
        // Table "dbAdmin".
        ("shop", doc! { "reIndex": "c" }, "doDXY"),
        ("shop", doc! { "planCacheListFilters": "c" }, "doDXY"),
        ("shop", doc! { "planCacheSetFilter": "c", "query": { "a": 1 }, "indexes": ["a"] }, "doDXY"),
        ("shop", doc! { "planCacheClearFilters": "c" }, "doDXY"),
        // Tables "read", "readWrite", "backup", "restore": system.js. No table has find on
        // system.views.
        ("shop", doc! { "find": "system.js" }, "rwoBRWXY"),
        ("shop", doc! { "insert": "system.js", "documents": [{ "_id": "f", "value": 1 }] }, "woSWXY"),
        ("shop", doc! { "find": "system.views" }, "Y"),
        ("admin", doc! { "find": "system.version" }, "BSUXY"),
        // Tables "clusterManager", "backup", "restore": config.settings.
        ("config", doc! { "insert": "settings", "documents": [{ "a": 1 }] }, "GABSXY"),
        ("config", doc! { "delete": "settings", "deletes": [{ "q": { "a": 1 }, "limit": 0 }] }, "GAXY"),
        ("config", doc! { "find": "system.sessions" }, "Y"),
        ("admin", doc! { "balancerStatus": 1 }, "MGABXY"),
        ("admin", doc! { "balancerStart": 1 }, "GABXY"),
        ("admin", doc! { "balancerStop": 1 }, "GABXY"),
        ("shop", doc! { "checkMetadataConsistency": 1 }, "GAXY"),
        ("admin", doc! { "listShards": 1 }, "MGAXY"),
        ("admin", doc! { "getShardMap": 1 }, "MAXY"),
        ("admin", doc! { "enableSharding": "shop" }, "eGAXY"),
        ("admin", doc! { "shardCollection": "shop.c", "key": { "a": 1 } }, "eGAXY"),
        // Tables "userAdmin", "userAdminAnyDatabase", "restore".
        ("shop", doc! { "dropAllUsersFromDatabase": 1 }, "uoSUXY"),
        // The page of the command: revokeRole on all databases.
        ("shop", doc! { "updateRole": "nothing", "privileges": [], "roles": [] }, "SUXY"),
        ("shop", doc! { "grantRolesToRole": "nothing", "roles": ["read"] }, "uoSUXY"),
        ("shop", doc! { "revokeRolesFromRole": "nothing", "roles": ["read"] }, "uoSUXY"),
        ("shop", doc! { "revokePrivilegesFromRole": "nothing", "privileges": [{ "resource": { "db": "shop", "collection": "" }, "actions": ["find"] }] }, "uoSUXY"),
        ("shop", doc! { "dropAllRolesFromDatabase": 1 }, "uoSUXY"),
        ("admin", doc! { "_mergeAuthzCollections": 1, "db": "shop", "drop": false }, "SUXY"),
        // Table "hostManager".
        ("admin", doc! { "killAllSessionsByPattern": [{ "users": 1 }] }, "HAXY"),
        ("admin", doc! { "rotateCertificates": 1 }, "HAXY"),
        ("admin", doc! { "getAuditConfig": 1 }, "HAXY"),
        ("admin", doc! { "setAuditConfig": 1 }, "HAXY"),
        ("admin", doc! { "shutdown": 1, "nothing": 1 }, "HAXY"),
        // Tables "hostManager", "clusterManager": applicationMessage.
        ("admin", doc! { "logApplicationMessage": "m" }, "GHAXY"),
        // Table "clusterManager".
        ("admin", doc! { "replSetGetConfig": 1 }, "MGAXY"),
        ("admin", doc! { "replSetInitiate": 1 }, "GAXY"),
        ("admin", doc! { "replSetReconfig": {} }, "GAXY"),
        ("admin", doc! { "replSetFreeze": "wrong" }, "GAXY"),
        ("admin", doc! { "setDefaultRWConcern": 1 }, "GAXY"),
        ("admin", doc! { "setClusterParameter": { "nothing": {} } }, "GAXY"),
        ("admin", doc! { "setQuerySettings": "wrong" }, "GAXY"),
        ("admin", doc! { "removeQuerySettings": "wrong" }, "GAXY"),
        // Table "clusterMonitor"; "backup": serverStatus.
        ("admin", doc! { "lockInfo": 1 }, "MABXY"),
        ("admin", doc! { "getDiagnosticData": 1 }, "MAXY"),
        // The server's own commands: as serverStatus, as setParameter.
        ("admin", doc! { "ttlStatus": 1 }, "MABXY"),
        ("admin", doc! { "ttlResume": "wrong" }, "HAXY"),
        ("admin", doc! { "configureFailPoint": "nothing", "mode": "off" }, "HAXY"),
        ("shop", doc! { "testDeprecation": 1 }, USERS),
        ("shop", doc! { "testRemoval": 1 }, USERS),
        ("shop", doc! { "testVersion2": 1 }, USERS),
        ("shop", doc! { "testVersions1And2": 1 }, USERS),
        ("admin", doc! { "waitForFailPoint": "nothing", "timesEntered": 0, "maxTimeMS": 1 }, "HAXY"),
        // Between the members of a cluster.
        ("admin", doc! { "prepareTransaction": 1 }, "Y"),
        ("admin", doc! { "coordinateCommitTransaction": 1 }, "Y"),
        // The pages of the commands: all users, for their own sessions and operations.
        ("admin", doc! { "startSession": 1 }, USERS),
        ("admin", doc! { "refreshSessions": [] }, USERS),
        ("admin", doc! { "killSessions": [] }, USERS),
        ("admin", doc! { "commitTransaction": 1 }, USERS),
        ("admin", doc! { "abortTransaction": 1 }, USERS),
        ("admin", doc! { "currentOp": 1, "$ownOps": true }, USERS),
        ("admin", doc! { "reapLogicalSessionCacheNow": 1 }, USERS),
        ("admin", doc! { "refreshLogicalSessionCacheNow": 1 }, USERS),
        // Commands that the server does not have, and unknown commands.
        ("shop", doc! { "cleanupOrphaned": "c" }, USERS),
        ("shop", doc! { "nothing": 1 }, EVERYBODY),
        // Commands of drivers before a login.
        ("admin", doc! { "hello": 1 }, EVERYBODY),
        ("admin", doc! { "isMaster": 1 }, EVERYBODY),
        ("admin", doc! { "ping": 1 }, EVERYBODY),
        ("admin", doc! { "buildInfo": 1 }, EVERYBODY),
        ("admin", doc! { "connectionStatus": 1 }, EVERYBODY),
        ("admin", doc! { "listCommands": 1 }, EVERYBODY),
        ("admin", doc! { "isdbgrid": 1 }, EVERYBODY),
        ("admin", doc! { "whatsmyuri": 1 }, EVERYBODY),
        ("admin", doc! { "_isSelf": 1 }, EVERYBODY),
        ("admin", doc! { "endSessions": [] }, EVERYBODY),
    ]
}

/// Stages with the database and the collection of the pipeline, if it has one, and the roles that
/// may run them.
#[rustfmt::skip]
fn stages() -> Vec<(&'static str, Option<&'static str>, Document, &'static str)> {
    let c = Some("c");
    let lookup = |from: &str| doc! { "$lookup": { "from": from, "localField": "a", "foreignField": "a", "as": "b" } };
    // "Privilege Actions": find, "for all pipeline operations" but those below.
    let mut rows: Vec<_> = [
        doc! { "$match": {} }, doc! { "$sort": { "a": 1 } }, doc! { "$skip": 1 }, doc! { "$limit": 1 }, doc! { "$project": { "a": 1 } },
        doc! { "$count": "n" }, doc! { "$group": { "_id": 1 } }, doc! { "$set": { "b": 1 } }, doc! { "$addFields": { "b": 1 } },
        doc! { "$unset": "b" }, doc! { "$replaceRoot": { "newRoot": {} } }, doc! { "$replaceWith": {} }, doc! { "$unwind": "$a" },
        doc! { "$sortByCount": "$a" }, doc! { "$bucket": { "groupBy": "$a", "boundaries": [0, 1], "default": 2 } },
        doc! { "$bucketAuto": { "groupBy": "$a", "buckets": 2 } }, doc! { "$setWindowFields": { "output": {} } }, doc! { "$fill": { "output": {} } },
        doc! { "$densify": { "field": "a", "range": { "step": 1, "bounds": "full" } } }, doc! { "$redact": "$$KEEP" }, doc! { "$sample": { "size": 1 } },
        doc! { "$geoNear": { "near": [0, 0], "distanceField": "d", "key": "a" } }, doc! { "$_internalUnpackBucket": {} },
        doc! { "$_internalShowBuckets": {} }, doc! { "$_internalMapReduce": { "map": "0", "reduce": "0" } },
        doc! { "$_internalFused": { "name": "a", "score": "score" } }, doc! { "$_internalScored": {} }, doc! { "$score": { "score": 1 } },
        doc! { "$rankFusion": { "input": { "pipelines": { "a": [{ "$sort": { "a": 1 } }] } } } },
        doc! { "$scoreFusion": { "input": { "pipelines": { "a": [{ "$score": { "score": 1 } }] }, "normalization": "none" } } }, doc! { "$changeStreamSplitLargeEvent": {} },
        // Other collections that stages read.
        doc! { "$search": { "exists": { "path": "a" } } }, doc! { "$searchBeta": { "exists": { "path": "a" } } }, doc! { "$searchMeta": { "exists": { "path": "a" } } },
        doc! { "$vectorSearch": { "path": "v", "queryVector": [1], "exact": true, "limit": 1 } },
        lookup("d"), doc! { "$graphLookup": { "from": "d", "startWith": "$a", "connectFromField": "a", "connectToField": "a", "as": "b" } },
        doc! { "$unionWith": "d" }, doc! { "$facet": { "b": [lookup("d")] } },
    ].into_iter().map(|stage| ("shop", c, stage, "rwoBRWXY")).collect();
    rows.extend([
        ("shop", c, lookup("system.profile"), "oBXY"),
        ("shop", c, doc! { "$unionWith": "system.profile" }, "oBXY"),
        ("shop", c, doc! { "$graphLookup": { "from": "system.profile", "startWith": "$a", "connectFromField": "a", "connectToField": "a", "as": "b" } }, "oBXY"),
        ("shop", c, doc! { "$facet": { "b": [lookup("system.profile")] } }, "oBXY"),
        ("shop", c, doc! { "$lookup": { "from": "d", "pipeline": [{ "$unionWith": "system.profile" }], "as": "b" } }, "oBXY"),
        // "readWrite": insert and remove, insert and update; "restore" has neither find nor remove.
        ("shop", c, doc! { "$out": "e" }, "woWXY"),
        ("shop", c, doc! { "$out": { "db": "elsewhere", "coll": "e" } }, "WXY"),
        ("shop", c, doc! { "$merge": "e" }, "woWXY"),
        ("shop", c, doc! { "$merge": { "into": { "db": "elsewhere", "coll": "e" }, "whenMatched": "fail" } }, "WXY"),
        // The pages of the stages, and the tables as for the commands of the same names.
        ("shop", c, doc! { "$collStats": { "count": {} } }, "rwdoMABRWDXY"),
        ("shop", c, doc! { "$indexStats": {} }, "MAXY"),
        // Tables "read", "dbAdmin", "backup": listCollections and listIndexes.
        ("shop", c, doc! { "$listCatalog": {} }, "rwdoBRWDXY"),
        ("shop", c, doc! { "$listSearchIndexes": {} }, "rwdoBRWDXY"),
        ("admin", None, doc! { "$listCatalog": {} }, "BRWDXY"),
        ("shop", c, doc! { "$planCacheStats": {} }, "rwdoRWDXY"),
        ("shop", c, doc! { "$changeStream": {} }, "rwoRWXY"),
        ("shop", None, doc! { "$changeStream": {} }, "rwoRWXY"),
        ("admin", None, doc! { "$changeStream": { "allChangesForCluster": true } }, "RWXY"),
        ("admin", None, doc! { "$currentOp": {} }, USERS),
        ("admin", None, doc! { "$currentOp": { "allUsers": true } }, "MAXY"),
        ("admin", None, doc! { "$listLocalCursors": {} }, "MAXY"),
        // An extension of the role "backup". An open cursor excludes others, whatever their rights.
        ("admin", None, doc! { "$backupCursor": {} }, "BXY"),
        ("admin", None, doc! { "$listLocalSessions": {} }, USERS),
        ("admin", None, doc! { "$listLocalSessions": { "allUsers": true } }, "MGAXY"),
        ("config", Some("system.sessions"), doc! { "$listSessions": {} }, USERS),
        ("config", Some("system.sessions"), doc! { "$listSessions": { "allUsers": true } }, "MGAXY"),
        ("admin", None, doc! { "$querySettings": {} }, "GAXY"),
        ("admin", None, doc! { "$shardedDataDistribution": {} }, "MAXY"),
        ("shop", None, doc! { "$listClusterCatalog": {} }, "MAXY"),
        ("admin", None, doc! { "$listSampledQueries": {} }, "MAXY"),
        ("admin", None, doc! { "$queryStats": {} }, "MAXY"),
        // The server's own: as serverStatus.
        ("admin", None, doc! { "$ttlStats": {} }, "MABXY"),
        // It reads nothing.
        ("shop", None, doc! { "$documents": [] }, USERS),
    ]);
    rows
}

/// The table of commands, and the stages' as commands.
fn rows() -> Vec<(&'static str, Document, &'static str)> {
    let mut rows = table();
    for (db, collection, stage, allowed) in stages() {
        let mut command = match collection {
            Some(collection) => doc! { "aggregate": collection },
            None => doc! { "aggregate": 1 },
        };
        command.extend(doc! { "pipeline": [stage], "cursor": {} });
        rows.push((db, command, allowed));
    }
    rows
}

#[test]
fn built_in_roles_run_the_commands_that_the_manual_says() {
    let (_folder, server) = start(&["--setParameter", "enableTestCommands=1"]);
    let mut admin = root(&server);
    let mut differences = Vec::new();
    for (letter, role) in ROLES.iter().copied().chain([('0', ""), ('-', "")]) {
        let mut client = server.connect();
        if letter != '-' {
            let db = if letter.is_lowercase() { "shop" } else { "admin" };
            let roles: Vec<_> =
                (letter != '0').then(|| doc! { "role": role, "db": db }).into_iter().collect();
            // Not in `shop`, where users are dropped.
            let user = format!("user-{letter}-{role}");
            let create = doc! { "createUser": &user, "pwd": "pw", "roles": roles, "mechanisms": ["SCRAM-SHA-256"], "$db": "people" };
            ok(&mut admin, create);
            ok_login(&mut client, &user, "people", "pw");
        }
        for (db, mut command, allowed) in rows() {
            command.insert("$db", db);
            let shown = command.to_string();
            let reply = run(&mut client, command);
            let refused = reply.get_i32("code").is_ok_and(|code| code == 13);
            if refused == allowed.contains(letter) {
                differences.push(format!("{letter} {role}: {shown}: {reply}"));
            }
        }
    }
    assert!(differences.is_empty(), "{differences:#?}");
}

#[test]
fn every_command_and_every_stage_has_its_roles_written_down() {
    let (_folder, server) = start(&["--setParameter", "enableTestCommands=1"]);
    let reply = run(&mut server.connect(), doc! { "listCommands": 1, "$db": "admin" });
    let mut left: BTreeSet<_> = reply.get_document("commands").unwrap().keys().cloned().collect();
    left.extend(STAGES.iter().map(|stage| stage.name.to_owned()));
    for name in LOGIN {
        assert!(left.remove(*name), "{name}");
    }
    let first = |document: &Document| document.keys().next().unwrap().clone();
    for (_, command, _) in table() {
        left.remove(&first(&command));
    }
    for (_, _, stage, _) in stages() {
        left.remove(&first(&stage));
    }
    assert!(left.is_empty(), "{left:?}");
}
