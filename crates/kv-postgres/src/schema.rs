//! The tables of a store, and whether a database can contain one.
//!
//! ```text
//! "mayflydb".format    format, owner         one row
//! "mayflydb".record    key, value, retired   primary key (key)
//! "mayflydb".index     key, value            and so on for each keyspace
//! "mayflydb".commits   token                 tokens of recent commits, without an index
//! ```
//!
//! Keys are stored as they are (`plain`): PostgreSQL would otherwise compress long ones.

use std::time::Instant;

use mayfly_kv::Keyspace;

use crate::connection::Connection;
use crate::open_error::OpenError;

/// The format of the tables that this build makes and reads.
pub const FORMAT: u32 = 1;

/// The oldest version of the server, as in `server_version_num`.
const OLDEST_SERVER: i64 = 150_000;

fn number<T: std::str::FromStr>(column: Option<&Option<String>>) -> Option<T> {
    column?.as_deref()?.parse().ok()
}

/// Checks that the server and the database fit.
pub(crate) fn check_server(connection: &Connection, deadline: Instant) -> Result<(), OpenError> {
    let row = connection.open_with(
        "select current_setting('server_version_num'), current_setting('server_version'), \
         version()",
        deadline,
    )?;
    let text = |at: usize| row.get(at).cloned().flatten().unwrap_or_default();
    if !text(2).starts_with("PostgreSQL ") {
        return Err(OpenError::NotPostgres(format!("the server is no PostgreSQL: {}", text(2))));
    }
    if number::<i64>(row.first()).is_none_or(|version| version < OLDEST_SERVER) {
        return Err(OpenError::ServerTooOld(text(1)));
    }
    let row = connection.open_with(
        "select to_regproc('pg_catalog.pg_current_xact_id') is not null, \
         current_setting('server_encoding'), \
         pg_is_in_recovery() or current_setting('transaction_read_only')::bool, \
         current_setting('synchronous_commit')",
        deadline,
    )?;
    let text = |at: usize| row.get(at).cloned().flatten().unwrap_or_default();
    if text(0) != "t" {
        return Err(OpenError::NotPostgres("the server has no pg_current_xact_id()".into()));
    }
    if text(1) != "UTF8" {
        return Err(OpenError::Encoding(text(1)));
    }
    if text(2) != "f" {
        return Err(OpenError::ReadOnly);
    }
    if text(3) == "off" {
        return Err(OpenError::Asynchronous);
    }
    Ok(())
}

/// Makes the tables if the schema is missing or empty, and checks their format. Servers that open
/// the store at the same time wait for each other.
pub(crate) fn prepare(
    connection: &Connection,
    schema: &str,
    deadline: Instant,
) -> Result<(), OpenError> {
    let begin = format!(
        "begin; select pg_advisory_xact_lock(hashtextextended('{schema}', 1)); \
         select (select count(*) from pg_namespace where nspname = '{schema}'), \
         (select count(*) from pg_class c join pg_namespace n on n.oid = c.relnamespace \
         where n.nspname = '{schema}' and c.relkind = 'r'), \
         to_regclass('\"{schema}\".format')"
    );
    let row = connection.open_with(&begin, deadline)?;
    let (schemas, tables) = (number::<u64>(row.first()), number::<u64>(row.get(1)));
    let has_format = row.get(2).is_some_and(Option::is_some);
    let prepared = match (has_format, tables) {
        (true, _) => check_format(connection, schema, deadline),
        (false, Some(0)) => {
            let text = creation(schema, schemas == Some(0), lz4(connection, deadline)?);
            connection.open_with(&text, deadline).map(|_| ())
        }
        (false, _) => Err(foreign(schema)),
    };
    let end = if prepared.is_ok() { "commit" } else { "rollback" };
    let ended = connection.open_with(end, deadline);
    prepared.and(ended.map(|_| ()))
}

/// Checks that the user may make the tables of a store.
pub(crate) fn check_may_create(
    connection: &Connection,
    schema: &str,
    deadline: Instant,
) -> Result<(), OpenError> {
    let select = format!(
        "select coalesce((select has_schema_privilege(oid, 'create') from pg_namespace \
         where nspname = '{schema}'), has_database_privilege(current_database(), 'create'))"
    );
    let what = format!("CREATE on the database, or on the schema '{schema}' if there is one");
    check_right(connection, &select, what, deadline)
}

fn check_right(
    connection: &Connection,
    select: &str,
    what: String,
    deadline: Instant,
) -> Result<(), OpenError> {
    match connection.open_with(select, deadline)?.first() {
        Some(Some(found)) if found == "t" => Ok(()),
        _ => Err(OpenError::NoRights(what)),
    }
}

/// Checks that the tables of a schema are those of a store in this format, and that the user may
/// read and write them.
pub(crate) fn check_present(
    connection: &Connection,
    schema: &str,
    deadline: Instant,
) -> Result<(), OpenError> {
    let select = format!("select to_regclass('\"{schema}\".format')");
    let row = connection.open_with(&select, deadline)?;
    if row.first().is_none_or(Option::is_none) {
        return Err(foreign(schema));
    }
    check_format(connection, schema, deadline)?;
    let rights = ["select", "insert", "update", "delete", "truncate"];
    let has = rights.map(|right| format!("has_table_privilege(c.oid, '{right}')")).join(" and ");
    let select = format!(
        "select bool_and({has}) from pg_class c join pg_namespace n on n.oid = c.relnamespace \
         where n.nspname = '{schema}' and c.relkind = 'r'"
    );
    let what = format!("to read and write the tables of the schema '{schema}'");
    check_right(connection, &select, what, deadline)
}

fn foreign(schema: &str) -> OpenError {
    OpenError::Foreign(format!(
        "the schema '{schema}' has tables of another program; choose another schema"
    ))
}

fn check_format(connection: &Connection, schema: &str, deadline: Instant) -> Result<(), OpenError> {
    let select = format!("select format from \"{schema}\".format");
    let row = connection.open_with(&select, deadline)?;
    match number::<u32>(row.first()) {
        Some(FORMAT) => Ok(()),
        Some(newer) if newer > FORMAT => Err(OpenError::NewerFormat(newer)),
        Some(older) => Err(OpenError::OlderFormat(older)),
        None => Err(OpenError::Foreign(format!("the table '{schema}.format' has no format"))),
    }
}

/// Whether the server was built with lz4.
fn lz4(connection: &Connection, deadline: Instant) -> Result<bool, OpenError> {
    let row = connection.open_with(
        "select 'lz4' = any(enumvals) from pg_settings where name = 'default_toast_compression'",
        deadline,
    )?;
    Ok(row.first().cloned().flatten().as_deref() == Some("t"))
}

fn creation(schema: &str, makes_schema: bool, lz4: bool) -> String {
    let mut text = String::new();
    if makes_schema {
        text += &format!("create schema \"{schema}\"; ");
    }
    let compression = if lz4 { " compression lz4" } else { "" };
    for keyspace in Keyspace::ALL {
        let retired = match keyspace {
            Keyspace::Record => ", retired boolean not null default false",
            _ => "",
        };
        let table = format!("\"{schema}\".\"{}\"", keyspace.name());
        text += &format!(
            "create table {table} (key bytea primary key, \
             value bytea{compression} not null{retired}); \
             alter table {table} alter column key set storage plain; "
        );
    }
    text += &format!(
        "create table \"{schema}\".commits (token bigint not null); \
         create table \"{schema}\".format (format int not null, owner bigint not null); \
         insert into \"{schema}\".format values ({FORMAT}, 0); "
    );
    text
}
