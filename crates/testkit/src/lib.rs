//! Golden scripts: commands, a separator, the answer; run in this process over any engine.
//!
//! * [`Fixture`]: a server without a network over a chosen engine, with a clock that tests move.
//! * [`Script`]: a file of blocks; its format is described in [`script`] and in `tests/README.md`.
//! * [`Runner`]: runs a script over a fixture and reports differences with file and line.
//! * [`dialect`]: the shell dialect of the scripts, read and written.
//! * [`history`]: checks whether the observations of clients are possible under snapshot isolation.
//! * [`outside`]: the server as a process, and messages to it.
//! * [`environment`]: variables that select or repeat tests.
//! * [`expect`]: compares answers with expectations.
//!
//! The library depends on the memory engine only; tests pass other engines.

pub mod dialect;
pub mod environment;
pub mod expect;
mod fixture;
pub mod gate;
pub mod history;
mod in_folder;
pub mod outside;
mod postgres;
mod power;
mod reopenable;
mod runner;
pub mod script;
mod steps;

pub use dialect::Env;
pub use fixture::{Fixture, OpenEngine, START_MS, clustered, memory, memory_under_chaos};
pub use in_folder::InFolder;
pub use postgres::{PostgresServer, shared_postgres};
pub use power::PowerCut;
pub use reopenable::Reopenable;
pub use runner::{Failure, Indexes, Outcome, Runner};
pub use script::Script;
pub use steps::{CountsSteps, Steps};
