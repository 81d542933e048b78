//! Commands that read and write documents.

mod aggregate;
mod bulk_write;
mod count;
mod delete;
mod distinct;
pub(crate) mod encrypted;
mod explain;
mod file_md5;
mod find;
mod find_and_modify;
mod get_more;
pub(crate) mod insert;
mod map_reduce;
mod measurements;
mod read;
mod release_memory;
mod settings;
mod together;
mod update;
mod view;
mod write;

pub(crate) use aggregate::with_descriptions;
pub(crate) use count::{limit_of as count_limit, on_view as count_on_view};
pub(crate) use find::on_view as find_on_view;
pub(crate) use read::{Collating, FirstBatch, first_batch};
pub(crate) use settings::settings_of;
pub(crate) use view::{
    Source, Stages, budget, command_scope, decide_collation, hint_on, reads_log, run_settings,
    source,
};
pub(crate) use write::{check_creatable, check_definable, check_writable};

use crate::context::Command;

/// The group's rows.
pub(crate) const ROWS: &[Command] = &[
    find::ROW,
    get_more::ROW,
    get_more::KILL_CURSORS,
    release_memory::ROW,
    insert::ROW,
    update::ROW,
    delete::ROW,
    find_and_modify::ROW,
    bulk_write::ROW,
    count::ROW,
    distinct::ROW,
    aggregate::ROW,
    map_reduce::ROW,
    file_md5::ROW,
    explain::ROW,
];
