//! The actions that privileges allow, with their names in documents of roles and users. Manual:
//! "Privilege Actions".

use std::fmt;

/// Declares the enum and its names from one list.
macro_rules! actions {
    ($($variant:ident = $name:literal,)*) => {
        /// An operation that a privilege allows on a resource.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
        #[repr(u8)]
        #[allow(missing_docs, reason = "the names are those of the manual")]
        pub enum Action {
            $($variant,)*
        }
        impl Action {
            /// All actions, ascending by name.
            pub const ALL: &[Action] = &[$(Action::$variant,)*];
            const NAMES: &[&str] = &[$($name,)*];
        }
    };
}

actions! {
    AddShard = "addShard",
    AllCollectionStats = "allCollectionStats",
    AnalyzeShardKey = "analyzeShardKey",
    AnyAction = "anyAction",
    AppendOplogNote = "appendOplogNote",
    ApplicationMessage = "applicationMessage",
    ApplyOps = "applyOps",
    AuditConfigure = "auditConfigure",
    AuthSchemaUpgrade = "authSchemaUpgrade",
    // An extension: the command `backup`.
    Backup = "backup",
    BypassDefaultMaxTimeMs = "bypassDefaultMaxTimeMS",
    BypassDocumentValidation = "bypassDocumentValidation",
    BypassWriteBlockingMode = "bypassWriteBlockingMode",
    ChangeCustomData = "changeCustomData",
    ChangeOwnCustomData = "changeOwnCustomData",
    ChangeOwnPassword = "changeOwnPassword",
    ChangePassword = "changePassword",
    ChangeStream = "changeStream",
    CheckFreeMonitoringStatus = "checkFreeMonitoringStatus",
    CheckMetadataConsistency = "checkMetadataConsistency",
    CleanupOrphaned = "cleanupOrphaned",
    CleanupStructuredEncryptionData = "cleanupStructuredEncryptionData",
    ClearJumboFlag = "clearJumboFlag",
    CloseAllDatabases = "closeAllDatabases",
    CollMod = "collMod",
    CollStats = "collStats",
    Compact = "compact",
    CompactStructuredEncryptionData = "compactStructuredEncryptionData",
    ConfigureQueryAnalyzer = "configureQueryAnalyzer",
    ConnPoolStats = "connPoolStats",
    ConnPoolSync = "connPoolSync",
    ConvertToCapped = "convertToCapped",
    CpuProfiler = "cpuProfiler",
    CreateCollection = "createCollection",
    CreateDatabase = "createDatabase",
    CreateIndex = "createIndex",
    CreateRole = "createRole",
    CreateSearchIndexes = "createSearchIndexes",
    CreateUser = "createUser",
    DbCheck = "dbCheck",
    DbHash = "dbHash",
    DbStats = "dbStats",
    DropCollection = "dropCollection",
    DropConnections = "dropConnections",
    DropDatabase = "dropDatabase",
    DropIndex = "dropIndex",
    DropRole = "dropRole",
    DropSearchIndex = "dropSearchIndex",
    DropUser = "dropUser",
    EnableProfiler = "enableProfiler",
    EnableSharding = "enableSharding",
    ExportCollection = "exportCollection",
    Find = "find",
    FlushRouterConfig = "flushRouterConfig",
    ForceUuid = "forceUUID",
    Fsync = "fsync",
    GetChangeStreamState = "getChangeStreamState",
    GetClusterParameter = "getClusterParameter",
    GetCmdLineOpts = "getCmdLineOpts",
    GetDatabaseVersion = "getDatabaseVersion",
    GetDefaultRwConcern = "getDefaultRWConcern",
    GetLog = "getLog",
    GetParameter = "getParameter",
    GetShardMap = "getShardMap",
    GetShardVersion = "getShardVersion",
    GrantRole = "grantRole",
    HostInfo = "hostInfo",
    Impersonate = "impersonate",
    ImportCollection = "importCollection",
    IndexStats = "indexStats",
    Inprog = "inprog",
    Insert = "insert",
    Internal = "internal",
    InvalidateUserCache = "invalidateUserCache",
    IssueDirectShardOperations = "issueDirectShardOperations",
    KillAnyCursor = "killAnyCursor",
    KillAnySession = "killAnySession",
    KillCursors = "killCursors",
    KillOp = "killop",
    ListCachedAndActiveUsers = "listCachedAndActiveUsers",
    ListClusterCatalog = "listClusterCatalog",
    ListCollections = "listCollections",
    ListDatabases = "listDatabases",
    ListIndexes = "listIndexes",
    ListSampledQueries = "listSampledQueries",
    ListSearchIndexes = "listSearchIndexes",
    ListSessions = "listSessions",
    ListShards = "listShards",
    LogRotate = "logRotate",
    MoveChunk = "moveChunk",
    MoveCollection = "moveCollection",
    Netstat = "netstat",
    OidcListKeys = "oidcListKeys",
    OidcRefreshKeys = "oidcRefreshKeys",
    OidReset = "oidReset",
    OperationMetrics = "operationMetrics",
    PlanCacheIndexFilter = "planCacheIndexFilter",
    PlanCacheRead = "planCacheRead",
    PlanCacheWrite = "planCacheWrite",
    QuerySettings = "querySettings",
    QueryStatsRead = "queryStatsRead",
    QueryStatsReadTransformed = "queryStatsReadTransformed",
    RefineCollectionShardKey = "refineCollectionShardKey",
    ReIndex = "reIndex",
    ReleaseMemoryAnyCursor = "releaseMemoryAnyCursor",
    Remove = "remove",
    RemoveShard = "removeShard",
    RenameCollection = "renameCollection",
    RenameCollectionSameDb = "renameCollectionSameDB",
    ReplSetConfigure = "replSetConfigure",
    ReplSetGetConfig = "replSetGetConfig",
    ReplSetGetStatus = "replSetGetStatus",
    ReplSetHeartbeat = "replSetHeartbeat",
    ReplSetResizeOplog = "replSetResizeOplog",
    ReplSetStateChange = "replSetStateChange",
    ReshardCollection = "reshardCollection",
    Resync = "resync",
    RevokeRole = "revokeRole",
    RotateCertificates = "rotateCertificates",
    ServerStatus = "serverStatus",
    SetAuthenticationRestriction = "setAuthenticationRestriction",
    SetChangeStreamState = "setChangeStreamState",
    SetClusterParameter = "setClusterParameter",
    SetDefaultRwConcern = "setDefaultRWConcern",
    SetFeatureCompatibilityVersion = "setFeatureCompatibilityVersion",
    SetFreeMonitoring = "setFreeMonitoring",
    SetParameter = "setParameter",
    SetUserWriteBlockMode = "setUserWriteBlockMode",
    ShardCollection = "shardCollection",
    ShardedDataDistribution = "shardedDataDistribution",
    ShardingState = "shardingState",
    Shutdown = "shutdown",
    SplitChunk = "splitChunk",
    SplitVector = "splitVector",
    StorageDetails = "storageDetails",
    Top = "top",
    Touch = "touch",
    TrafficRecord = "trafficRecord",
    TransitionFromDedicatedConfigServer = "transitionFromDedicatedConfigServer",
    TransitionToDedicatedConfigServer = "transitionToDedicatedConfigServer",
    Unlock = "unlock",
    UnshardCollection = "unshardCollection",
    Update = "update",
    UpdateSearchIndex = "updateSearchIndex",
    UseTenant = "useTenant",
    UseUuid = "useUUID",
    Validate = "validate",
    ViewRole = "viewRole",
    ViewUser = "viewUser",
}

impl Action {
    /// The name in documents.
    pub fn name(self) -> &'static str {
        Action::NAMES[self as usize]
    }

    /// The action of this name; names are compared exactly.
    pub fn by_name(name: &str) -> Option<Action> {
        let at = Action::NAMES.iter().position(|known| *known == name)?;
        Action::ALL.get(at).copied()
    }
}

const WORDS: usize = Action::ALL.len().div_ceil(64);

/// A set of actions. If it contains [`Action::AnyAction`], it allows all actions.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
pub struct ActionSet([u64; WORDS]);

impl ActionSet {
    /// The empty set.
    pub const NONE: ActionSet = ActionSet([0; WORDS]);

    /// The set of these actions.
    pub const fn of(actions: &[Action]) -> ActionSet {
        let mut set = [0; WORDS];
        let mut at = 0;
        while at < actions.len() {
            let number = actions[at] as usize;
            set[number / 64] |= 1 << (number % 64);
            at += 1;
        }
        ActionSet(set)
    }

    /// The union of both sets.
    #[must_use]
    pub const fn and(self, other: ActionSet) -> ActionSet {
        let mut set = self.0;
        let mut at = 0;
        while at < WORDS {
            set[at] |= other.0[at];
            at += 1;
        }
        ActionSet(set)
    }

    /// The difference of the sets. [`Action::AnyAction`] is not expanded.
    #[must_use]
    pub fn without(self, other: ActionSet) -> ActionSet {
        let mut set = self.0;
        set.iter_mut().zip(other.0).for_each(|(word, other)| *word &= !other);
        ActionSet(set)
    }

    /// Adds an action.
    pub fn insert(&mut self, action: Action) {
        *self = self.and(ActionSet::of(&[action]));
    }

    /// Whether the set allows the action.
    #[inline]
    pub fn allows(&self, action: Action) -> bool {
        self.has(action) || self.has(Action::AnyAction)
    }

    /// Whether the set allows all actions of another.
    pub fn allows_all(&self, others: ActionSet) -> bool {
        self.has(Action::AnyAction) || others.without(*self).is_empty()
    }

    #[inline]
    fn has(&self, action: Action) -> bool {
        let number = action as usize;
        self.0[number / 64] & (1 << (number % 64)) != 0
    }

    /// Whether the set is empty.
    pub fn is_empty(&self) -> bool {
        self.0 == [0; WORDS]
    }

    /// The actions in the set, ascending by name.
    pub fn iter(&self) -> impl Iterator<Item = Action> + '_ {
        Action::ALL.iter().copied().filter(|action| self.has(*action))
    }
}

impl fmt::Debug for ActionSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.iter().map(Action::name)).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_unique_and_found() {
        for (at, action) in Action::ALL.iter().enumerate() {
            assert_eq!(Action::by_name(action.name()), Some(*action));
            assert!(!Action::NAMES[..at].contains(&action.name()), "{}", action.name());
        }
        assert_eq!(Action::by_name("Find"), None);
        assert_eq!(Action::by_name(""), None);
    }

    #[test]
    fn any_action_stands_for_all() {
        let any = ActionSet::of(&[Action::AnyAction]);
        let some = ActionSet::of(&[Action::Find, Action::ViewUser]);
        assert!(Action::ALL.iter().all(|action| any.allows(*action)));
        assert!(any.allows_all(some) && !some.allows_all(any));
        assert!(some.allows(Action::Find) && !some.allows(Action::Insert));
        assert_eq!(some.iter().map(Action::name).collect::<Vec<_>>(), ["find", "viewUser"]);
        assert!(some.without(some).is_empty());
    }
}
