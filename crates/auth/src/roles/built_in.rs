//! The built-in roles.
//!
//! Manual: "Built-In Roles", whose tables list actions by resource, as these do. The page omits
//! actions added in newer releases, and lists some that were removed; there the lists follow the
//! output of `rolesInfo` with `showPrivileges` on the 8.0 line.

use crate::Action::{self, *};
use crate::{ActionSet, Privilege, Resource, RoleName};

/// Built-in roles of every database, ascending by name.
pub const BUILT_IN_ANYWHERE: &[&str] =
    &["dbAdmin", "dbOwner", "enableSharding", "read", "readWrite", "userAdmin"];

/// Built-in roles of `admin` only, ascending by name.
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
/// Actions that `readWrite` adds.
const WRITE: &[Action] = &[
    CleanupStructuredEncryptionData,
    CompactStructuredEncryptionData,
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
    BypassDocumentValidation,
    CollMod,
    CollStats,
    Compact,
    ConfigureQueryAnalyzer,
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
/// Actions that `dbAdmin` has on the profiler's collection in addition to reading it.
const ADMINISTER_PROFILE: &[Action] = &[ConvertToCapped, CreateCollection, DropCollection];
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
const ADMINISTER_USERS_INDEXES: &[Action] =
    &[CreateIndex, CreateSearchIndexes, DropIndex, DropSearchIndex];
const SHARD: &[Action] = &[
    AnalyzeShardKey,
    EnableSharding,
    MoveCollection,
    RefineCollectionShardKey,
    ReshardCollection,
    UnshardCollection,
];
const MONITOR_CLUSTER: &[Action] = &[
    AllCollectionStats,
    ConnPoolStats,
    GetCmdLineOpts,
    GetDefaultRwConcern,
    GetLog,
    GetParameter,
    GetShardMap,
    HostInfo,
    Inprog,
    ListClusterCatalog,
    ListDatabases,
    ListSampledQueries,
    ListSessions,
    ListShards,
    Netstat,
    OperationMetrics,
    QueryStatsRead,
    QueryStatsReadTransformed,
    ReplSetGetConfig,
    ReplSetGetStatus,
    ServerStatus,
    ShardedDataDistribution,
    ShardingState,
    Top,
    UseUuid,
];
const MONITOR_DATABASES: &[Action] =
    &[CollStats, DbStats, GetDatabaseVersion, GetShardVersion, IndexStats];
const MANAGE_CLUSTER: &[Action] = &[
    AddShard,
    AppendOplogNote,
    ApplicationMessage,
    CheckMetadataConsistency,
    CleanupOrphaned,
    FlushRouterConfig,
    GetChangeStreamState,
    GetClusterParameter,
    GetDefaultRwConcern,
    ListSessions,
    ListShards,
    QuerySettings,
    RemoveShard,
    ReplSetConfigure,
    ReplSetGetConfig,
    ReplSetGetStatus,
    ReplSetStateChange,
    Resync,
    SetChangeStreamState,
    SetClusterParameter,
    SetDefaultRwConcern,
    SetFeatureCompatibilityVersion,
    TransitionFromDedicatedConfigServer,
    TransitionToDedicatedConfigServer,
];
/// Actions that `clusterManager` adds to those for sharding.
const MANAGE_DATABASES: &[Action] =
    &[ClearJumboFlag, ConfigureQueryAnalyzer, MoveChunk, SplitChunk, SplitVector];
const MANAGE_INTERNAL: &[Action] = &[Insert, Remove, Update];
const MANAGE_HOST: &[Action] = &[
    ApplicationMessage,
    AuditConfigure,
    CloseAllDatabases,
    Compact,
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
    OidcListKeys,
    OidcRefreshKeys,
    ReplSetResizeOplog,
    Resync,
    RotateCertificates,
    SetParameter,
    Shutdown,
    Touch,
    TrafficRecord,
    Unlock,
];
const RESTORE: &[Action] = &[
    BypassDocumentValidation,
    CollMod,
    ConvertToCapped,
    CreateCollection,
    CreateIndex,
    CreateSearchIndexes,
    DropCollection,
    Insert,
    UpdateSearchIndex,
];
/// Collections of `local` that count as system collections despite their names.
const REPLICATION: &[&str] = &["replset.election", "replset.minvalid"];

/// The privileges of a built-in role; `None` if the database has no such role.
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
    let mut list = PrivilegeList::default();
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
        "enableSharding" => list.on("", "", SHARD),
        "readAnyDatabase" => read_any(&mut list),
        "readWriteAnyDatabase" => read_write_any(&mut list),
        "dbAdminAnyDatabase" => administer_any(&mut list),
        "userAdminAnyDatabase" => administer_users_any(&mut list),
        "clusterMonitor" => monitor(&mut list),
        "clusterManager" => manage(&mut list),
        "hostManager" => manage_host(&mut list),
        "clusterAdmin" => administer_cluster(&mut list),
        "backup" => back_up(&mut list),
        "__queryableBackup" => back_up_queries(&mut list),
        "restore" => restore(&mut list),
        "directShardOperations" => list.cluster(&[IssueDirectShardOperations]),
        "root" => root(&mut list),
        _ => list.add(Resource::Any, &[AnyAction]),
    }
    Some(list.0)
}

/// Collects privileges.
#[derive(Default)]
struct PrivilegeList(Vec<Privilege>);

impl PrivilegeList {
    fn add(&mut self, resource: Resource, actions: &[Action]) {
        self.0.push(Privilege { resource, actions: ActionSet::of(actions) });
    }

    fn on(&mut self, db: &str, collection: &str, actions: &[Action]) {
        self.add(Resource::namespace(db, collection), actions);
    }

    fn cluster(&mut self, actions: &[Action]) {
        self.add(Resource::Cluster, actions);
    }

    /// Adds actions on the buckets of all time series.
    fn buckets(&mut self, actions: &[Action]) {
        self.add(Resource::SystemBuckets { db: String::new(), series: String::new() }, actions);
    }
}

fn read(list: &mut PrivilegeList, db: &str) {
    list.on(db, "", READ);
    list.on(db, "system.js", READ);
}

fn read_write(list: &mut PrivilegeList, db: &str) {
    read(list, db);
    list.on(db, "", WRITE);
    list.on(db, "system.js", WRITE);
}

/// An empty database stands for all.
fn administer(list: &mut PrivilegeList, db: &str) {
    list.on(db, "", ADMINISTER);
    list.on(db, "system.profile", READ);
    list.on(db, "system.profile", ADMINISTER_PROFILE);
}

fn administer_users(list: &mut PrivilegeList, db: &str) {
    list.on(db, "", ADMINISTER_USERS);
}

fn read_any(list: &mut PrivilegeList) {
    list.cluster(&[ListDatabases]);
    read(list, "");
    list.buckets(READ);
}

fn read_write_any(list: &mut PrivilegeList) {
    read_any(list);
    read_write(list, "");
    list.buckets(WRITE);
}

fn administer_any(list: &mut PrivilegeList) {
    list.cluster(&[ApplyOps, ListDatabases]);
    administer(list, "");
    list.buckets(ADMINISTER);
}

fn administer_users_any(list: &mut PrivilegeList) {
    list.cluster(&[AuthSchemaUpgrade, InvalidateUserCache, ListDatabases, ViewUser]);
    list.on("", "", &[ListCachedAndActiveUsers]);
    // The manual omits `config` and `local`. `rolesInfo` of the reference includes them, and users
    // that monitor a server are granted `read` on `local`.
    for db in ["", "config", "local"] {
        administer_users(list, db);
    }
    for collection in ["system.users", "system.roles"] {
        list.on("admin", collection, READ);
        list.on("admin", collection, ADMINISTER_USERS_INDEXES);
    }
    list.on("", "system.users", READ);
    list.on("admin", "system.version", READ);
    list.on("admin", "system.backup_users", READ);
}

fn monitor(list: &mut PrivilegeList) {
    list.cluster(MONITOR_CLUSTER);
    for db in ["", "config", "local"] {
        list.on(db, "", MONITOR_DATABASES);
    }
    list.buckets(MONITOR_DATABASES);
    read(list, "config");
    list.on("config", "system.sessions", MONITOR_DATABASES);
    read(list, "local");
    list.on("local", "system.replset", &[Find]);
    REPLICATION.iter().for_each(|collection| list.on("local", collection, &[Find]));
    list.on("", "system.profile", &[Find]);
}

fn manage(list: &mut PrivilegeList) {
    list.cluster(MANAGE_CLUSTER);
    for actions in [SHARD, MANAGE_DATABASES] {
        for db in ["", "config", "local"] {
            list.on(db, "", actions);
        }
        list.buckets(actions);
    }
    list.add(Resource::Any, &[DbCheck]);
    read(list, "config");
    list.on("config", "", MANAGE_INTERNAL);
    list.on("local", "", MANAGE_INTERNAL);
    REPLICATION.iter().for_each(|collection| list.on("local", collection, MANAGE_INTERNAL));
    list.on("local", "system.replset", READ);
    list.on("local", "system.healthlog", READ);
}

fn manage_host(list: &mut PrivilegeList) {
    list.cluster(MANAGE_HOST);
    list.on("", "", &[KillCursors]);
}

/// The greatest administrative access to the cluster: the three roles above, and dropping
/// databases.
fn administer_cluster(list: &mut PrivilegeList) {
    manage(list);
    monitor(list);
    manage_host(list);
    list.on("", "", &[DropDatabase]);
    list.add(Resource::Any, &[ExportCollection, ImportCollection]);
}

fn back_up_queries(list: &mut PrivilegeList) {
    list.cluster(&[GetParameter, ListDatabases, UseUuid]);
    list.add(Resource::Any, &[CollStats, ListCollections, ListIndexes, ListSearchIndexes]);
    for db in ["", "config", "local"] {
        list.on(db, "", &[Find]);
    }
    list.buckets(&[Find]);
    for collection in ["system.js", "system.profile", "system.users"] {
        list.on("", collection, &[Find]);
    }
    for collection in ["system.backup_users", "system.roles", "system.version"] {
        list.on("admin", collection, &[Find]);
    }
    REPLICATION.iter().for_each(|collection| list.on("local", collection, &[Find]));
}

fn back_up(list: &mut PrivilegeList) {
    back_up_queries(list);
    list.cluster(&[AppendOplogNote, ServerStatus, SetUserWriteBlockMode]);
    // An extension.
    list.cluster(&[Backup]);
    list.on("config", "settings", &[Insert, Update]);
}

fn restore(list: &mut PrivilegeList) {
    list.cluster(&[
        ApplyOps,
        BypassWriteBlockingMode,
        ForceUuid,
        GetParameter,
        SetUserWriteBlockMode,
        UseUuid,
    ]);
    list.add(Resource::Any, &[ListCollections]);
    for db in ["", "config", "local"] {
        list.on(db, "", RESTORE);
    }
    list.buckets(RESTORE);
    administer_users(list, "");
    list.on("", "system.js", RESTORE);
    list.on("", "system.views", RESTORE);
    list.on("", "system.users", RESTORE);
    list.on("", "system.users", &[Find, Remove, Update]);
    list.on("admin", "system.backup_users", RESTORE);
    list.on("admin", "system.version", RESTORE);
    list.on("admin", "system.version", &[Find]);
    list.on("admin", "system.roles", &[CreateIndex]);
    // `mongorestore` fills these, and `_mergeAuthzCollections` reads users and roles from them.
    list.on("admin", "tempusers", &[Find]);
    list.on("admin", "temproles", &[Find]);
    list.on("local", "system.replset", RESTORE);
    REPLICATION.iter().for_each(|collection| list.on("local", collection, RESTORE));
}

/// Manual: the roles `readWriteAnyDatabase`, `dbAdminAnyDatabase`, `userAdminAnyDatabase`,
/// `clusterAdmin`, `restore` and `backup` together, and `validate` on collections of the system.
fn root(list: &mut PrivilegeList) {
    read_write_any(list);
    administer_any(list);
    administer_users_any(list);
    administer_cluster(list);
    restore(list);
    back_up(list);
    list.cluster(&[IssueDirectShardOperations, UseTenant]);
    list.add(Resource::Any, &[Validate]);
    list.on("config", "system.preimages", &[Find, Remove]);
    list.on("config", "system.change_collection", &[Find, Insert, Remove, Update]);
}
