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
    /// The value of a key of the second keyspace, and that of a key of the first one, in one row.
    GetBeside(Keyspace, Keyspace),
    /// The value of a key of the first keyspace, and that of the key in the second one that it
    /// names.
    GetThrough(Keyspace, Keyspace),
    /// As `GetThrough`, in one row that begins with the value of a key of the third keyspace.
    GetThroughBeside(Keyspace, Keyspace, Keyspace),
    /// Keys and their values in any order; null for large values.
    GetAny(Keyspace),
    /// The numbers of keys and their values in this order, until they have a number of bytes.
    GetInOrder(Keyspace),
    /// A page of a range without retired records; null for large values.
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
    /// All writes of a commit, and its token, which is the first parameter.
    Together(Kinds),
    /// Adds rows in the binary format of COPY; their keys must be absent.
    CopyIn(Keyspace),
    /// Removes the first entries of a range.
    Sweep(Keyspace),
}

/// The kinds of writes of a commit that is one statement: sets of their places in [`Kinds::all`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Kinds {
    present: u32,
    /// Those that write a single key. Its parameters are no arrays, which PostgreSQL executes in
    /// less time.
    single: u32,
}

/// The number of keys that a statement writes.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Keys {
    One,
    Many,
}

impl Kinds {
    /// All kinds, in the order of their parameters.
    fn all() -> impl Iterator<Item = Sql> {
        let of_keyspace =
            |keyspace| [Sql::Insert(keyspace), Sql::Delete(keyspace), Sql::Put(keyspace)];
        Keyspace::ALL.into_iter().flat_map(of_keyspace).chain([Sql::Retire])
    }

    /// The place of a kind of write in the order of the parameters.
    pub(crate) fn place(sql: Sql) -> Option<usize> {
        Kinds::all().position(|kind| kind == sql)
    }

    /// The kinds of these writes, each with its number of keys; `None` if one statement cannot
    /// execute them all: one occurs twice, or the same row may be inserted and deleted.
    pub(crate) fn of(writes: impl Iterator<Item = (Sql, usize)>) -> Option<Kinds> {
        let mut kinds = Kinds::default();
        for (sql, keys) in writes {
            let bit = 1 << Kinds::place(sql)?;
            if kinds.present & bit != 0 {
                return None;
            }
            kinds.present |= bit;
            kinds.single |= if keys == 1 { bit } else { 0 };
        }
        let both = |keyspace: Keyspace| {
            let has = |sql| kinds.keys(sql).is_some();
            has(Sql::Insert(keyspace)) && has(Sql::Delete(keyspace))
        };
        (!Keyspace::ALL.into_iter().any(both)).then_some(kinds)
    }

    /// How many keys a kind of write has; `None` if there is none.
    fn keys(self, sql: Sql) -> Option<Keys> {
        let bit = 1 << Kinds::place(sql)?;
        let keys = if self.single & bit != 0 { Keys::One } else { Keys::Many };
        (self.present & bit != 0).then_some(keys)
    }
}

/// True in a transaction that has written its token. Without the condition, the writes of a
/// transaction whose BEGIN was cancelled would be committed one by one.
const IN_TRANSACTION: &str = "pg_current_xact_id_if_assigned() is not null";

/// False in a transaction of reads, which have another isolation level. There the writes of a
/// commit of one statement would not be committed.
const OUTSIDE: &str = "current_setting('transaction_isolation') = 'read committed'";

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
            Sql::GetBeside(keyspace, beside) => format!(
                "select (select value from {} where key = $2), \
                 (select t.value from {} t where t.key = $1{})",
                table(beside),
                table(keyspace),
                shown(keyspace, "t."),
            ),
            Sql::GetThrough(first, second) => through(schema, first, second),
            Sql::GetThroughBeside(first, second, beside) => format!(
                "select c.value, r.first, r.second \
                 from (select (select value from {} where key = $5) as value) c \
                 left join ({}) r on true",
                table(beside),
                through(schema, first, second),
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
                let columns = format!("key, {}", small_value(keyspace));
                page(&table(keyspace), &columns, shown(keyspace, ""), direction)
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
            Sql::Put(_) | Sql::Insert(_) | Sql::Delete(_) | Sql::Retire => {
                self.write(schema, (Keys::Many, 1), IN_TRANSACTION)
            }
            Sql::Together(kinds) => {
                let (mut writes, mut first) = (Vec::new(), 2);
                for kind in Kinds::all() {
                    let Some(keys) = kinds.keys(kind) else { continue };
                    let write = kind.write(schema, (keys, first), OUTSIDE);
                    writes.push(format!("w{first} as ({write})"));
                    first += if kind.has_values() { 2 } else { 1 };
                }
                let writes = writes.join(", ");
                format!(
                    "with {writes} insert into \"{schema}\".commits select $1::bigint where {OUTSIDE}"
                )
            }
            Sql::Sweep(keyspace) => format!(
                "with rest as materialized (select key from {0} where key >= $1 and key < $2 \
                 order by key offset $3 limit 1), \
                 swept as (delete from {0} where key >= $1 \
                 and key < coalesce((select key from rest), $2)) \
                 select exists (select from rest)",
                table(keyspace)
            ),
            Sql::CopyIn(keyspace) => {
                let retired = if keyspace == Keyspace::Record { ", retired" } else { "" };
                format!("copy {} (key, value{retired}) from stdin (format binary)", table(keyspace))
            }
            _ => format!("insert into \"{schema}\".commits values ($1)"),
        }
    }
}

impl Sql {
    /// Whether it writes values, which are a parameter of their own after the keys.
    pub(crate) fn has_values(self) -> bool {
        matches!(self, Sql::Put(_) | Sql::Insert(_))
    }

    /// The text of a write, whose parameters begin with a number: arrays, if it has many keys.
    fn write(self, schema: &str, (keys, first): (Keys, usize), condition: &str) -> String {
        let row = match keys {
            Keys::One => format!("select ${first}::bytea, ${}::bytea", first + 1),
            Keys::Many => {
                format!(
                    "select k, v from unnest(${first}::bytea[], ${}::bytea[]) u(k, v)",
                    first + 1
                )
            }
        };
        let key = match keys {
            Keys::One => format!("${first}::bytea"),
            Keys::Many => format!("any(${first}::bytea[])"),
        };
        let insert = |keyspace: Keyspace| {
            format!("insert into {} (key, value) {row} where {condition}", table(schema, keyspace))
        };
        match self {
            Sql::Put(keyspace) => {
                let also = if keyspace == Keyspace::Record { ", retired = false" } else { "" };
                format!(
                    "{} on conflict (key) do update set value = excluded.value{also}",
                    insert(keyspace)
                )
            }
            Sql::Insert(keyspace) => insert(keyspace),
            Sql::Delete(keyspace) => {
                format!("delete from {} where key = {key} and {condition}", table(schema, keyspace))
            }
            _ => format!(
                "update {} set retired = true where key = {key} and not retired and {condition}",
                table(schema, Keyspace::Record)
            ),
        }
    }
}

fn table(schema: &str, keyspace: Keyspace) -> String {
    format!("\"{schema}\".\"{}\"", keyspace.name())
}

/// The value of a key, and that of the key that it names.
fn through(schema: &str, first: Keyspace, second: Keyspace) -> String {
    format!(
        "select a.value as first, b.value as second from {} a left join {} b \
         on octet_length(a.value) >= $3::int + $4::int \
         and b.key = $2::bytea || substring(a.value from $3::int + 1 for $4::int){} \
         where a.key = $1{}",
        table(schema, first),
        table(schema, second),
        shown(second, "b."),
        shown(first, "a."),
    )
}

/// The value, or null if it is large. Index entries are small.
fn small_value(keyspace: Keyspace) -> String {
    match keyspace {
        Keyspace::Index => "value".into(),
        _ => format!("case when octet_length(value) > {LARGE_VALUE} then null else value end"),
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

#[cfg(test)]
mod tests {
    use super::*;

    const RECORD: Keyspace = Keyspace::Record;
    const INDEX: Keyspace = Keyspace::Index;

    #[test]
    fn a_commit_is_one_statement_unless_a_row_might_be_written_twice() {
        let of = |writes: &[(Sql, usize)]| Kinds::of(writes.iter().copied());
        let kinds =
            of(&[(Sql::Insert(INDEX), 2), (Sql::Put(RECORD), 1), (Sql::Retire, 3)]).unwrap();
        let outside = "current_setting('transaction_isolation') = 'read committed'";
        assert_eq!(
            Sql::Together(kinds).text("s"),
            format!(
                "with w2 as (insert into \"s\".\"record\" (key, value) \
                 select $2::bytea, $3::bytea where {outside} \
                 on conflict (key) do update set value = excluded.value, retired = false), \
                 w4 as (insert into \"s\".\"index\" (key, value) select k, v \
                 from unnest($4::bytea[], $5::bytea[]) u(k, v) where {outside}), \
                 w6 as (update \"s\".\"record\" set retired = true where key = any($6::bytea[]) \
                 and not retired and {outside}) \
                 insert into \"s\".commits select $1::bigint where {outside}"
            )
        );
        assert_eq!(of(&[(Sql::Put(RECORD), 1), (Sql::Put(RECORD), 1)]), None);
        assert_eq!(of(&[(Sql::Insert(INDEX), 1), (Sql::Delete(INDEX), 1)]), None);
        assert!(of(&[(Sql::Insert(INDEX), 1), (Sql::Delete(RECORD), 1)]).is_some());
        assert_eq!(of(&[(Sql::AddToken, 1)]), None);
    }
}
