//! Backups of the data folder into repositories ([`mayfly_repository`]), and restores from them.
//!
//! * [`place`]: folders and URLs of repositories, and which of them the configuration allows.
//! * [`runner`]: the command `backup` in a running server.
//! * [`entries`]: what takes the place of files for engines that have none.
//! * [`archive`]: the archive of the log, from which a restore to any time takes entries.
//! * [`task`]: `mayflydb backup`, which runs that command, and its subtasks over a repository.
//! * [`restore`]: `mayflydb restore`, which makes a data folder from a backup.

mod archive;
mod client;
mod entries;
mod failed;
mod place;
pub(crate) mod progress;
pub mod restore;
mod runner;
pub(crate) mod show;
pub mod task;

pub(crate) use archive::LogArchive;
pub use place::BackupOptions;
pub(crate) use runner::FileBackups;
