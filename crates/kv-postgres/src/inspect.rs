//! Looks at a store without opening it: nothing is made or changed, and a running server goes on.

use std::time::Instant;

use mayfly_kv::StandbyStats;
use tokio::runtime::Builder;

use crate::connection::{Connection, Connector};
use crate::engine::PostgresEngine;
use crate::figures;
use crate::open_error::OpenError;
use crate::options::{PostgresOptions, Target};
use crate::schema;

/// A table of a store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TableFacts {
    /// The name in the schema.
    pub name: String,
    /// The planner's estimate of its rows; `None` before the first `analyze`.
    pub rows: Option<u64>,
    /// The rows that were removed and still take space.
    pub dead_rows: u64,
    /// Its size with indexes and large values, in bytes.
    pub bytes: u64,
}

/// The state of a store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoreFacts {
    /// The version of PostgreSQL.
    pub server: String,
    /// The setting of the user.
    pub synchronous_commit: String,
    /// What takes over when a server or the database fails.
    pub standbys: StandbyStats,
    /// The tables by name; none if the store was not made yet.
    pub tables: Vec<TableFacts>,
}

/// How long the server keeps the session when this program says nothing, in milliseconds.
const IDLE_MS: u64 = 60_000;

const TABLES: &str = "select coalesce(string_agg(concat_ws(' ', c.relname, c.reltuples::bigint, \
     coalesce(s.n_dead_tup, 0), pg_total_relation_size(c.oid)), ',' order by c.relname), '') \
     from pg_class c join pg_namespace n on n.oid = c.relnamespace \
     left join pg_stat_user_tables s on s.relid = c.oid where c.relkind = 'r' and n.nspname = ";

impl PostgresEngine {
    /// The state of the store at this URL.
    ///
    /// # Errors
    /// Those of [`PostgresEngine::open`], except that another server may have the store open.
    pub fn inspect(url: &str, options: &PostgresOptions) -> Result<StoreFacts, OpenError> {
        options.check()?;
        let target = Target::parse(url)?;
        let runtime = Builder::new_multi_thread()
            .worker_threads(1)
            .thread_name("postgres")
            .enable_all()
            .build()
            .map_err(|error| OpenError::Unavailable(error.to_string()))?;
        let limits = (options.deadline.as_millis(), IDLE_MS);
        let connector = Connector::new(target, &options.schema, runtime.handle().clone(), limits);
        let deadline = Instant::now() + options.deadline;
        let facts = connector
            .connect(deadline)
            .and_then(|connection| facts_of(&connection, &options.schema, deadline));
        runtime.shutdown_background();
        facts
    }
}

fn facts_of(
    connection: &Connection,
    schema: &str,
    deadline: Instant,
) -> Result<StoreFacts, OpenError> {
    schema::check_server(connection, deadline)?;
    let settings =
        "select current_setting('server_version'), current_setting('synchronous_commit')";
    let row = connection.open_with(settings, deadline)?;
    let text = |at: usize| row.get(at).cloned().flatten().unwrap_or_default();
    let (server, synchronous_commit) = (text(0), text(1));
    let row = connection.open_with(&format!("select {}", figures::standbys(schema)), deadline)?;
    let number = |at: usize| row.get(at).and_then(|text| text.as_deref()?.parse().ok());
    let standbys = figures::standby_stats([0, 1, 2].map(|at| number(at).unwrap_or(0)));
    let row = connection.open_with(&format!("{TABLES}'{schema}'"), deadline)?;
    let listed = row.first().cloned().flatten().unwrap_or_default();
    let tables: Vec<TableFacts> = listed.split(',').filter_map(table).collect();
    match tables.is_empty() {
        true => schema::check_may_create(connection, schema, deadline)?,
        false => schema::check_present(connection, schema, deadline)?,
    }
    Ok(StoreFacts { server, synchronous_commit, standbys, tables })
}

fn table(text: &str) -> Option<TableFacts> {
    let mut parts = text.split(' ');
    Some(TableFacts {
        name: parts.next().filter(|name| !name.is_empty())?.to_owned(),
        rows: parts.next()?.parse().ok(),
        dead_rows: parts.next()?.parse().ok()?,
        bytes: parts.next()?.parse().ok()?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tables_are_parsed() {
        let (name, bytes) = ("record".to_owned(), 8192);
        let facts = TableFacts { name, rows: Some(12), dead_rows: 3, bytes };
        assert_eq!(table("record 12 3 8192"), Some(facts.clone()));
        assert_eq!(table("record -1 3 8192"), Some(TableFacts { rows: None, ..facts }));
        assert_eq!(table(""), None);
    }
}
