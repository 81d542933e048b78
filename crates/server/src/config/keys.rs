//! The table of keys: path in the file, name on the command line, type and bounds.

use anyhow::bail;
use mayfly_base::limits;

/// Type and bounds of a key.
#[derive(Clone, Copy, Debug)]
pub(super) enum Kind {
    Bool,
    Text,
    /// A text that is never shown.
    Secret,
    Word(&'static [&'static str]),
    /// One of these words, or nothing.
    Choice(&'static [&'static str]),
    Integer {
        least: i64,
        most: i64,
    },
    /// A number within bounds, or 0, which leaves the choice to the server.
    Size {
        least: f64,
        most: f64,
    },
}

/// One key.
pub(super) struct Key {
    /// Path in the file.
    pub(super) path: &'static str,
    /// Long flag of the command line; the environment's name is `MAYFLYDB_` and this in capitals.
    pub(super) flag: &'static str,
    /// Type and bounds.
    pub(super) kind: Kind,
}

const fn key(path: &'static str, flag: &'static str, kind: Kind) -> Key {
    Key { path, flag, kind }
}

/// Whether connections may, or have to, be encrypted.
const TLS_MODES: &[&str] = &["disabled", "allowTLS", "preferTLS", "requireTLS"];

/// All keys but `setParameter`, whose names are the server's parameters.
pub(super) const KEYS: &[Key] = &[
    key("net.port", "port", Kind::Integer { least: 0, most: 65_535 }),
    key("net.bindIp", "bind_ip", Kind::Text),
    key("net.bindIpAll", "bind_ip_all", Kind::Bool),
    key(
        "net.maxIncomingConnections",
        "maxConns",
        Kind::Integer { least: 1, most: limits::MAX_CONNECTIONS as i64 },
    ),
    key("net.tls.mode", "tlsMode", Kind::Word(TLS_MODES)),
    key("net.tls.certificateKeyFile", "tlsCertificateKeyFile", Kind::Text),
    key("net.tls.certificateKeyFilePassword", "tlsCertificateKeyFilePassword", Kind::Secret),
    key("net.tls.CAFile", "tlsCAFile", Kind::Text),
    key("net.tls.CRLFile", "tlsCRLFile", Kind::Text),
    key(
        "net.tls.allowConnectionsWithoutCertificates",
        "tlsAllowConnectionsWithoutCertificates",
        Kind::Bool,
    ),
    key("net.tls.disabledProtocols", "tlsDisabledProtocols", Kind::Text),
    key("net.tls.FIPSMode", "tlsFIPSMode", Kind::Bool),
    key("storage.dbPath", "dbpath", Kind::Text),
    key("storage.engine", "storageEngine", Kind::Word(&["rocksdb", "memory"])),
    key("storage.cacheSizeGB", "cacheSizeGB", Kind::Size { least: 0.03, most: 10_000.0 }),
    key("storage.diskReserveMB", "diskReserveMB", Kind::Integer { least: 0, most: 1 << 20 }),
    key(
        "storage.oplogMinRetentionHours",
        "oplogMinRetentionHours",
        Kind::Size { least: 0.0, most: 1_000_000.0 },
    ),
    key("replication.replSetName", "replSet", Kind::Text),
    key("replication.advertise", "advertise", Kind::Text),
    key("replication.oplogSizeMB", "oplogSize", Kind::Integer { least: 1, most: 1 << 30 }),
    key("security.javascriptEnabled", "javascriptEnabled", Kind::Bool),
    key("security.authorization", "auth", Kind::Word(&["enabled", "disabled"])),
    key("security.allowOpen", "allowOpen", Kind::Bool),
    key("init.folder", "initFolder", Kind::Text),
    key("security.redactClientLogData", "redactClientLogData", Kind::Bool),
    key("auditLog.destination", "auditDestination", Kind::Choice(&["file", "syslog", "console"])),
    key("auditLog.format", "auditFormat", Kind::Word(&["JSON", "BSON"])),
    key("auditLog.path", "auditPath", Kind::Text),
    key("auditLog.filter", "auditFilter", Kind::Text),
    key("auditLog.runtimeConfiguration", "auditRuntimeConfiguration", Kind::Bool),
    key("archive.folder", "archiveFolder", Kind::Text),
    key("archive.urls", "archiveUrls", Kind::Text),
    key("systemLog.path", "logpath", Kind::Text),
    key("systemLog.verbosity", "verbose", Kind::Integer { least: 0, most: 5 }),
    key("systemLog.quiet", "quiet", Kind::Bool),
];

/// Keys of other servers' files that mean one of ours.
pub(super) const ALIASES: &[(&str, &str)] =
    &[("storage.wiredTiger.engineConfig.cacheSizeGB", "storage.cacheSizeGB")];

/// The path of server parameters.
pub(super) const PARAMETERS: &str = "setParameter";

impl Key {
    /// The name in the environment.
    pub(super) fn environment(&self) -> String {
        format!("MAYFLYDB_{}", self.flag.to_uppercase())
    }

    /// Checks a value's text.
    pub(super) fn check(&self, text: &str) -> anyhow::Result<()> {
        match self.kind {
            Kind::Text | Kind::Secret => Ok(()),
            Kind::Bool if matches!(text, "true" | "false") => Ok(()),
            Kind::Bool => bail!("'{text}' is not true or false"),
            Kind::Choice(_) if text.is_empty() => Ok(()),
            Kind::Word(words) | Kind::Choice(words) if words.contains(&text) => Ok(()),
            Kind::Word(words) | Kind::Choice(words) => {
                bail!("'{text}' is not one of {}", words.join(", "))
            }
            Kind::Integer { least, most } => match text.parse::<i64>() {
                Ok(number) if (least..=most).contains(&number) => Ok(()),
                Ok(number) => bail!("{number} is not between {least} and {most}"),
                Err(_) => bail!("'{text}' is not a whole number"),
            },
            Kind::Size { least, most } => match text.parse::<f64>() {
                Ok(number) if number == 0.0 || (least..=most).contains(&number) => Ok(()),
                Ok(number) => bail!("{number} is neither 0 nor between {least} and {most}"),
                Err(_) => bail!("'{text}' is not a number"),
            },
        }
    }
}

/// The key with this path.
pub(super) fn find(path: &str) -> Option<&'static Key> {
    let path = ALIASES.iter().find(|alias| alias.0 == path).map_or(path, |alias| alias.1);
    KEYS.iter().find(|key| key.path == path)
}

/// ` (did you mean 'x'?)` for the nearest name, nothing when none is near.
pub(super) fn suggestion<'n>(told: &str, names: impl Iterator<Item = &'n str>) -> String {
    let nearest = names.map(|name| (distance(told, name), name)).min();
    match nearest {
        Some((far, name)) if far <= 1 + told.len() / 4 => format!(" (did you mean '{name}'?)"),
        _ => String::new(),
    }
}

/// Edit distance without regard to case.
fn distance(a: &str, b: &str) -> usize {
    let (a, b) = (a.to_lowercase(), b.to_lowercase());
    let b: Vec<char> = b.chars().collect();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, from) in a.chars().enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, to) in b.iter().enumerate() {
            let replaced = diagonal + usize::from(from != *to);
            diagonal = row[j + 1];
            row[j + 1] = replaced.min(diagonal + 1).min(row[j] + 1);
        }
    }
    row[b.len()]
}
