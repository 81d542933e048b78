//! The statements, as texts. Each connection prepares a statement when it first executes it.
//!
//! Every keyspace is a table with the columns `key` and `value`. The table of records has a third
//! one, `retired`: setting it leaves a large value where it is, because PostgreSQL stores it
//! outside of the row.

use mayfly_kv::{Direction, Keyspace};

/// A statement of the engine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Sql {
    /// The value of a key.
    Get(Keyspace),
    /// The value of a key of the first keyspace, and that of the key in the second one that it
    /// names.
    GetThrough(Keyspace, Keyspace),
    /// The values of keys, each with its number, until they have a number of bytes.
    GetMany(Keyspace),
    /// A page of a range.
    Scan(Keyspace, Direction),
    /// A page of several ranges, each row with the number of its range.
    ScanRanges(Keyspace, Direction),
    /// A page of a range with retired records.
    ScanStored(Keyspace),
    /// The number of entries of a range, up to a limit.
    Count(Keyspace),
    /// The key at a position in a range.
    KeyAt(Keyspace),
    /// The number of entries and of bytes in the first part of a range.
    Size(Keyspace),
    /// Writes keys that may be present.
    Put(Keyspace),
    /// Writes keys that must be absent.
    Insert(Keyspace),
    /// Removes keys.
    Delete(Keyspace),
    /// Retires records.
    Retire,
    /// Writes the token of a commit.
    AddToken,
    /// Removes the first entries of a range.
    Sweep(Keyspace),
}

/// True in a transaction that has written its token. Without the condition, the writes of a
/// transaction whose BEGIN was cancelled would be committed one by one.
const IN_TRANSACTION: &str = "pg_current_xact_id_if_assigned() is not null";

impl Sql {
    /// The text, for the tables of a schema.
    pub(crate) fn text(self, schema: &str) -> String {
        let table = |keyspace: Keyspace| format!("\"{schema}\".\"{}\"", keyspace.name());
        match self {
            Sql::Get(keyspace) => {
                let shown = shown(keyspace, "t.");
                format!("select t.value from {} t where t.key = $1{shown}", table(keyspace))
            }
            Sql::GetThrough(first, second) => format!(
                "select a.value, b.value from {} a left join {} b \
                 on octet_length(a.value) >= $3::int + $4::int \
                 and b.key = $2::bytea || substring(a.value from $3::int + 1 for $4::int){} \
                 where a.key = $1{}",
                table(first),
                table(second),
                shown(second, "b."),
                shown(first, "a."),
            ),
            Sql::GetMany(keyspace) => bounded(
                "n, value",
                &format!(
                    "select a.n, t.value from unnest($1::bytea[]) with ordinality a(k, n) \
                     cross join lateral (select value from {} where key = a.k{} limit 1) t",
                    table(keyspace),
                    shown(keyspace, ""),
                ),
                "$2",
            ),
            Sql::Scan(keyspace, direction) => scan(&table(keyspace), keyspace, direction),
            Sql::ScanRanges(keyspace, direction) => ranges(&table(keyspace), keyspace, direction),
            Sql::ScanStored(keyspace) => {
                let columns = match keyspace {
                    Keyspace::Record => "key, value, retired",
                    _ => "key, value, false as retired",
                };
                let rows = page(&table(keyspace), columns, "", Direction::Forward);
                bounded("key, value, retired", &rows, "$4")
            }
            Sql::Count(keyspace) => {
                let rows = page(&table(keyspace), "1", shown(keyspace, ""), Direction::Forward);
                format!("select count(*) from ({rows}) p")
            }
            Sql::KeyAt(keyspace) => format!(
                "select key from {} where key >= $1 and key < $2{} order by key offset $3 limit 1",
                table(keyspace),
                shown(keyspace, ""),
            ),
            Sql::Size(keyspace) => {
                let rows = page(&table(keyspace), "key, value", "", Direction::Forward);
                format!(
                    "select count(*), coalesce(sum(octet_length(key) + octet_length(value)), 0)\
                     ::bigint from ({rows}) p"
                )
            }
            Sql::Put(keyspace) => {
                let also = if keyspace == Keyspace::Record { ", retired = false" } else { "" };
                format!(
                    "{} on conflict (key) do update set value = excluded.value{also}",
                    insert(&table(keyspace))
                )
            }
            Sql::Insert(keyspace) => insert(&table(keyspace)),
            Sql::Delete(keyspace) => format!(
                "delete from {} where key = any($1::bytea[]) and {IN_TRANSACTION}",
                table(keyspace)
            ),
            Sql::Retire => format!(
                "update {} set retired = true where key = any($1::bytea[]) and not retired \
                 and {IN_TRANSACTION}",
                table(Keyspace::Record)
            ),
            Sql::AddToken => format!("insert into \"{schema}\".commits values ($1)"),
            Sql::Sweep(keyspace) => format!(
                "with rest as materialized (select key from {0} where key >= $1 and key < $2 \
                 order by key offset $3 limit 1), \
                 swept as (delete from {0} where key >= $1 \
                 and key < coalesce((select key from rest), $2)) \
                 select exists (select from rest)",
                table(keyspace)
            ),
        }
    }
}

/// The condition that hides retired records.
fn shown(keyspace: Keyspace, of: &str) -> &'static str {
    match (keyspace, of) {
        (Keyspace::Record, "") => " and not retired",
        (Keyspace::Record, "a.") => " and not a.retired",
        (Keyspace::Record, "b.") => " and not b.retired",
        (Keyspace::Record, _) => " and not t.retired",
        _ => "",
    }
}

fn order(direction: Direction) -> &'static str {
    match direction {
        Direction::Forward => "order by key",
        Direction::Backward => "order by key desc",
    }
}

/// The first `$3` rows of the range from `$1` to `$2`.
fn page(table: &str, columns: &str, condition: &str, direction: Direction) -> String {
    let order = order(direction);
    format!(
        "select {columns} from {table} where key >= $1 and key < $2{condition} {order} limit $3"
    )
}

/// The first of these rows whose values have fewer than `budget` bytes together, and the one that
/// exceeds it. The sizes are known without reading large values.
fn bounded(columns: &str, rows: &str, budget: &str) -> String {
    format!(
        "select {columns} from (select *, sum(octet_length(value)) \
         over (rows unbounded preceding) - octet_length(value) as before from ({rows}) p) q \
         where before < {budget}::bigint"
    )
}

/// The values of retired records are not sent; the client passes such rows, and pauses after many.
fn scan(table: &str, keyspace: Keyspace, direction: Direction) -> String {
    match keyspace {
        Keyspace::Record => {
            let value = "key, case when retired then ''::bytea else value end as value, retired";
            bounded("key, value, retired", &page(table, value, "", direction), "$4")
        }
        // Entries are small.
        Keyspace::Index => {
            let rows = page(table, "key, value", "", direction);
            format!("select key, value, false from ({rows}) p where $4::bigint > 0")
        }
        _ => bounded("key, value, false", &page(table, "key, value", "", direction), "$4"),
    }
}

/// The limit in the inner query makes the rows come in the order of the ranges: it can be executed
/// only once for each range.
fn ranges(table: &str, keyspace: Keyspace, direction: Direction) -> String {
    let (shown, order) = (shown(keyspace, ""), order(direction));
    let rows = format!(
        "select r.n, t.key, t.value from unnest($1::bytea[], $2::bytea[]) with ordinality \
         r(s, e, n) cross join lateral (select key, value from {table} \
         where key >= r.s and key < r.e{shown} {order} limit $3) t limit $3"
    );
    bounded("n, key, value", &rows, "$4")
}

fn insert(table: &str) -> String {
    format!(
        "insert into {table} (key, value) select k, v \
         from unnest($1::bytea[], $2::bytea[]) u(k, v) where {IN_TRANSACTION}"
    )
}
