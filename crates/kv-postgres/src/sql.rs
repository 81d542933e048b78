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
    /// Keys and their values in any order; null for large values.
    GetAny(Keyspace),
    /// The numbers of keys and their values in this order, until they have a number of bytes.
    GetInOrder(Keyspace),
    /// A page of a range; null for large values and those of retired records.
    Scan(Keyspace, Direction),
    /// A page of several ranges, each row with the number of its range; null for large values.
    ScanRanges(Keyspace, Direction),
    /// A page of a range with retired records, until the values have a number of bytes.
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

/// Values of more bytes are not part of a page: a second statement fetches them, a few at a time.
/// So a page has a limit of bytes, whatever its values are. Their sizes are known without reading
/// them.
pub(crate) const LARGE_VALUE: usize = 16 << 10;

impl Sql {
    /// The text, for the tables of a schema.
    pub(crate) fn text(self, schema: &str) -> String {
        self.reading(schema).unwrap_or_else(|| self.writing(schema))
    }

    /// The text of a statement that reads.
    fn reading(self, schema: &str) -> Option<String> {
        let table = |keyspace: Keyspace| table(schema, keyspace);
        Some(match self {
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
            Sql::GetAny(keyspace) => format!(
                "select key, {} from {} where key = any($1::bytea[]){}",
                small_value(keyspace),
                table(keyspace),
                shown(keyspace, ""),
            ),
            Sql::GetInOrder(keyspace) => bounded(
                "n, value",
                // With a limit, the inner query is executed for one key after the other.
                &format!(
                    "select a.n, t.value from unnest($1::bytea[]) with ordinality a(k, n) \
                     cross join lateral (select value from {} where key = a.k{} limit 1) t",
                    table(keyspace),
                    shown(keyspace, ""),
                ),
                "$2",
            ),
            Sql::Scan(keyspace, direction) => {
                let columns = format!("key, {}, {}", small_value(keyspace), retired(keyspace));
                page(&table(keyspace), &columns, "", direction)
            }
            Sql::ScanRanges(keyspace, direction) => ranges(&table(keyspace), keyspace, direction),
            Sql::ScanStored(keyspace) => {
                let columns = format!("key, value, {} as retired", retired(keyspace));
                let rows = page(&table(keyspace), &columns, "", Direction::Forward);
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
            _ => return None,
        })
    }

    /// The text of a statement that writes.
    fn writing(self, schema: &str) -> String {
        let table = |keyspace: Keyspace| table(schema, keyspace);
        match self {
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
            Sql::Sweep(keyspace) => format!(
                "with rest as materialized (select key from {0} where key >= $1 and key < $2 \
                 order by key offset $3 limit 1), \
                 swept as (delete from {0} where key >= $1 \
                 and key < coalesce((select key from rest), $2)) \
                 select exists (select from rest)",
                table(keyspace)
            ),
            _ => format!("insert into \"{schema}\".commits values ($1)"),
        }
    }
}

fn table(schema: &str, keyspace: Keyspace) -> String {
    format!("\"{schema}\".\"{}\"", keyspace.name())
}

/// The value, or null if it is large or that of a retired record. Index entries are small.
fn small_value(keyspace: Keyspace) -> String {
    let hidden = if keyspace == Keyspace::Record { "retired or " } else { "" };
    match keyspace {
        Keyspace::Index => "value".into(),
        _ => format!(
            "case when {hidden}octet_length(value) > {LARGE_VALUE} then null else value end"
        ),
    }
}

fn retired(keyspace: Keyspace) -> &'static str {
    if keyspace == Keyspace::Record { "retired" } else { "false" }
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

/// The limit in the inner query makes the rows come in the order of the ranges: it is executed for
/// one range after the other.
fn ranges(table: &str, keyspace: Keyspace, direction: Direction) -> String {
    let (shown, order, value) = (shown(keyspace, ""), order(direction), small_value(keyspace));
    format!(
        "select r.n, t.key, t.value from unnest($1::bytea[], $2::bytea[]) with ordinality \
         r(s, e, n) cross join lateral (select key, {value} as value from {table} \
         where key >= r.s and key < r.e{shown} {order} limit $3) t limit $3"
    )
}

fn insert(table: &str) -> String {
    format!(
        "insert into {table} (key, value) select k, v \
         from unnest($1::bytea[], $2::bytea[]) u(k, v) where {IN_TRANSACTION}"
    )
}
