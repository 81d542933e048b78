//! Configuration: one table of keys, four layers, and the values that come out.
//!
//! Defaults < file < environment < command line. The defaults are the project's own `config/mayflydb.yaml`, built
//! in, so that the documentation of a key and its default cannot differ.

mod file;
mod flags;
mod keys;
mod layers;

pub use flags::Flags;
pub use layers::{Layers, Origin};

use std::path::PathBuf;

use mayfly_base::limits;

/// What is wrong with the configuration, in one line for the operator.
pub type ConfigResult<T> = Result<T, String>;

/// Which byte store holds the data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EngineChoice {
    /// The embedded engine.
    Rocksdb,
    /// Nothing survives the end of the process.
    Memory,
}

/// The configuration of a server.
#[derive(Clone, Debug)]
pub struct Config {
    /// TCP port, 0 for a free one.
    pub port: u16,
    /// Addresses or names to listen on.
    pub bind: Vec<String>,
    /// Connections served at once.
    pub max_connections: usize,
    /// Folder of the data.
    pub db_path: PathBuf,
    /// Which byte store holds the data.
    pub engine: EngineChoice,
    /// Memory for cached blocks and unflushed writes together.
    pub cache_bytes: usize,
    /// Size that the oplog is trimmed to.
    pub oplog_bytes: u64,
    /// Name of the replica set, not effective yet.
    pub repl_set: Option<String>,
    /// Log file; nothing for the standard output.
    pub log_path: Option<PathBuf>,
    /// How much the log tells, 0 to 5.
    pub verbosity: i64,
    /// Leave out what comes with every connection.
    pub quiet: bool,
    /// Server parameters by name.
    pub parameters: Vec<(String, String)>,
}

impl Config {
    /// The defaults.
    ///
    /// # Errors
    /// None: the built-in file is tested.
    pub fn defaults() -> ConfigResult<Config> {
        Config::from_layers(&Layers::defaults()?)
    }

    /// The values that the layers come to.
    ///
    /// # Errors
    /// A value of the wrong type or out of range, with its origin.
    pub fn from_layers(layers: &Layers) -> ConfigResult<Config> {
        let bind = if layers.bool("net.bindIpAll")? {
            vec!["0.0.0.0".to_owned()]
        } else {
            let list = layers.text("net.bindIp")?;
            list.split(',').map(|part| part.trim().to_owned()).filter(|p| !p.is_empty()).collect()
        };
        let optional = |path: &str| -> ConfigResult<Option<String>> {
            Ok(Some(layers.text(path)?).filter(|text| !text.is_empty()))
        };
        let max_connections = usize::try_from(layers.integer("net.maxIncomingConnections")?);
        Ok(Config {
            port: u16::try_from(layers.integer("net.port")?).unwrap_or_default(),
            bind,
            max_connections: max_connections.unwrap_or(limits::MAX_CONNECTIONS),
            db_path: PathBuf::from(layers.text("storage.dbPath")?),
            engine: match layers.text("storage.engine")?.as_str() {
                "memory" => EngineChoice::Memory,
                _ => EngineChoice::Rocksdb,
            },
            cache_bytes: (layers.number("storage.cacheSizeGB")? * f64::from(1 << 30)) as usize,
            oplog_bytes: layers.integer("replication.oplogSizeMB")?.unsigned_abs() << 20,
            repl_set: optional("replication.replSetName")?,
            log_path: optional("systemLog.path")?.map(PathBuf::from),
            verbosity: layers.integer("systemLog.verbosity")?,
            quiet: layers.bool("systemLog.quiet")?,
            parameters: layers.parameters(),
        })
    }
}
