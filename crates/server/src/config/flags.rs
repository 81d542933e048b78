//! The command line, with mongod's names of flags.

use std::io::Write;
use std::path::PathBuf;

use anyhow::anyhow;
use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{ArgAction, CommandFactory, Parser, Subcommand};

use super::http::DEFAULT_ADDRESS;
use crate::backup::restore::RestoreFlags;
use crate::backup::task::BackupFlags;
use crate::check::CheckFlags;
use crate::copy::CopyFlags;
use crate::failure::{Failure, FailureKind};
use crate::status_task::StatusFlags;

/// A server that speaks MongoDB's wire protocol and expires documents on time.
#[derive(Clone, Debug, Default, Parser)]
#[command(name = "mayflydb", version)]
pub struct Flags {
    /// TCP port, 0 for a free one [default: 27017]
    #[arg(long)]
    pub(super) port: Option<String>,
    /// Addresses to listen on, separated by commas [default: 127.0.0.1]
    #[arg(long = "bind_ip", value_name = "ADDRESSES")]
    pub(super) bind_ip: Option<String>,
    /// Listen on all addresses of the machine
    #[arg(long = "bind_ip_all")]
    pub(super) bind_ip_all: bool,
    /// Largest number of connections [default: 20000]
    #[arg(long = "maxConns", value_name = "COUNT")]
    pub(super) max_conns: Option<String>,
    /// disabled, allowTLS, preferTLS or requireTLS [default: disabled]
    #[arg(long = "tlsMode", value_name = "MODE")]
    pub(super) tls_mode: Option<String>,
    /// PEM file with the server's certificate and private key
    #[arg(long = "tlsCertificateKeyFile", value_name = "FILE")]
    pub(super) tls_certificate_key_file: Option<String>,
    /// Password of the private key
    #[arg(long = "tlsCertificateKeyFilePassword", value_name = "PASSWORD")]
    pub(super) tls_certificate_key_file_password: Option<String>,
    /// PEM file with the authorities that sign clients' certificates
    #[arg(long = "tlsCAFile", value_name = "FILE")]
    pub(super) tls_ca_file: Option<String>,
    /// PEM file with lists of revoked certificates
    #[arg(long = "tlsCRLFile", value_name = "FILE")]
    pub(super) tls_crl_file: Option<String>,
    /// With --tlsCAFile, also accept clients without a certificate
    #[arg(long = "tlsAllowConnectionsWithoutCertificates")]
    pub(super) tls_allow_connections_without_certificates: bool,
    /// Disabled versions, separated by commas: TLS1_2 or TLS1_3
    #[arg(long = "tlsDisabledProtocols", value_name = "VERSIONS")]
    pub(super) tls_disabled_protocols: Option<String>,
    /// Not supported: this server has no certified cryptographic module
    #[arg(long = "tlsFIPSMode")]
    pub(super) tls_fips_mode: bool,
    /// Serve the status page and the metrics over HTTP [default address: 127.0.0.1:27018]
    #[arg(long, value_name = "ADDRESS", num_args = 0..=1, default_missing_value = DEFAULT_ADDRESS)]
    pub(super) http: Option<String>,
    /// Further names of this server in URLs of the status page, separated by commas
    #[arg(long = "httpHosts", value_name = "NAMES")]
    pub(super) http_hosts: Option<String>,
    /// Serve a status page without actions
    #[arg(long = "httpReadOnly")]
    pub(super) http_read_only: bool,
    /// File with a token that gives access to the metrics
    #[arg(long = "httpTokenFile", value_name = "FILE")]
    pub(super) http_token_file: Option<String>,
    /// Send traces of commands to this collector (OTLP over HTTP), such as http://127.0.0.1:4318
    #[arg(long = "otlpEndpoint", value_name = "URL")]
    pub(super) otlp_endpoint: Option<String>,
    /// Headers of requests to the collector, name=value, several separated by commas
    #[arg(long = "otlpHeaders", value_name = "HEADERS")]
    pub(super) otlp_headers: Option<String>,
    /// The share of commands to trace, of those without a parent, from 0 to 1 [default: 1]
    #[arg(long = "otlpShare", value_name = "SHARE")]
    pub(super) otlp_share: Option<String>,
    /// Folder of the data [default: ./data]
    #[arg(long)]
    pub(super) dbpath: Option<String>,
    /// rocksdb, postgres or memory [default: rocksdb]
    #[arg(long = "storageEngine", value_name = "ENGINE")]
    pub(super) storage_engine: Option<String>,
    /// URL of the PostgreSQL database, for the engine postgres
    #[arg(long = "storageUrl", value_name = "URL", global = true)]
    pub(super) storage_url: Option<String>,
    /// Most connections to that database for which operations queue [default: 32]
    #[arg(long = "storageConnections", value_name = "NUMBER")]
    pub(super) storage_connections: Option<String>,
    /// How long operations wait while PostgreSQL cannot be reached, in milliseconds
    #[arg(long = "storageWaitMs", value_name = "MS")]
    pub(super) storage_wait_ms: Option<String>,
    /// Refuse to start unless commits wait for a standby of PostgreSQL
    #[arg(long = "requireSynchronousStandby")]
    pub(super) require_synchronous_standby: bool,
    /// Wait while another server owns the store in PostgreSQL, and take it over when that one ends.
    #[arg(long = "storageStandby")]
    pub(super) storage_standby: bool,
    /// Memory for cached blocks and unflushed writes, in GB [default: a quarter of the memory]
    #[arg(long = "cacheSizeGB", alias = "wiredTigerCacheSizeGB", value_name = "GB")]
    pub(super) cache_size_gb: Option<String>,
    /// Name of a replica set: this server is its only member, or one of several with
    /// --storageStandby
    #[arg(long = "replSet", value_name = "NAME")]
    pub(super) repl_set: Option<String>,
    /// Address of the replica set member for clients [default: the one they connect to]
    #[arg(long, value_name = "HOST:PORT")]
    pub(super) advertise: Option<String>,
    /// Size of the operation log in MB [default: 1024]
    #[arg(long = "oplogSize", value_name = "MB")]
    pub(super) oplog_size: Option<String>,
    /// Disk space reserved for deletions and for starting on a full disk, in MB [default: 256]
    #[arg(long = "diskReserveMB", value_name = "MB")]
    pub(super) disk_reserve: Option<String>,
    /// Minimum retention of operation log entries, in hours [default: 0]
    #[arg(long = "oplogMinRetentionHours", value_name = "HOURS")]
    pub(super) oplog_retention: Option<String>,
    /// Folder under which policies may archive expired documents in files
    #[arg(long = "archiveFolder", value_name = "FOLDER")]
    pub(super) archive_folder: Option<String>,
    /// Prefixes of URLs under which policies may archive, separated by commas
    #[arg(long = "archiveUrls", value_name = "URLS")]
    pub(super) archive_urls: Option<String>,
    /// Folder under which the command backup may make backups
    #[arg(long = "backupFolder", value_name = "FOLDER")]
    pub(super) backup_folder: Option<String>,
    /// Prefixes of URLs under which the command backup may make backups, separated by commas
    #[arg(long = "backupUrls", value_name = "URLS")]
    pub(super) backup_urls: Option<String>,
    /// Repository into which the operation log is archived: a folder, or s3://bucket/prefix
    #[arg(long = "backupTo", value_name = "PLACE")]
    pub(super) backup_to: Option<String>,
    /// Interval at which the operation log is archived, in seconds [default: 10]
    #[arg(long = "backupLogIntervalSecs", value_name = "SECONDS")]
    pub(super) backup_log_interval: Option<String>,
    /// Megabytes by which the log may exceed its size for the archive [default: its size]
    #[arg(long = "backupMaxLagMB", value_name = "MB")]
    pub(super) backup_max_lag: Option<String>,
    /// Require a login, and check the user's rights for every command
    #[arg(long)]
    pub(super) auth: bool,
    /// Listen on all addresses without --auth: every client may then do everything
    #[arg(long = "allowOpen")]
    pub(super) allow_open: bool,
    /// Folder of scripts (*.sh, *.js) that run once, when the data folder is new
    #[arg(long = "initFolder", value_name = "FOLDER")]
    pub(super) init_folder: Option<String>,
    /// Refuse $where, $function and other operators that run scripts
    #[arg(long)]
    pub(super) noscripting: bool,
    /// Write audit events to file, syslog or console
    #[arg(long = "auditDestination", value_name = "DESTINATION")]
    pub(super) audit_destination: Option<String>,
    /// JSON or BSON, for an audit log in a file [default: JSON]
    #[arg(long = "auditFormat", value_name = "FORMAT")]
    pub(super) audit_format: Option<String>,
    /// File of the audit log
    #[arg(long = "auditPath", value_name = "FILE")]
    pub(super) audit_path: Option<String>,
    /// Which events are audited, a query in extended JSON [default: all]
    #[arg(long = "auditFilter", value_name = "QUERY")]
    pub(super) audit_filter: Option<String>,
    /// Allow commands to change the audit filter
    #[arg(long = "auditRuntimeConfiguration")]
    pub(super) audit_runtime_configuration: bool,
    /// Write ### in place of values of documents and commands to the log
    #[arg(long = "redactClientLogData")]
    pub(super) redact_client_log_data: bool,
    /// Log file instead of the standard output
    #[arg(long)]
    pub(super) logpath: Option<String>,
    /// file or syslog [default: file with --logpath]
    #[arg(long = "logDestination", value_name = "DESTINATION")]
    pub(super) log_destination: Option<String>,
    /// Write the log to the system's log
    #[arg(long)]
    pub(super) syslog: bool,
    /// Facility of messages to the system's log [default: user]
    #[arg(long = "syslogFacility", value_name = "FACILITY")]
    pub(super) syslog_facility: Option<String>,
    /// Append to an existing log file (this is the default)
    #[arg(long)]
    pub(super) logappend: bool,
    /// rename or reopen: what logRotate and SIGUSR1 do with log files [default: rename]
    #[arg(long = "logRotate", value_name = "METHOD")]
    pub(super) log_rotate: Option<String>,
    /// Run in the background, once the server is ready; needs a log file or --syslog
    #[arg(long)]
    pub(super) fork: bool,
    /// File for the process id
    #[arg(long, value_name = "FILE")]
    pub(super) pidfilepath: Option<String>,
    /// Milliseconds after which an operation is slow, and is logged [default: 100]
    #[arg(long, value_name = "MS")]
    pub(super) slowms: Option<String>,
    /// Fraction of the slow operations that are recorded, 0 to 1 [default: 1]
    #[arg(long = "slowOpSampleRate", value_name = "SHARE")]
    pub(super) slow_op_sample_rate: Option<String>,
    /// off (0), slowOp (1) or all (2): which operations the profiler records [default: off]
    #[arg(long, value_name = "MODE")]
    pub(super) profile: Option<String>,
    /// Filter of recorded operations instead of --slowms, a query in extended JSON
    #[arg(long = "profileFilter", value_name = "QUERY")]
    pub(super) profile_filter: Option<String>,
    /// Increase the verbosity of the log; repeatable
    #[arg(short = 'v', long, action = ArgAction::Count)]
    pub(super) verbose: u8,
    /// Do not log the start and end of connections
    #[arg(long)]
    pub(super) quiet: bool,
    /// A server parameter, repeatable
    #[arg(long = "setParameter", value_name = "NAME=VALUE")]
    pub(super) set_parameter: Vec<String>,
    /// Configuration file (YAML, the key names of mongod.conf)
    #[arg(short = 'f', long, value_name = "FILE", global = true)]
    pub(super) config: Option<PathBuf>,
    /// Convert a data folder that an older version wrote; its files are kept in it
    #[arg(long)]
    pub upgrade: bool,
    /// Print every configuration value with its origin, and exit
    #[arg(long = "print-config")]
    pub print_config: bool,
    /// Check that the server on the configured port answers, and exit
    #[arg(long)]
    pub healthcheck: bool,
    /// What to do instead of starting a server
    #[command(subcommand)]
    pub task: Option<Task>,
}

/// A task of the program other than to serve clients.
#[derive(Clone, Debug, Subcommand)]
pub enum Task {
    /// Back up a running server, or list, verify and prune backups
    Backup(BackupFlags),
    /// Make a data folder from a backup
    Restore(RestoreFlags),
    /// Move a store between a data folder and PostgreSQL, while clients use it
    Copy(CopyFlags),
    /// Check a data folder that no server has open
    Check(CheckFlags),
    /// Print how a running server is, and whether expiry keeps up
    Status(StatusFlags),
    /// Print a script that completes this program's flags in a shell
    Completions {
        /// The shell
        shell: clap_complete::Shell,
    },
    /// Print the manual page, for man -l
    Manual,
    /// Make or look at a store in PostgreSQL
    Storage {
        /// What to do with it
        #[command(subcommand)]
        action: StorageAction,
    },
}

/// A task with a store in PostgreSQL.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Subcommand)]
pub enum StorageAction {
    /// Make the schema and its tables, as the first start would
    Init,
    /// Check the connection, the server, the rights and the format; changes nothing
    Check,
    /// Print the size of each table
    Stats,
}

impl Flags {
    /// The script that completes flags in this shell.
    pub fn completions(shell: clap_complete::Shell) -> Vec<u8> {
        let mut script = Vec::new();
        clap_complete::generate(shell, &mut Flags::command(), "mayflydb", &mut script);
        script
    }

    /// Writes the manual page, in roff.
    ///
    /// # Errors
    /// Errors of the output.
    pub fn write_manual(out: &mut impl Write) -> std::io::Result<()> {
        clap_mangen::Man::new(Flags::command()).render(out)
    }

    /// Parses the command line. `--help` and `--version` print their text and end the process.
    ///
    /// # Errors
    /// Unknown flags, and flags with missing values.
    pub fn read() -> anyhow::Result<Flags> {
        match Flags::try_parse() {
            Ok(flags) => Ok(flags),
            Err(error) if !error.use_stderr() || lacks_action(&error) => error.exit(),
            Err(error) => Err(anyhow!(mistake(&error)).context(Failure::new(
                FailureKind::Options,
                "cannot read the command line",
                "mayflydb --help lists the flags",
            ))),
        }
    }

    /// The flags without a value that stand for `true`.
    fn switches(&self) -> [(&'static str, bool); 12] {
        [
            ("bind_ip_all", self.bind_ip_all),
            ("allowOpen", self.allow_open),
            (
                "tlsAllowConnectionsWithoutCertificates",
                self.tls_allow_connections_without_certificates,
            ),
            ("tlsFIPSMode", self.tls_fips_mode),
            ("httpReadOnly", self.http_read_only),
            ("auditRuntimeConfiguration", self.audit_runtime_configuration),
            ("redactClientLogData", self.redact_client_log_data),
            ("logappend", self.logappend),
            ("fork", self.fork),
            ("requireSynchronousStandby", self.require_synchronous_standby),
            ("storageStandby", self.storage_standby),
            ("quiet", self.quiet),
        ]
    }

    /// The flags that were given, as names and values.
    pub(super) fn given(&self) -> Vec<(&'static str, String)> {
        let texts = [
            ("port", &self.port),
            ("bind_ip", &self.bind_ip),
            ("maxConns", &self.max_conns),
            ("tlsMode", &self.tls_mode),
            ("tlsCertificateKeyFile", &self.tls_certificate_key_file),
            ("tlsCertificateKeyFilePassword", &self.tls_certificate_key_file_password),
            ("tlsCAFile", &self.tls_ca_file),
            ("tlsCRLFile", &self.tls_crl_file),
            ("tlsDisabledProtocols", &self.tls_disabled_protocols),
            ("http", &self.http),
            ("httpHosts", &self.http_hosts),
            ("httpTokenFile", &self.http_token_file),
            ("otlpEndpoint", &self.otlp_endpoint),
            ("otlpHeaders", &self.otlp_headers),
            ("otlpShare", &self.otlp_share),
            ("dbpath", &self.dbpath),
            ("storageEngine", &self.storage_engine),
            ("storageUrl", &self.storage_url),
            ("storageConnections", &self.storage_connections),
            ("storageWaitMs", &self.storage_wait_ms),
            ("cacheSizeGB", &self.cache_size_gb),
            ("replSet", &self.repl_set),
            ("advertise", &self.advertise),
            ("oplogSize", &self.oplog_size),
            ("diskReserveMB", &self.disk_reserve),
            ("oplogMinRetentionHours", &self.oplog_retention),
            ("initFolder", &self.init_folder),
            ("archiveFolder", &self.archive_folder),
            ("archiveUrls", &self.archive_urls),
            ("backupFolder", &self.backup_folder),
            ("backupUrls", &self.backup_urls),
            ("backupTo", &self.backup_to),
            ("backupLogIntervalSecs", &self.backup_log_interval),
            ("backupMaxLagMB", &self.backup_max_lag),
            ("auditDestination", &self.audit_destination),
            ("auditFormat", &self.audit_format),
            ("auditPath", &self.audit_path),
            ("auditFilter", &self.audit_filter),
            ("logpath", &self.logpath),
            ("logDestination", &self.log_destination),
            ("syslogFacility", &self.syslog_facility),
            ("logRotate", &self.log_rotate),
            ("pidfilepath", &self.pidfilepath),
            ("slowms", &self.slowms),
            ("slowOpSampleRate", &self.slow_op_sample_rate),
            ("profile", &self.profile),
            ("profileFilter", &self.profile_filter),
        ];
        let mut given: Vec<_> =
            texts.into_iter().filter_map(|(name, text)| Some((name, text.clone()?))).collect();
        let on = self.switches().into_iter().filter(|(_, on)| *on);
        given.extend(on.map(|(name, _)| (name, "true".to_owned())));
        if self.auth {
            given.push(("auth", "enabled".to_owned()));
        }
        if self.syslog {
            given.push(("logDestination", "syslog".to_owned()));
        }
        if self.noscripting {
            given.push(("javascriptEnabled", "false".to_owned()));
        }
        if self.verbose > 0 {
            given.push(("verbose", self.verbose.min(5).to_string()));
        }
        given
    }
}

/// Whether a task has no action; the error then is the help of the task.
fn lacks_action(error: &clap::Error) -> bool {
    error.kind() == ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand
}

/// The error of the command line as a message in the style of the others.
fn mistake(error: &clap::Error) -> String {
    let text = |kind| match error.get(kind) {
        Some(ContextValue::String(text)) => text.as_str(),
        Some(ContextValue::Strings(texts)) => texts.first().map_or("", String::as_str),
        _ => "",
    };
    let given = text(ContextKind::InvalidArg);
    match error.kind() {
        ErrorKind::UnknownArgument if given.starts_with('-') => {
            let hint = match text(ContextKind::SuggestedArg) {
                "" => String::new(),
                near => format!(" (did you mean '{near}'?)"),
            };
            format!("unknown flag '{given}'{hint}")
        }
        ErrorKind::UnknownArgument => format!("unexpected word '{given}'"),
        ErrorKind::InvalidValue if text(ContextKind::InvalidValue).is_empty() => {
            format!("flag '{given}' needs a value")
        }
        ErrorKind::TooManyValues => format!("flag '{given}' takes no value"),
        ErrorKind::ArgumentConflict => format!("flag '{given}' is given twice"),
        ErrorKind::InvalidSubcommand => {
            format!("unexpected word '{}'", text(ContextKind::InvalidSubcommand))
        }
        _ => {
            let text = error.to_string();
            let first = text.lines().next().unwrap_or_default();
            first.trim_start_matches("error: ").to_owned()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mistakes_on_the_command_line_are_named() {
        let mistake = |words: &[&str]| {
            mistake(&Flags::try_parse_from([&["mayflydb"], words].concat()).unwrap_err())
        };
        assert_eq!(mistake(&["--prot", "1"]), "unknown flag '--prot' (did you mean '--port'?)");
        assert_eq!(mistake(&["--shardsvr"]), "unknown flag '--shardsvr'");
        assert_eq!(mistake(&["start"]), "unexpected word 'start'");
        assert_eq!(mistake(&["--port"]), "flag '--port <PORT>' needs a value");
        assert_eq!(mistake(&["--quiet=1"]), "flag '--quiet' takes no value");
        assert_eq!(mistake(&["--port", "1", "--port", "2"]), "flag '--port <PORT>' is given twice");
    }
}
