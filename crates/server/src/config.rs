//! Configuration: a table of keys, four layers, and the resulting values.
//!
//! Defaults < file < environment < command line. The defaults are the project's own
//! `config/mayflydb.yaml`, which is built in, so that the documentation of a key and its default
//! cannot differ.

mod audit;
mod file;
mod flags;
mod http;
mod keys;
mod layers;
mod logging;
mod profiling;
mod traces;

pub use flags::{Flags, StorageAction, Task};
pub use http::HttpOptions;
pub use layers::{Layers, Origin, shown_words};
pub use logging::{LogDestination, LogSettings};
pub use profiling::Profiling;
pub use traces::TraceOptions;

use std::path::PathBuf;

use secrecy::SecretString;

use crate::archive::ArchiveOptions;
use crate::audit::AuditSettings;
use crate::backup::BackupOptions;
use crate::first_start::FirstStart;
use crate::tls::{TlsMode, TlsOptions};

/// The largest value of `net.maxIncomingConnections`.
const MAX_CONNECTIONS: usize = 20_000;

/// The storage engine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EngineChoice {
    /// The embedded engine.
    Rocksdb,
    /// A PostgreSQL database. The data folder has temporary files only.
    Postgres,
    /// Data in memory, which is lost when the process ends.
    Memory,
}

impl EngineChoice {
    /// Whether the server uses the data folder.
    pub fn has_folder(self) -> bool {
        self != EngineChoice::Memory
    }
}

/// The configuration of a server.
#[derive(Clone, Debug)]
pub struct Config {
    /// TCP port, 0 for a free one.
    pub port: u16,
    /// Whether no layer sets the port.
    pub port_is_default: bool,
    /// Addresses or names to listen on.
    pub bind: Vec<String>,
    /// The largest number of connections.
    pub max_connections: usize,
    /// The options of TLS.
    pub tls: TlsOptions,
    /// The status page and the metrics.
    pub http: HttpOptions,
    /// The collector of traces; `None` if commands are not traced.
    pub traces: Option<TraceOptions>,
    /// Folder of the data.
    pub db_path: PathBuf,
    /// The storage engine.
    pub engine: EngineChoice,
    /// The URL of the database, for [`EngineChoice::Postgres`].
    pub storage_url: Option<SecretString>,
    /// The largest number of connections to the database for which operations queue.
    pub storage_connections: usize,
    /// How long operations wait while the database cannot be reached, in milliseconds.
    pub storage_wait_ms: u64,
    /// Whether commits have to wait for a standby of the database.
    pub storage_require_synchronous: bool,
    /// Whether the server waits while another one owns the store in the database.
    pub storage_standby: bool,
    /// Memory for cached blocks and unflushed writes together, in bytes.
    pub cache_bytes: usize,
    /// Disk space that is reserved for deletions and for the start, in bytes.
    pub reserve_bytes: u64,
    /// The size to which the oplog is trimmed, in bytes.
    pub oplog_bytes: u64,
    /// The minimum retention of oplog entries in milliseconds, whatever the size.
    pub oplog_retention_ms: i64,
    /// The name of the replica set.
    pub repl_set: Option<String>,
    /// The address for clients of a replica set; `None` for the one that a connection came in on.
    pub advertise: Option<String>,
    /// Whether scripts run: `$where`, `$function`.
    pub javascript_enabled: bool,
    /// Whether commands need a user with a right to them.
    pub authorization: bool,
    /// Whether the server may listen on all addresses without authorization.
    pub allow_open: bool,
    /// The actions when the data folder is new.
    pub first_start: FirstStart,
    /// The audit log; `None` if it is off.
    pub audit: Option<AuditSettings>,
    /// Whether client data is left out of the log.
    pub redact_client_data: bool,
    /// Where expired documents may be archived in files.
    pub archive: ArchiveOptions,
    /// Where backups may be made.
    pub backup: BackupOptions,
    /// The destination and rotation of the log.
    pub log: LogSettings,
    /// The profiling settings of databases that no command has set.
    pub profiling: Profiling,
    /// Whether the process continues in the background when the server is ready.
    pub fork: bool,
    /// The file for the process id.
    pub pid_file: Option<PathBuf>,
    /// Whether the permissions of new files are left to the system's mask.
    pub honor_system_umask: bool,
    /// Whether a data folder of an older format is converted.
    pub upgrade: bool,
    /// Whether the server reads the store that another one owns.
    pub is_secondary: bool,
    /// Ignored keys of mongod's configuration, one line each.
    pub ignored: Vec<String>,
    /// The verbosity of the log, 0 to 5.
    pub verbosity: i64,
    /// Whether messages about each connection are left out.
    pub quiet: bool,
    /// Server parameters by name.
    pub parameters: Vec<(String, String)>,
}

impl Config {
    /// Whether the server is a member of a replica set whose members share a store.
    pub fn has_members(&self) -> bool {
        let shares = self.engine == EngineChoice::Postgres && self.storage_standby;
        shares && self.repl_set.is_some()
    }

    /// The defaults.
    ///
    /// # Errors
    /// Not expected: the built-in file is tested.
    pub fn defaults() -> anyhow::Result<Config> {
        Config::from_layers(&Layers::defaults()?)
    }

    /// Converts the values of the layers.
    ///
    /// # Errors
    /// A value of the wrong type or out of range, with its origin.
    pub fn from_layers(layers: &Layers) -> anyhow::Result<Config> {
        let bind = if layers.bool("net.bindIpAll")? {
            vec!["0.0.0.0".to_owned()]
        } else {
            list(&layers.text("net.bindIp")?)
        };
        let optional = |path: &str| -> anyhow::Result<Option<String>> {
            Ok(Some(layers.text(path)?).filter(|text| !text.is_empty()))
        };
        let first_start =
            FirstStart::read(&layers.initial, optional("init.folder")?.map(PathBuf::from))?;
        let max_connections = usize::try_from(layers.integer("net.maxIncomingConnections")?);
        Ok(Config {
            port: u16::try_from(layers.integer("net.port")?).unwrap_or_default(),
            port_is_default: layers.is_default("net.port"),
            bind,
            max_connections: max_connections.unwrap_or(MAX_CONNECTIONS),
            tls: tls_options(layers)?,
            http: http::settings(layers)?,
            traces: traces::settings(layers)?,
            db_path: PathBuf::from(layers.text("storage.dbPath")?),
            engine: match layers.text("storage.engine")?.as_str() {
                "memory" => EngineChoice::Memory,
                "postgres" => EngineChoice::Postgres,
                _ => EngineChoice::Rocksdb,
            },
            storage_url: optional("storage.url")?.map(SecretString::from),
            storage_connections: count(layers, "storage.connections")?,
            storage_wait_ms: layers.integer("storage.waitMs")?.unsigned_abs(),
            storage_require_synchronous: layers.bool("storage.requireSynchronousStandby")?,
            storage_standby: layers.bool("storage.standby")?,
            cache_bytes: (layers.number(layers::CACHE_SIZE)? * f64::from(1 << 30)) as usize,
            reserve_bytes: layers.integer("storage.diskReserveMB")?.unsigned_abs() << 20,
            oplog_bytes: layers.integer("replication.oplogSizeMB")?.unsigned_abs() << 20,
            oplog_retention_ms: (layers.number("storage.oplogMinRetentionHours")? * 3_600_000.0)
                as i64,
            repl_set: optional("replication.replSetName")?,
            advertise: optional("replication.advertise")?,
            javascript_enabled: layers.bool("security.javascriptEnabled")?,
            authorization: layers.text("security.authorization")? == "enabled"
                || first_start.has_user(),
            allow_open: layers.bool("security.allowOpen")?,
            first_start,
            audit: audit::settings(layers)?,
            redact_client_data: layers.bool("security.redactClientLogData")?,
            archive: archive_options(layers)?,
            backup: backup_options(layers)?,
            log: logging::settings(layers)?,
            profiling: profiling::settings(layers)?,
            fork: layers.bool("processManagement.fork")?,
            pid_file: optional("processManagement.pidFilePath")?.map(PathBuf::from),
            honor_system_umask: layers.switch("honorSystemUmask"),
            // Not a key of the configuration: it is decided for a single start.
            upgrade: false,
            is_secondary: false,
            ignored: layers.ignored(),
            verbosity: layers.integer("systemLog.verbosity")?,
            quiet: layers.bool("systemLog.quiet")?,
            parameters: layers.parameters(),
        })
    }
}

fn tls_options(layers: &Layers) -> anyhow::Result<TlsOptions> {
    let optional = |path: &str| -> anyhow::Result<Option<String>> {
        Ok(Some(layers.text(path)?).filter(|text| !text.is_empty()))
    };
    Ok(TlsOptions {
        mode: match layers.text("net.tls.mode")?.as_str() {
            "disabled" => TlsMode::Disabled,
            "requireTLS" => TlsMode::Required,
            _ => TlsMode::Allowed,
        },
        certificate_key_file: optional("net.tls.certificateKeyFile")?.map(PathBuf::from),
        password: optional("net.tls.certificateKeyFilePassword")?.map(SecretString::from),
        ca_file: optional("net.tls.CAFile")?.map(PathBuf::from),
        crl_file: optional("net.tls.CRLFile")?.map(PathBuf::from),
        allow_without_certificates: layers.bool("net.tls.allowConnectionsWithoutCertificates")?,
        disabled_protocols: list(&layers.text("net.tls.disabledProtocols")?),
        fips_mode: layers.bool("net.tls.FIPSMode")?,
    })
}

fn count(layers: &Layers, path: &str) -> anyhow::Result<usize> {
    Ok(usize::try_from(layers.integer(path)?).unwrap_or_default())
}

fn archive_options(layers: &Layers) -> anyhow::Result<ArchiveOptions> {
    let folder = folder(layers, "archive.folder")?;
    Ok(ArchiveOptions { folder, urls: list(&layers.text("archive.urls")?) })
}

fn backup_options(layers: &Layers) -> anyhow::Result<BackupOptions> {
    let folder = folder(layers, "backup.folder")?;
    Ok(BackupOptions {
        folder,
        urls: list(&layers.text("backup.urls")?),
        archive_to: Some(layers.text("backup.to")?).filter(|text| !text.is_empty()),
        log_interval_secs: layers.integer("backup.logIntervalSecs")?.unsigned_abs(),
        max_lag_bytes: match layers.integer("backup.maxLagMB")?.unsigned_abs() {
            0 => None,
            megabytes => Some(megabytes << 20),
        },
    })
}

fn folder(layers: &Layers, path: &str) -> anyhow::Result<Option<PathBuf>> {
    Ok(Some(layers.text(path)?).filter(|text| !text.is_empty()).map(PathBuf::from))
}

fn list(text: &str) -> Vec<String> {
    text.split(',').map(|part| part.trim().to_owned()).filter(|part| !part.is_empty()).collect()
}

#[cfg(test)]
mod tests {
    use clap::Parser;
    use mayfly_service::machine::Memory;

    use super::*;
    use crate::audit::{AuditDestination, AuditFormat};
    use crate::failure::FailureKind;

    fn collect(words: &[&str], environment: &[(&str, &str)]) -> anyhow::Result<Layers> {
        let flags = Flags::parse_from([&["mayflydb"], words].concat());
        let owned = |(name, value): &(&str, &str)| ((*name).to_owned(), (*value).to_owned());
        Layers::collect(&flags, &environment.iter().map(owned).collect::<Vec<_>>())
    }

    #[test]
    fn every_key_has_a_default() {
        let described = Layers::defaults().unwrap().describe();
        for key in keys::KEYS {
            assert!(described.contains(&format!("{}: ", key.path)), "{}", key.path);
        }
        let config = Config::defaults().unwrap();
        assert_eq!((config.port, config.bind), (27017, vec!["127.0.0.1".to_owned()]));
        assert_eq!(config.max_connections, MAX_CONNECTIONS);
    }

    #[test]
    fn the_cache_is_a_quarter_of_the_memory_by_default() {
        const GB: u64 = 1 << 30;
        let shown = |words: &[&str], machine_bytes, limit_bytes| {
            let flags = Flags::parse_from([&["mayflydb"], words].concat());
            let mut layers = Layers::from_sources(&flags, &[]).unwrap();
            layers.choose_cache(&Memory { machine_bytes, limit_bytes });
            let described = layers.describe();
            let line =
                described.lines().find_map(|line| line.strip_prefix("storage.cacheSizeGB: "));
            let bytes = Config::from_layers(&layers).unwrap().cache_bytes;
            (line.unwrap().to_owned(), bytes, layers.parsed())
        };
        let nothing = mayfly_value::DocBuf::empty();
        let (line, bytes, parsed) = shown(&[], 16 * GB, None);
        assert_eq!(line, "4  # default: a quarter of the 16.00 GB of the machine");
        assert_eq!((bytes, parsed), (4 << 30, nothing));
        let (line, bytes, _) = shown(&[], 16 * GB, Some(3 * GB));
        assert_eq!(line, "0.75  # default: a quarter of the 3.00 GB of the process's limit");
        assert_eq!(bytes, 3 << 28);
        let (line, bytes, _) = shown(&[], 16 * GB, Some(GB / 2));
        assert_eq!(line, "0.12  # default: a quarter of the 0.50 GB of the process's limit");
        assert_eq!(bytes, (0.12 * f64::from(1 << 30)) as usize);
        assert_eq!(shown(&[], 0, None).0, "0.25  # default: the memory of the system is unknown");
        assert_eq!(shown(&["--cacheSizeGB", "2"], 16 * GB, None).0, "2  # flag --cacheSizeGB");
        let by_flag = "4  # flag --cacheSizeGB: a quarter of the 16.00 GB of the machine";
        assert_eq!(shown(&["--cacheSizeGB", "0"], 16 * GB, None).0, by_flag);
    }

    #[test]
    fn scripts_can_be_switched_off() {
        assert!(Config::defaults().unwrap().javascript_enabled);
        let by_flag = collect(&["--noscripting"], &[]).unwrap();
        assert!(!Config::from_layers(&by_flag).unwrap().javascript_enabled);
        let by_environment = collect(&[], &[("MAYFLYDB_JAVASCRIPTENABLED", "false")]).unwrap();
        assert!(!Config::from_layers(&by_environment).unwrap().javascript_enabled);
    }

    #[test]
    fn authorization_is_off_by_default() {
        let is_on = |words: &[&str], environment: &[(&str, &str)]| {
            Config::from_layers(&collect(words, environment).unwrap()).unwrap().authorization
        };
        assert!(!is_on(&[], &[]));
        assert!(is_on(&["--auth"], &[]));
        assert!(is_on(&[], &[("MAYFLYDB_AUTH", "enabled")]));
        assert!(!is_on(&[], &[("MAYFLYDB_AUTH", "disabled")]));
        // Any other value is refused and does not count as disabled.
        assert!(collect(&[], &[("MAYFLYDB_AUTH", "true")]).is_err());
    }

    #[test]
    fn a_first_user_switches_authorization_on_and_secrets_are_not_shown() {
        let user = ("MONGO_INITDB_ROOT_USERNAME", "root");
        let layers = collect(&[], &[user, ("MONGO_INITDB_ROOT_PASSWORD", "hunter2")]).unwrap();
        let config = Config::from_layers(&layers).unwrap();
        assert!(config.authorization && config.first_start.has_user());
        assert!(!layers.describe().contains("hunter2"));
        assert!(Config::from_layers(&collect(&[], &[user]).unwrap()).is_err());

        let flag = "--tlsCertificateKeyFilePassword";
        let layers = collect(&[flag, "hunter2"], &[]).unwrap();
        assert!(!layers.describe().contains("hunter2"));
        assert!(!format!("{:?}", layers.parsed()).contains("hunter2"));
        let words = [flag, "hunter2", "--tlsCertificateKeyFilePassword=hunter2", "--port", "1"];
        let shown = shown_words(words.iter().map(|word| (*word).to_owned()));
        let expected = [flag, "<password>", &format!("{flag}=<password>"), "--port", "1"];
        assert_eq!(shown, expected);
        let parsed = collect(&["--tlsMode", "allowTLS"], &[]).unwrap().parsed();
        let parsed = mayfly_value::bson::Document::from_reader(parsed.as_bytes()).unwrap();
        let nested = mayfly_value::bson::doc! { "net": { "tls": { "mode": "allowTLS" } } };
        assert_eq!(parsed, nested);
    }

    #[test]
    fn the_keys_of_the_audit_log_go_together() {
        let audit = |words: &[&str]| -> Result<Option<AuditSettings>, String> {
            let config = Config::from_layers(&collect(words, &[]).unwrap());
            config.map(|config| config.audit).map_err(|error| {
                assert_eq!(FailureKind::of(&error), FailureKind::Options);
                error.root_cause().to_string()
            })
        };
        assert!(audit(&[]).unwrap().is_none());
        let file = ["--auditDestination", "file", "--auditPath", "a.json"];
        let with = |more: &[&str]| audit(&[&file, more].concat());
        let settings = with(&["--auditFilter", "{ atype: 'logout' }"]).unwrap().unwrap();
        assert_eq!(
            settings.destination,
            AuditDestination::File("a.json".into(), AuditFormat::Json)
        );
        assert!(settings.filter.is_some() && !settings.runtime);
        let settings = with(&["--auditFormat", "BSON"]).unwrap().unwrap();
        assert_eq!(
            settings.destination,
            AuditDestination::File("a.json".into(), AuditFormat::Bson)
        );
        let to = |destination| ["--auditDestination", destination];
        assert_eq!(audit(&to("syslog")).unwrap().unwrap().destination, AuditDestination::Syslog);
        let runtime = "--auditRuntimeConfiguration";
        assert!(with(&[runtime]).unwrap().unwrap().runtime);

        let fails = |result: Result<Option<AuditSettings>, String>, text: &str| {
            let found = result.unwrap_err();
            assert!(found.contains(text), "'{text}' is not in: {found}");
        };
        fails(audit(&to("file")), "auditLog.path is not set");
        fails(audit(&["--auditPath", "a"]), "auditLog.destination is not set");
        fails(audit(&["--auditFilter", "{}"]), "auditLog.destination is not set");
        fails(audit(&[runtime]), "auditLog.destination is not set");
        fails(audit(&["--auditDestination", "console", "--auditPath", "a"]), "is console");
        fails(audit(&["--auditDestination", "syslog", "--auditFormat", "BSON"]), "is syslog");
        fails(with(&["--auditFilter", "{ a: "]), "auditLog.filter: ");
        fails(with(&["--auditFilter", "{ $no: 1 }"]), "unknown top level operator: $no");
        fails(with(&[runtime, "--auditFilter", "{ a: 1 }"]), "auditLog.runtimeConfiguration");
        let success = "auditAuthorizationSuccess=true";
        fails(with(&[runtime, "--setParameter", success]), "auditLog.runtimeConfiguration");
    }

    #[test]
    fn higher_layers_win() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("c.yaml");
        let text = "net:\n  port: 1\n  bindIpAll: true\nstorage:\n  wiredTiger:\n    engineConfig:\n      \
                    cacheSizeGB: 1.5\nsetParameter:\n  ttlMonitorSleepSecs: 7\nsystemLog:\n";
        std::fs::write(&file, text).unwrap();
        let file = file.to_str().unwrap();
        let layers = collect(&["-f", file], &[]).unwrap();
        let config = Config::from_layers(&layers).unwrap();
        assert_eq!((config.port, config.bind[0].as_str()), (1, "0.0.0.0"));
        assert_eq!(config.cache_bytes, 3 << 29);
        assert_eq!(config.parameters, [("ttlMonitorSleepSecs".to_owned(), "7".to_owned())]);
        let environment = [("MAYFLYDB_PORT", "2"), ("MAYFLYDB_BIND_IP", "127.0.0.2")];
        let layers = collect(&["-f", file], &environment).unwrap();
        let config = Config::from_layers(&layers).unwrap();
        assert_eq!((config.port, config.bind[0].as_str()), (2, "127.0.0.2"));
        let layers = collect(&["-f", file, "--port", "3"], &environment).unwrap();
        assert_eq!(Config::from_layers(&layers).unwrap().port, 3);
        assert!(layers.describe().contains("net.port: 3  # flag --port"));
    }

    #[test]
    fn mistakes_are_named() {
        let fails = |words: &[&str], environment: &[(&str, &str)], text: &str| {
            let error = collect(words, environment).unwrap_err();
            assert_eq!(error.root_cause().to_string(), text);
            assert_eq!(FailureKind::of(&error), FailureKind::Options);
        };
        let text =
            "flag --cacheSizeGB: storage.cacheSizeGB: 0.01 is neither 0 nor between 0.03 and 10000";
        fails(&["--cacheSizeGB", "0.01"], &[], text);
        fails(&["--port", "70000"], &[], "flag --port: net.port: 70000 is not between 0 and 65535");
        let text = "unknown environment variable MAYFLYDB_PROT (did you mean 'MAYFLYDB_PORT'?)";
        fails(&[], &[("MAYFLYDB_PROT", "1")], text);
        let text = "flag --storageEngine: storage.engine: 'mmapv1' is not one of rocksdb, \
                    postgres, memory";
        fails(&["--storageEngine", "mmapv1"], &[], text);
        let text = "flag --setParameter: ttlMonitorSleepSecs: 0";
        let error = collect(&["--setParameter", "ttlMonitorSleepSecs=0"], &[]).unwrap_err();
        assert!(error.root_cause().to_string().contains(text), "{error:#}");
        let text = "flag --auditDestination: auditLog.destination: 'disk' is not one of file, syslog, console";
        fails(&["--auditDestination", "disk"], &[], text);
        let parse = |text: &str| match file::parse("f", text) {
            Ok(contents) if contents.mistakes.is_empty() => None,
            Ok(contents) => Some(contents.mistakes.join(", ")),
            Err(error) => Some(error.to_string()),
        };
        let unknown = "f:2: unknown key 'net.prot' (did you mean 'net.port'?)";
        assert_eq!(parse("net:\n  prot: 1\n").as_deref(), Some(unknown));
        assert_eq!(parse("net: 5\n").as_deref(), Some("f:1: unexpected value for 'net'"));
        let unknown = "f:1: unknown key 'sotrage' (did you mean 'storage'?)";
        assert_eq!(parse("sotrage: 1").as_deref(), Some(unknown));
        let value = "which this server does not run: write the value itself";
        let program = "security:\n  ldap:\n    __exec: \"cat key\"\n";
        for (text, expected) in [
            ("net:\n  port:\n    __exec: \"echo 1\"\n", "f:3: net.port is given by '__exec'"),
            ("net:\n  __rest: \"http://h\"\n", "f:2: net is given by '__rest'"),
            ("__rest: \"http://h\"\n", "f:1: the whole file is given by '__rest'"),
        ] {
            assert_eq!(parse(text), Some(format!("{expected}, {value}")));
        }
        // An unknown key is reported first.
        assert!(parse(program).unwrap().contains("unknown key 'security.ldap'"));
        assert!(parse("a: [").is_some());
        assert!(parse(&"[".repeat(10_000)).is_some());
        assert!(parse("").is_none());
    }
}
