//! The server around the commands: configuration, logging, listeners, connections, choice of the
//! engine, shutdown.
//!
//! [`start()`] runs a server inside this process. The binary only calls it, as do in-process tests
//! with the memory engine and a manual clock. This crate contains no operators and no commands.

mod accept;
pub mod allocator;
pub mod archive;
pub mod audit;
pub mod backup;
#[doc = include_str!("../../../ARCHITECTURE.md")]
pub mod architecture {}
pub mod check;
mod client;
pub mod config;
mod connection;
pub mod copy;
pub mod daemon;
mod data_folder;
mod database;
mod database_clock;
mod descriptors;
mod durability;
mod expiry_line;
mod expiry_state;
pub mod failure;
mod first_start;
pub mod healthcheck;
mod http;
mod kept_listeners;
pub mod logging;
mod membership;
mod offline;
mod opening;
mod peer;
pub mod permissions;
mod processes;
pub mod processor;
mod shell_host;
pub mod signals;
pub mod standby;
mod start;
pub mod status_task;
pub mod storage_task;
pub mod supervisor;
mod tls;
mod traces;

pub use config::Config;
pub use database_clock::DatabaseClock;
pub use descriptors::open_files;
pub use first_start::FirstStart;
pub use kept_listeners::KeptListeners;
pub use mayfly_kv_rocksdb::FORMAT as DATA_FORMAT;
pub use start::{DRAIN, Running, StartOptions, start};
pub use tls::{TlsMode, TlsOptions};
