//! Tests of the whole server, in one binary: inside the test process with a manual clock, and as a
//! process that is killed or started with wrong options.

mod audit;
mod authorization;
mod built_in_roles;
mod clock;
mod common;
mod connections;
mod copy_under_lock;
mod crash;
mod exact_rights;
mod expiry;
mod failed_starts;
mod figures;
mod first_start;
mod formats;
mod full_disk;
mod http;
mod http_attacks;
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
mod service_manager;
mod sessions;
mod threads;
mod tls;
mod transactions;
mod unread_replies;
mod upkeep;
