//! The built-in roles. Manual: "Built-In Roles"; the tables there list actions by resource, and so do these.
//!
//! Where the manual's tables leave out what the commands of the 8.0 line demand ("Privilege Actions": cluster parameters, query
//! settings, analysers of shard keys), the action is with the role that the page of the command names.

use crate::Action::{self, *};
use crate::{ActionSet, Privilege, Resource, RoleName};

/// Built-in roles of every database, ascending by name.
pub const BUILT_IN_ANYWHERE: &[&str] =
    &["dbAdmin", "dbOwner", "enableSharding", "read", "readWrite", "userAdmin"];

/// Built-in roles that only `admin` has beside those of every database, ascending by name.
pub const BUILT_IN_ADMIN: &[&str] = &[
    "__queryableBackup",
    "__system",
    "backup",
    "clusterAdmin",
    "clusterManager",
    "clusterMonitor",
    "dbAdminAnyDatabase",
    "directShardOperations",
    "hostManager",
    "readAnyDatabase",
    "readWriteAnyDatabase",
    "restore",
    "root",
    "userAdminAnyDatabase",
];

const READ: &[Action] = &[
    ChangeStream,
    CollStats,
    DbHash,
    DbStats,
    Find,
    KillCursors,
    ListCollections,
    ListIndexes,
    ListSearchIndexes,
    PlanCacheRead,
];
/// What `readWrite` adds.
const WRITE: &[Action] = &[
    ConvertToCapped,
    CreateCollection,
    CreateIndex,
    CreateSearchIndexes,
    DropCollection,
    DropIndex,
    DropSearchIndex,
    Insert,
    Remove,
    RenameCollectionSameDb,
    Update,
    UpdateSearchIndex,
];
const ADMINISTER: &[Action] = &[
    AnalyzeShardKey,
    BypassDocumentValidation,
    CollMod,
    CollStats,
    Compact,
    ConvertToCapped,
    CreateCollection,
    CreateIndex,
    CreateSearchIndexes,
    DbStats,
    DropCollection,
    DropDatabase,
    DropIndex,
    DropSearchIndex,
    EnableProfiler,
    IndexStats,
    ListCollections,
    ListIndexes,
    ListSearchIndexes,
    PlanCacheIndexFilter,
    PlanCacheRead,
    PlanCacheWrite,
    ReIndex,
    RenameCollectionSameDb,
    StorageDetails,
    UpdateSearchIndex,
    Validate,
];
/// On the collections of the system that `dbAdmin` reads.
const READ_SYSTEM: &[Action] = &[
    ChangeStream,
    CollStats,
    DbHash,
    DbStats,
    Find,
    KillCursors,
    ListCollections,
    ListIndexes,
    PlanCacheRead,
];
const ADMINISTER_USERS: &[Action] = &[
    ChangeCustomData,
    ChangePassword,
    CreateRole,
    CreateUser,
    DropRole,
    DropUser,
    GrantRole,
    RevokeRole,
    SetAuthenticationRestriction,
    ViewRole,
    ViewUser,
];
const MONITOR_CLUSTER: &[Action] = &[
    CheckFreeMonitoringStatus,
    ConnPoolStats,
    GetClusterParameter,
    GetCmdLineOpts,
    GetDefaultRwConcern,
    GetLog,
    GetParameter,
    GetShardMap,
    HostInfo,
    Inprog,
    ListDatabases,
    ListSessions,
    ListShards,
    Netstat,
    OperationMetrics,
    QueryStatsRead,
    QueryStatsReadTransformed,
    ReplSetGetConfig,
    ReplSetGetStatus,
    ServerStatus,
    SetFreeMonitoring,
    ShardedDataDistribution,
    ShardingState,
    Top,
    UseUuid,
];
const MONITOR_DATABASES: &[Action] =
    &[CollStats, DbStats, GetDatabaseVersion, GetShardVersion, IndexStats];
const MONITOR_INTERNAL: &[Action] = &[
    CollStats,
    DbHash,
    DbStats,
    Find,
    GetShardVersion,
    IndexStats,
    KillCursors,
    ListCollections,
    ListIndexes,
    PlanCacheRead,
];
const MANAGE_CLUSTER: &[Action] = &[
    AddShard,
    AppendOplogNote,
    ApplicationMessage,
    AuditConfigure,
    CheckMetadataConsistency,
    CleanupOrphaned,
    DropConnections,
    FlushRouterConfig,
    GetClusterParameter,
    GetDefaultRwConcern,
    ListSessions,
    ListShards,
    QuerySettings,
    RemoveShard,
    ReplSetConfigure,
    ReplSetGetConfig,
    ReplSetGetStatus,
    ReplSetResizeOplog,
    ReplSetStateChange,
    Resync,
    RotateCertificates,
    SetClusterParameter,
    SetDefaultRwConcern,
    SetFeatureCompatibilityVersion,
    SetFreeMonitoring,
    SetUserWriteBlockMode,
    TransitionFromDedicatedConfigServer,
    TransitionToDedicatedConfigServer,
];
const MANAGE_DATABASES: &[Action] = &[
    AnalyzeShardKey,
    ClearJumboFlag,
    ConfigureQueryAnalyzer,
    EnableSharding,
    MoveChunk,
    MoveCollection,
    RefineCollectionShardKey,
    ReshardCollection,
    SplitChunk,
    SplitVector,
    UnshardCollection,
];
const MANAGE_CONFIG: &[Action] = &[
    CollStats,
    DbHash,
    DbStats,
    EnableSharding,
    Find,
    Insert,
    KillCursors,
    ListCollections,
    ListIndexes,
    MoveChunk,
    PlanCacheRead,
    Remove,
    SplitChunk,
    SplitVector,
    Update,
];
const MANAGE_LOCAL: &[Action] =
    &[EnableSharding, Insert, MoveChunk, Remove, SplitChunk, SplitVector, Update];
const MANAGE_HOST: &[Action] = &[
    ApplicationMessage,
    AuditConfigure,
    CloseAllDatabases,
    ConnPoolSync,
    CpuProfiler,
    DropConnections,
    FlushRouterConfig,
    Fsync,
    InvalidateUserCache,
    KillAnyCursor,
    KillAnySession,
    KillOp,
    LogRotate,
    OidReset,
    Resync,
    RotateCertificates,
    SetParameter,
    Shutdown,
    Touch,
    TrafficRecord,
    Unlock,
];
const RESTORE_DATA: &[Action] = &[
    BypassDocumentValidation,
    CollMod,
    ConvertToCapped,
    CreateCollection,
    CreateIndex,
    CreateSearchIndexes,
    DropCollection,
    Insert,
];
const RESTORE_USERS: &[Action] = &[
    ChangeCustomData,
    ChangePassword,
    CreateRole,
    CreateUser,
    DropRole,
    DropUser,
    GrantRole,
    RevokeRole,
    SetAuthenticationRestriction,
    ViewRole,
    ViewUser,
];
const RESTORE_SYSTEM: &[Action] =
    &[BypassDocumentValidation, CollMod, CreateCollection, CreateIndex, DropCollection, Insert];
const SYSTEM_USERS_WRITES: &[Action] = &[
    BypassDocumentValidation,
    CollMod,
    CreateCollection,
    CreateIndex,
    DropCollection,
    Find,
    Insert,
    Remove,
    Update,
];
const SYSTEM_USERS_READS: &[Action] =
    &[CollStats, CreateIndex, DbHash, DbStats, DropIndex, Find, KillCursors, PlanCacheRead];

/// The privileges of a built-in role; nothing when there is none of that name in that database.
pub fn built_in(name: &RoleName) -> Option<Vec<Privilege>> {
    let (role, db) = (name.role.as_str(), name.db.as_str());
    let exists = match db {
        "" => false,
        "admin" => BUILT_IN_ANYWHERE.contains(&role) || BUILT_IN_ADMIN.contains(&role),
        _ => BUILT_IN_ANYWHERE.contains(&role),
    };
    if !exists {
        return None;
    }
    let mut list = List::default();
    match role {
        "read" => read(&mut list, db),
        "readWrite" => read_write(&mut list, db),
        "dbAdmin" => administer(&mut list, db),
        "userAdmin" => administer_users(&mut list, db),
        "dbOwner" => {
            read_write(&mut list, db);
            administer(&mut list, db);
            administer_users(&mut list, db);
        }
        "enableSharding" => list.on("", "", &[EnableSharding, Find]),
        "readAnyDatabase" => read_any(&mut list),
        "readWriteAnyDatabase" => read_write_any(&mut list),
        "dbAdminAnyDatabase" => administer_any(&mut list),
        "userAdminAnyDatabase" => administer_users_any(&mut list),
        "clusterMonitor" => monitor(&mut list),
        "clusterManager" => manage(&mut list),
        "hostManager" => manage_host(&mut list),
        "clusterAdmin" => administer_cluster(&mut list),
        "backup" => back_up(&mut list),
        "__queryableBackup" => list.on("config", "settings", &[Find]),
        "restore" => restore(&mut list),
        "directShardOperations" => list.cluster(&[]),
        "root" => root(&mut list),
        _ => list.add(Resource::Any, &[AnyAction]),
    }
    Some(list.0)
}

/// Privileges that are being collected.
#[derive(Default)]
struct List(Vec<Privilege>);

impl List {
    fn add(&mut self, resource: Resource, actions: &[Action]) {
        if !actions.is_empty() {
            self.0.push(Privilege { resource, actions: ActionSet::of(actions) });
        }
    }

    fn on(&mut self, db: &str, collection: &str, actions: &[Action]) {
        self.add(Resource::namespace(db, collection), actions);
    }

    fn cluster(&mut self, actions: &[Action]) {
        self.add(Resource::Cluster, actions);
    }

    fn buckets(&mut self, db: &str, actions: &[Action]) {
        let db = db.to_owned();
        self.add(Resource::SystemBuckets { db, series: String::new() }, actions);
    }
}

fn read(list: &mut List, db: &str) {
    list.on(db, "", READ);
    list.on(db, "system.js", READ);
}

fn read_write(list: &mut List, db: &str) {
    read(list, db);
    list.on(db, "", WRITE);
    list.on(db, "system.js", WRITE);
}

fn administer(list: &mut List, db: &str) {
    list.on(db, "", ADMINISTER);
    list.on(db, "system.profile", READ_SYSTEM);
    list.on(db, "system.profile", &[ConvertToCapped, CreateCollection, DropCollection]);
    list.on(db, "system.views", READ_SYSTEM);
    list.buckets(db, ADMINISTER);
}

fn administer_users(list: &mut List, db: &str) {
    list.on(db, "", ADMINISTER_USERS);
}

fn read_any(list: &mut List) {
    list.cluster(&[ListDatabases]);
    list.on("", "", READ);
    list.on("", "system.js", READ);
}

fn read_write_any(list: &mut List) {
    read_any(list);
    list.on("", "", WRITE);
    list.on("", "system.js", WRITE);
}

fn administer_any(list: &mut List) {
    list.cluster(&[ApplyOps, ListDatabases]);
    list.on("", "", ADMINISTER);
    list.on("", "system.profile", READ_SYSTEM);
    list.on("", "system.profile", &[ConvertToCapped, CreateCollection, DropCollection]);
    list.on("", "system.views", READ_SYSTEM);
    list.buckets("", ADMINISTER);
}

fn administer_users_any(list: &mut List) {
    list.cluster(&[
        AuthSchemaUpgrade,
        InvalidateUserCache,
        ListCachedAndActiveUsers,
        ListDatabases,
    ]);
    list.on("", "", ADMINISTER_USERS);
    for (db, collection) in [("admin", "system.users"), ("admin", "system.roles")] {
        list.on(db, collection, SYSTEM_USERS_READS);
    }
}

fn monitor(list: &mut List) {
    list.cluster(MONITOR_CLUSTER);
    list.on("", "", MONITOR_DATABASES);
    list.on("", "system.profile", &[Find]);
    for db in ["config", "local"] {
        list.on(db, "", MONITOR_INTERNAL);
        list.on(db, "system.js", READ_SYSTEM);
    }
    list.on("local", "system.replset", &[Find]);
}

fn manage(list: &mut List) {
    list.cluster(MANAGE_CLUSTER);
    list.on("", "", MANAGE_DATABASES);
    list.on("config", "", MANAGE_CONFIG);
    list.on("config", "system.js", READ_SYSTEM);
    list.on("local", "", MANAGE_LOCAL);
    list.on("local", "system.replset", READ_SYSTEM);
}

fn manage_host(list: &mut List) {
    list.cluster(MANAGE_HOST);
    list.on("", "", &[KillCursors]);
}

/// The greatest administrative access to the cluster: the three roles above, and dropping databases.
fn administer_cluster(list: &mut List) {
    manage(list);
    monitor(list);
    manage_host(list);
    list.on("", "", &[DropDatabase]);
}

fn back_up(list: &mut List) {
    list.cluster(&[
        AppendOplogNote,
        GetParameter,
        ListDatabases,
        ServerStatus,
        SetUserWriteBlockMode,
    ]);
    list.add(Resource::Any, &[ListCollections, ListIndexes]);
    list.on("", "", &[Find]);
    for db in ["config", "local"] {
        list.on(db, "", &[Find]);
    }
    for collection in ["system.js", "system.profile", "system.views"] {
        list.on("", collection, &[Find]);
    }
    for collection in ["system.roles", "system.users", "system.version"] {
        list.on("admin", collection, &[Find]);
    }
    list.buckets("", &[Find]);
    list.on("admin", "mms.backup", &[Insert, Update]);
    list.on("config", "settings", &[Find, Insert, Update]);
}

fn restore(list: &mut List) {
    list.cluster(&[BypassWriteBlockingMode, GetParameter, SetUserWriteBlockMode]);
    list.add(Resource::Any, &[ListCollections]);
    list.on("", "", RESTORE_DATA);
    list.on("", "", RESTORE_USERS);
    for db in ["config", "local"] {
        list.on(db, "", RESTORE_SYSTEM);
    }
    list.on("", "system.js", RESTORE_SYSTEM);
    list.on("", "system.views", RESTORE_SYSTEM);
    list.buckets("", RESTORE_DATA);
    list.on("admin", "system.version", RESTORE_SYSTEM);
    list.on("admin", "system.version", &[Find]);
    list.on("admin", "system.roles", SYSTEM_USERS_WRITES);
    list.on("admin", "system.users", SYSTEM_USERS_WRITES);
}

/// Manual: the roles `readWriteAnyDatabase`, `dbAdminAnyDatabase`, `userAdminAnyDatabase`, `clusterAdmin`, `restore` and `backup`
/// together, and `validate` on collections of the system.
fn root(list: &mut List) {
    read_write_any(list);
    administer_any(list);
    administer_users_any(list);
    administer_cluster(list);
    restore(list);
    back_up(list);
    list.add(Resource::Any, &[Validate]);
}
