//! `mayflydb storage`: makes a store in PostgreSQL, checks it, or prints its sizes.

use std::io::Write;

use anyhow::Context;
use mayfly_kv_postgres::StoreFacts;

use crate::config::StorageAction;
use crate::{Config, database};

/// Runs the task, and prints its result for people.
///
/// # Errors
/// A [`Failure`](crate::failure::Failure) as of a start.
pub fn run(config: &Config, action: StorageAction, out: &mut impl Write) -> anyhow::Result<()> {
    if action == StorageAction::Init {
        let engine = database::open(config)?;
        engine.close().context("cannot close the store")?;
    }
    let facts = database::inspect(config)?;
    let text = match action {
        StorageAction::Init => "The store is ready.\n".to_owned(),
        StorageAction::Check => checked(&facts),
        StorageAction::Stats => sizes(&facts),
    };
    out.write_all(text.as_bytes()).context("cannot write the result")
}

fn checked(facts: &StoreFacts) -> String {
    let StoreFacts { server, synchronous_commit, standbys, tables } = facts;
    let store = match tables.is_empty() {
        true => "there is no store yet; the first start or 'storage init' makes it",
        false => "the store has the format of this version",
    };
    let loss = match (standbys.databases, standbys.are_synchronous) {
        (0, false) => "There is no standby of PostgreSQL.",
        (0, true) => "No standby of PostgreSQL is connected, for which commits wait.",
        (_, true) => "Commits wait for a standby of PostgreSQL: a failover loses none.",
        (_, false) => "The standbys of PostgreSQL are asynchronous: a failover can lose commits.",
    };
    let waiting = standbys.servers;
    format!(
        "PostgreSQL {server}, synchronous_commit={synchronous_commit}: {store}.\n{loss}\n\
         Servers that wait to take the store over: {waiting}.\n"
    )
}

fn sizes(facts: &StoreFacts) -> String {
    let mut text = format!("{:<10} {:>15} {:>15} {:>15}\n", "table", "rows", "dead rows", "bytes");
    for table in &facts.tables {
        let rows = table.rows.map_or("-".to_owned(), |rows| rows.to_string());
        let (name, dead, bytes) = (&table.name, table.dead_rows, table.bytes);
        text += &format!("{name:<10} {rows:>15} {dead:>15} {bytes:>15}\n");
    }
    let total: u64 = facts.tables.iter().map(|table| table.bytes).sum();
    text + &format!("{:<10} {:>15} {:>15} {total:>15}\n", "total", "", "")
}
