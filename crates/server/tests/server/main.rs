//! The server as a whole, in one binary: inside a test with a clock of its own, and as a process
//! that is killed, started wrongly, or asked twice.

mod audit;
mod authorization;
mod built_in_roles;
mod clock;
mod common;
mod connections;
mod crash;
mod exact_rights;
mod expiry;
mod failed_starts;
mod figures;
mod first_start;
mod full_disk;
mod log_files;
mod logins;
mod memory;
mod memory_group;
mod memory_limit;
mod own_documents;
mod pace;
mod package_configuration;
mod permissions;
mod retry;
mod secrets;
mod sessions;
mod threads;
mod tls;
mod transactions;
mod unread_replies;
