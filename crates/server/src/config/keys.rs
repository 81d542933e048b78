//! The table of keys: path in the file, name on the command line, type and bounds.

use anyhow::bail;

use super::MAX_CONNECTIONS;
use crate::logging::FACILITIES;

/// Type and bounds of a key.
#[derive(Clone, Copy, Debug)]
pub(super) enum KeyKind {
    Bool,
    Text,
    /// A text that is never printed.
    Secret,
    Word(&'static [&'static str]),
    /// One of these words, or empty.
    Choice(&'static [&'static str]),
    Integer {
        least: i64,
        most: i64,
    },
    /// A number from 0 to 1.
    Share,
    /// A number within bounds, or 0 to let the server choose.
    Size {
        least: f64,
        most: f64,
    },
}

/// A key of the configuration.
pub(super) struct Key {
    /// The path in the file.
    pub(super) path: &'static str,
    /// The long flag of the command line; the environment variable is `MAYFLYDB_` and the flag in
    /// capitals.
    pub(super) flag: &'static str,
    /// The type and bounds.
    pub(super) kind: KeyKind,
}

const fn key(path: &'static str, flag: &'static str, kind: KeyKind) -> Key {
    Key { path, flag, kind }
}

/// The values of `net.tls.mode`.
const TLS_MODES: &[&str] = &["disabled", "allowTLS", "preferTLS", "requireTLS"];

/// All keys except `setParameter`, whose names are those of the server's parameters.
pub(super) const KEYS: &[Key] = &[
    key("net.port", "port", KeyKind::Integer { least: 0, most: 65_535 }),
    key("net.bindIp", "bind_ip", KeyKind::Text),
    key("net.bindIpAll", "bind_ip_all", KeyKind::Bool),
    key(
        "net.maxIncomingConnections",
        "maxConns",
        KeyKind::Integer { least: 1, most: MAX_CONNECTIONS as i64 },
    ),
    key("net.tls.mode", "tlsMode", KeyKind::Word(TLS_MODES)),
    key("net.tls.certificateKeyFile", "tlsCertificateKeyFile", KeyKind::Text),
    key("net.tls.certificateKeyFilePassword", "tlsCertificateKeyFilePassword", KeyKind::Secret),
    key("net.tls.CAFile", "tlsCAFile", KeyKind::Text),
    key("net.tls.CRLFile", "tlsCRLFile", KeyKind::Text),
    key(
        "net.tls.allowConnectionsWithoutCertificates",
        "tlsAllowConnectionsWithoutCertificates",
        KeyKind::Bool,
    ),
    key("net.tls.disabledProtocols", "tlsDisabledProtocols", KeyKind::Text),
    key("net.tls.FIPSMode", "tlsFIPSMode", KeyKind::Bool),
    key("net.http.address", "http", KeyKind::Text),
    key("net.http.hosts", "httpHosts", KeyKind::Text),
    key("net.http.readOnly", "httpReadOnly", KeyKind::Bool),
    key("net.http.tokenFile", "httpTokenFile", KeyKind::Text),
    key("traces.endpoint", "otlpEndpoint", KeyKind::Text),
    key("traces.headers", "otlpHeaders", KeyKind::Secret),
    key("traces.share", "otlpShare", KeyKind::Share),
    key("storage.dbPath", "dbpath", KeyKind::Text),
    key("storage.engine", "storageEngine", KeyKind::Word(&["rocksdb", "postgres", "memory"])),
    key("storage.url", "storageUrl", KeyKind::Secret),
    key("storage.connections", "storageConnections", KeyKind::Integer { least: 20, most: 1000 }),
    key("storage.waitMs", "storageWaitMs", KeyKind::Integer { least: 0, most: 30_000 }),
    key("storage.requireSynchronousStandby", "requireSynchronousStandby", KeyKind::Bool),
    key("storage.standby", "storageStandby", KeyKind::Bool),
    key("storage.cacheSizeGB", "cacheSizeGB", KeyKind::Size { least: 0.03, most: 10_000.0 }),
    key("storage.diskReserveMB", "diskReserveMB", KeyKind::Integer { least: 0, most: 1 << 20 }),
    key(
        "storage.oplogMinRetentionHours",
        "oplogMinRetentionHours",
        KeyKind::Size { least: 0.0, most: 1_000_000.0 },
    ),
    key("replication.replSetName", "replSet", KeyKind::Text),
    key("replication.advertise", "advertise", KeyKind::Text),
    key("replication.oplogSizeMB", "oplogSize", KeyKind::Integer { least: 1, most: 1 << 30 }),
    key("security.javascriptEnabled", "javascriptEnabled", KeyKind::Bool),
    key("security.authorization", "auth", KeyKind::Word(&["enabled", "disabled"])),
    key("security.allowOpen", "allowOpen", KeyKind::Bool),
    key("init.folder", "initFolder", KeyKind::Text),
    key("security.redactClientLogData", "redactClientLogData", KeyKind::Bool),
    key(
        "auditLog.destination",
        "auditDestination",
        KeyKind::Choice(&["file", "syslog", "console"]),
    ),
    key("auditLog.format", "auditFormat", KeyKind::Word(&["JSON", "BSON"])),
    key("auditLog.path", "auditPath", KeyKind::Text),
    key("auditLog.filter", "auditFilter", KeyKind::Text),
    key("auditLog.runtimeConfiguration", "auditRuntimeConfiguration", KeyKind::Bool),
    key("archive.folder", "archiveFolder", KeyKind::Text),
    key("archive.urls", "archiveUrls", KeyKind::Text),
    key("backup.folder", "backupFolder", KeyKind::Text),
    key("backup.urls", "backupUrls", KeyKind::Text),
    key("backup.to", "backupTo", KeyKind::Text),
    key(
        "backup.logIntervalSecs",
        "backupLogIntervalSecs",
        KeyKind::Integer { least: 1, most: 3600 },
    ),
    key("backup.maxLagMB", "backupMaxLagMB", KeyKind::Integer { least: 0, most: 1 << 30 }),
    key("operationProfiling.mode", "profile", KeyKind::Word(&["off", "slowOp", "all"])),
    key(
        "operationProfiling.slowOpThresholdMs",
        "slowms",
        KeyKind::Integer { least: 0, most: i32::MAX as i64 },
    ),
    key("operationProfiling.slowOpSampleRate", "slowOpSampleRate", KeyKind::Share),
    key("operationProfiling.filter", "profileFilter", KeyKind::Text),
    key("processManagement.fork", "fork", KeyKind::Bool),
    key("processManagement.pidFilePath", "pidfilepath", KeyKind::Text),
    key("systemLog.destination", "logDestination", KeyKind::Choice(&["file", "syslog"])),
    key("systemLog.path", "logpath", KeyKind::Text),
    key("systemLog.logAppend", "logappend", KeyKind::Bool),
    key("systemLog.logRotate", "logRotate", KeyKind::Word(&["rename", "reopen"])),
    key("systemLog.syslogFacility", "syslogFacility", KeyKind::Word(FACILITIES)),
    key("systemLog.verbosity", "verbose", KeyKind::Integer { least: 0, most: 5 }),
    key("systemLog.quiet", "quiet", KeyKind::Bool),
];

/// Keys of mongod's configuration that stand for one of these.
pub(super) const ALIASES: &[(&str, &str)] =
    &[("storage.wiredTiger.engineConfig.cacheSizeGB", "storage.cacheSizeGB")];

/// The value of `storage.engine` in mongod's configuration that stands for the default engine.
pub(super) const OTHER_ENGINE: &str = "wiredTiger";

/// Keys of mongod's configuration that have no effect, with the reason. A path includes the keys
/// below it. A key that restricts access or requires encryption must not be in this list, unless
/// the server is at least as strict without it.
pub(super) const IGNORED: &[(&str, &str)] = &[
    ("cloud.monitoring", "the server reports to no service"),
    ("net.compression.compressors", "clients may use snappy, zstd and zlib"),
    ("net.ipv6", "net.bindIp may name IPv6 addresses"),
    ("net.listenBacklog", "the server asks the system for 4096"),
    ("net.serviceExecutor", "the server has one way to run commands"),
    ("net.tls.allowInvalidHostnames", "the server connects to no other member"),
    ("net.tls.clusterFile", "the server connects to no other member"),
    ("net.tls.clusterPassword", "the server connects to no other member"),
    ("net.tls.logVersions", "serverStatus.transportSecurity counts all versions"),
    ("net.transportLayer", "the server has one way to run commands"),
    ("net.unixDomainSocket", "the server listens on TCP ports only"),
    ("net.wireObjectCheck", "documents are always checked"),
    ("processManagement.timeZoneInfo", "the time zone database is built in"),
    ("replication.enableMajorityReadConcern", "read concern majority is always there"),
    (KEY_FILE, "a set has one member; clients have to log in, as with this key"),
    (CLUSTER_AUTH_MODE, "a set has one member; clients have to log in, as with this key"),
    ("sharding.archiveMovedChunks", "the server is not part of a cluster"),
    ("storage.directoryPerDB", "all databases are in one store"),
    ("storage.indexBuildRetry", "an index build that a crash cut off is forgotten"),
    ("storage.journal", "the write-ahead log is always there, and synced within 100 ms"),
    ("storage.syncPeriodSecs", "the engine chooses when it writes its tables"),
    ("storage.wiredTiger", "the engine is RocksDB"),
    ("systemLog.component", "the parameter logComponentVerbosity sets it"),
    ("systemLog.timeStampFormat", "times are in UTC"),
    ("systemLog.traceAllExceptions", "errors have no traces"),
];

/// Keys that enable authorization in mongod's configuration.
pub(super) const IMPLY_AUTHORIZATION: [&str; 2] = [KEY_FILE, CLUSTER_AUTH_MODE];
const KEY_FILE: &str = "security.keyFile";
const CLUSTER_AUTH_MODE: &str = "security.clusterAuthMode";

/// The path of server parameters.
pub(super) const PARAMETERS: &str = "setParameter";

impl Key {
    /// The name of the environment variable.
    pub(super) fn environment(&self) -> String {
        format!("MAYFLYDB_{}", self.flag.to_uppercase())
    }

    /// Checks the text of a value.
    pub(super) fn check(&self, text: &str) -> anyhow::Result<()> {
        match self.kind {
            KeyKind::Text | KeyKind::Secret => Ok(()),
            KeyKind::Bool if matches!(text, "true" | "false") => Ok(()),
            KeyKind::Bool => bail!("'{text}' is not true or false"),
            KeyKind::Choice(_) if text.is_empty() => Ok(()),
            KeyKind::Word(words) | KeyKind::Choice(words) if words.contains(&text) => Ok(()),
            KeyKind::Word(words) | KeyKind::Choice(words) => {
                bail!("'{text}' is not one of {}", words.join(", "))
            }
            KeyKind::Integer { least, most } => match text.parse::<i64>() {
                Ok(number) if (least..=most).contains(&number) => Ok(()),
                Ok(number) => bail!("{number} is not between {least} and {most}"),
                Err(_) => bail!("'{text}' is not a whole number"),
            },
            KeyKind::Share => match text.parse::<f64>() {
                Ok(number) if (0.0..=1.0).contains(&number) => Ok(()),
                Ok(number) => bail!("{number} is not between 0 and 1"),
                Err(_) => bail!("'{text}' is not a number"),
            },
            KeyKind::Size { least, most } => match text.parse::<f64>() {
                Ok(number) if number == 0.0 || (least..=most).contains(&number) => Ok(()),
                Ok(number) => bail!("{number} is neither 0 nor between {least} and {most}"),
                Err(_) => bail!("'{text}' is not a number"),
            },
        }
    }
}

/// Finds a key by its path.
pub(super) fn find(path: &str) -> Option<&'static Key> {
    let path = ALIASES.iter().find(|alias| alias.0 == path).map_or(path, |alias| alias.1);
    KEYS.iter().find(|key| key.path == path)
}

/// The reason why a key of mongod's configuration has no effect; `None` for all other keys.
pub(super) fn ignored(path: &str) -> Option<&'static str> {
    let below = |known: &str| {
        path.strip_prefix(known).is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
    };
    let found = IGNORED.iter().find(|(known, _)| below(known));
    found.filter(|_| find(path).is_none()).map(|(_, why)| *why)
}

/// ` (did you mean 'x'?)` for a similar name, or an empty string.
pub(super) fn suggestion<'n>(given: &str, names: impl Iterator<Item = &'n str>) -> String {
    let distance = |name: &str| strsim::levenshtein(&given.to_lowercase(), &name.to_lowercase());
    let nearest = names.map(|name| (distance(name), name)).min();
    match nearest {
        Some((far, name)) if far <= 1 + given.len() / 4 => format!(" (did you mean '{name}'?)"),
        _ => String::new(),
    }
}
