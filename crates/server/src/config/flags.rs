//! The command line, with mongod's names.

use std::path::PathBuf;

use clap::{ArgAction, Parser};

/// A server that speaks MongoDB's wire protocol and expires documents on time.
#[derive(Clone, Debug, Default, Parser)]
#[command(name = "mayflydb", version, about)]
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
    /// Connections served at once [default: 20000]
    #[arg(long = "maxConns", value_name = "COUNT")]
    pub(super) max_conns: Option<String>,
    /// Folder of the data [default: ./data]
    #[arg(long)]
    pub(super) dbpath: Option<String>,
    /// rocksdb or memory [default: rocksdb]
    #[arg(long = "storageEngine", value_name = "ENGINE")]
    pub(super) storage_engine: Option<String>,
    /// Memory for cached blocks and unflushed writes, in GB [default: 0.25]
    #[arg(long = "cacheSizeGB", alias = "wiredTigerCacheSizeGB", value_name = "GB")]
    pub(super) cache_size_gb: Option<String>,
    /// Answer as the primary of a replica set of this name, with one member
    #[arg(long = "replSet", value_name = "NAME")]
    pub(super) repl_set: Option<String>,
    /// Address that a replica set tells its clients [default: the one they connect to]
    #[arg(long, value_name = "HOST:PORT")]
    pub(super) advertise: Option<String>,
    /// Size of the operation log in MB [default: 1024]
    #[arg(long = "oplogSize", value_name = "MB")]
    pub(super) oplog_size: Option<String>,
    /// Folder under which policies may archive expired documents in files
    #[arg(long = "archiveFolder", value_name = "FOLDER")]
    pub(super) archive_folder: Option<String>,
    /// Prefixes of URLs under which they may, separated by commas
    #[arg(long = "archiveUrls", value_name = "URLS")]
    pub(super) archive_urls: Option<String>,
    /// Refuse $where, $function and what else runs scripts
    #[arg(long)]
    pub(super) noscripting: bool,
    /// Log file instead of the standard output
    #[arg(long)]
    pub(super) logpath: Option<String>,
    /// Tell more; several times for even more
    #[arg(short = 'v', long, action = ArgAction::Count)]
    pub(super) verbose: u8,
    /// Leave out what comes with every connection
    #[arg(long)]
    pub(super) quiet: bool,
    /// A server parameter, repeatable
    #[arg(long = "setParameter", value_name = "NAME=VALUE")]
    pub(super) set_parameter: Vec<String>,
    /// Configuration file (YAML, the key names of mongod.conf)
    #[arg(short = 'f', long, value_name = "FILE")]
    pub(super) config: Option<PathBuf>,
    /// Show every configuration value and where it comes from, and end
    #[arg(long = "print-config")]
    pub print_config: bool,
    /// Ask the server on the configured port whether it is well, and end
    #[arg(long)]
    pub healthcheck: bool,
}

impl Flags {
    /// The flags that were given: name and value.
    pub(super) fn given(&self) -> Vec<(&'static str, String)> {
        let texts = [
            ("port", &self.port),
            ("bind_ip", &self.bind_ip),
            ("maxConns", &self.max_conns),
            ("dbpath", &self.dbpath),
            ("storageEngine", &self.storage_engine),
            ("cacheSizeGB", &self.cache_size_gb),
            ("replSet", &self.repl_set),
            ("advertise", &self.advertise),
            ("oplogSize", &self.oplog_size),
            ("archiveFolder", &self.archive_folder),
            ("archiveUrls", &self.archive_urls),
            ("logpath", &self.logpath),
        ];
        let mut given: Vec<_> =
            texts.into_iter().filter_map(|(name, text)| Some((name, text.clone()?))).collect();
        if self.bind_ip_all {
            given.push(("bind_ip_all", "true".to_owned()));
        }
        if self.noscripting {
            given.push(("javascriptEnabled", "false".to_owned()));
        }
        if self.quiet {
            given.push(("quiet", "true".to_owned()));
        }
        if self.verbose > 0 {
            given.push(("verbose", self.verbose.min(5).to_string()));
        }
        given
    }
}
