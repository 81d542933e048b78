//! The servers over a store: each writes a row with its address and the time of the database.
//!
//! ```text
//! "mayflydb".member    address   number   since   at       one row for each server
//! ```
//!
//! `number` is that of the owner ([`crate::owner`]) and 0 for a secondary. `at` is the last beat. A
//! server whose row is older than the lease is not a member; `since` is when it became one. The row
//! of the owner shows clients where to write; which server may write is decided by the owner lock
//! alone.
//!
//! When the store has no owner, the secondary that is about to open it writes the only row of the
//! table `candidate`, and the others wait. The owner removes the row. One that is older than three
//! seconds ([`CANDIDATE_FOR`]) is that of a server which has failed.
//!
//! Drivers forget the servers that the primary does not list. A secondary therefore serves no
//! client before the owner has read its row ([`KNOWN_AFTER`]).

use std::time::{Duration, Instant};

use mayfly_kv::{Member, Members};

use crate::connection::Connection;
use crate::open_error::OpenError;
use crate::owner::{OWNER_LOCK, WAITING_LOCK, holders};

/// How often each server writes its row and reads the others.
pub(crate) const BEAT_EVERY: Duration = Duration::from_secs(1);
/// How long after its first beat a server is known to the owner: longer than between two beats.
pub(crate) const KNOWN_AFTER: Duration = Duration::from_millis(1_500);
/// For how long a candidate may take to open the store: a start takes less than a second.
pub(crate) const CANDIDATE_FOR: Duration = Duration::from_secs(3);
/// For how long the rows of servers that have ended are kept.
const KEPT: &str = "1 hour";

/// Makes the table, if it is missing.
pub(crate) fn prepare(
    connection: &Connection,
    schema: &str,
    deadline: Instant,
) -> Result<(), OpenError> {
    let create = format!(
        "begin; select pg_advisory_xact_lock(hashtextextended('{schema}', 1)); \
         set local client_min_messages = warning; \
         create table if not exists \"{schema}\".member \
         (address text primary key, number bigint not null, since timestamptz not null, \
         at timestamptz not null); \
         create table if not exists \"{schema}\".candidate \
         (one boolean primary key check (one), address text not null, at timestamptz not null); \
         commit"
    );
    connection.open_with(&create, deadline).map(|_| ())
}

/// The servers that live, and for how long this one has been among them.
pub(crate) struct Noted {
    pub(crate) members: Members,
    pub(crate) since: Duration,
}

/// Writes the row of the server with this address, and returns the servers that live.
pub(crate) fn note(
    connection: &Connection,
    (schema, lease): (&str, Duration),
    (address, number): (&str, i64),
    deadline: Instant,
) -> Result<Noted, OpenError> {
    let (address, lease) = (quoted(address), lease.as_millis());
    let table = format!("\"{schema}\".member");
    let lives = format!("at > clock_timestamp() - interval '{lease} milliseconds'");
    let text = format!(
        "insert into {table} as m values ({address}, {number}, clock_timestamp(), \
         clock_timestamp()) on conflict (address) do update set number = excluded.number, \
         since = case when m.{lives} then m.since else excluded.since end, at = excluded.at; \
         delete from {table} where at < clock_timestamp() - interval '{KEPT}'; \
         select f.owner, (select string_agg((m.number = f.owner)::int || ' ' || m.address, ',' \
         order by m.address) from {table} m where m.{lives}), \
         (select (extract(epoch from clock_timestamp() - since) * 1000)::bigint \
         from {table} where address = {address}) from \"{schema}\".format f"
    );
    let row = connection.open_with(&text, deadline)?;
    let column = |at: usize| row.get(at).and_then(Option::as_deref).unwrap_or_default();
    let members = Members { term: column(0).parse().unwrap_or(0), list: parse(column(1)) };
    Ok(Noted { members, since: Duration::from_millis(column(2).parse().unwrap_or(0)) })
}

/// Makes the server with this address the candidate for owner of the store. Returns false if
/// another server is, or owns it.
pub(crate) fn stand_for_owner(
    connection: &Connection,
    schema: &str,
    address: &str,
    deadline: Instant,
) -> Result<bool, OpenError> {
    let (address, millis) = (quoted(address), CANDIDATE_FOR.as_millis());
    let text = format!(
        "insert into \"{schema}\".candidate as c select true, {address}, clock_timestamp() \
         where not exists (select {}) \
         on conflict (one) do update set address = excluded.address, at = excluded.at \
         where c.at < clock_timestamp() - interval '{millis} milliseconds' \
         returning address",
        holders(schema, OWNER_LOCK)
    );
    Ok(!connection.open_with(&text, deadline)?.is_empty())
}

/// Whether the server with this address is to leave the free store to another one, which waits for
/// it, is about to open it, or has shown a sign of life as a member: it may be starting. Once
/// another server has owned the store, a former owner no longer leaves it: two servers that leave
/// it one soon after the other would wait for each other.
pub(crate) fn leaves_to_others(
    connection: &Connection,
    schema: &str,
    address: &str,
    deadline: Instant,
) -> Result<bool, OpenError> {
    let (waiting, address) = (holders(schema, WAITING_LOCK), quoted(address));
    let is_new =
        format!("at > clock_timestamp() - interval '{} milliseconds'", CANDIDATE_FOR.as_millis());
    let text = format!(
        "select not exists (select from \"{schema}\".member m, \"{schema}\".format f \
         where m.address = {address} and m.number > 0 and m.number < f.owner) \
         and (exists (select {waiting}) \
         or exists (select from \"{schema}\".candidate where {is_new}) \
         or exists (select from \"{schema}\".member where {is_new} and address <> {address}))"
    );
    let row = connection.open_with(&text, deadline)?;
    Ok(row.first().and_then(Option::as_deref) == Some("t"))
}

/// Removes the candidate, once this server owns the store.
pub(crate) fn end_candidacy(
    connection: &Connection,
    schema: &str,
    deadline: Instant,
) -> Result<(), OpenError> {
    connection.open_with(&format!("delete from \"{schema}\".candidate"), deadline).map(|_| ())
}

/// Removes the row of a server that ends.
pub(crate) fn forget(connection: &Connection, schema: &str, address: &str) {
    let address = quoted(address);
    connection
        .send_and_forget(&format!("delete from \"{schema}\".member where address = {address}"));
}

fn quoted(text: &str) -> String {
    // The setting standard_conforming_strings is on in each session, as it is by default.
    format!("'{}'", text.replace('\'', "''"))
}

fn parse(list: &str) -> Vec<Member> {
    let member = |text: &str| {
        let (is_owner, address) = text.split_once(' ')?;
        Some(Member { address: address.to_owned(), is_owner: is_owner == "1" })
    };
    list.split(',').filter_map(member).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_are_parsed() {
        let member = |address: &str, is_owner| Member { address: address.into(), is_owner };
        assert_eq!(parse("1 a:1,0 b:2"), [member("a:1", true), member("b:2", false)]);
        assert_eq!(parse(""), []);
        assert_eq!(quoted("it's"), "'it''s'");
    }
}
