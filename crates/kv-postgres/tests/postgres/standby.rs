//! Servers that wait for a store.

use std::time::{Duration, Instant};

use mayfly_kv::{Engine, KvError};
use mayfly_kv_postgres::{PostgresEngine, PostgresOptions, Waiting};

use crate::opening::{options, put};
use crate::store::{self, Server};

fn others_wait() -> PostgresOptions {
    PostgresOptions { others_wait: true, lease: Duration::from_secs(60), ..options() }
}

/// Waits for the store, until it is free or after this many looks; returns whether it is free, and
/// what was waited for last.
fn wait(server: &Server, options: &PostgresOptions, looks: u32) -> (bool, Option<Waiting>) {
    let (mut left, mut last) = (looks, None);
    let found = PostgresEngine::await_store(&server.url(), options, &mut |waiting| {
        last = Some(waiting.clone());
        left -= 1;
        left > 0
    });
    (found.unwrap(), last)
}

fn end_sessions(server: &Server, schema: &str) {
    server.sql(&format!(
        "select count(pg_terminate_backend(pid)) from pg_locks where locktype = 'advisory' \
         and objid::bigint in (hashtextextended('{schema}', 2) & 4294967295, \
         hashtextextended('{schema}', 3) & 4294967295)"
    ));
}

#[test]
fn a_store_without_an_owner_is_free() {
    let (server, options) = (store::shared(), others_wait());
    assert_eq!(wait(server, &options, 1), (true, None), "there is no store yet");
    let first = PostgresEngine::open(&server.url(), options.clone()).unwrap();
    let (is_free, waits_for) = wait(server, &options, 2);
    assert!(
        !is_free && matches!(waits_for, Some(Waiting::Owner(who)) if who.contains("127.0.0.1"))
    );
    first.close().unwrap();
    assert!(wait(server, &options, 200).0);
    assert!(!first.is_taken_over());
}

#[test]
fn an_owner_that_does_not_beat_is_not_ended() {
    let (server, options) = (store::shared(), options());
    let waiting = PostgresOptions { others_wait: true, lease: Duration::ZERO, ..options.clone() };
    let first = PostgresEngine::open(&server.url(), options).unwrap();
    assert!(!wait(server, &waiting, 3).0);
    put(&*first, b"1").unwrap();
}

#[test]
fn an_owner_whose_lease_has_run_out_is_replaced() {
    let (server, options) = (store::shared(), others_wait());
    let first = PostgresEngine::open(&server.url(), options.clone()).unwrap();
    put(&*first, b"1").unwrap();
    let schema = &options.schema;
    // It cannot beat any more.
    server.sql(&format!(
        "update {schema}.beat set at = at - interval '2 minutes'; \
         create function {schema}.refuse() returns trigger language plpgsql \
         as 'begin raise exception ''no beat''; end'; \
         create trigger refuse before update on {schema}.beat \
         for each statement execute function {schema}.refuse()"
    ));
    let began = Instant::now();
    assert!(!wait(server, &options, 4).0, "it is late, and may beat within the time of a beat");
    assert!(wait(server, &options, 100).0);
    assert!((3..10).contains(&began.elapsed().as_secs()), "{:?}", began.elapsed());
    server.sql(&format!("drop function {schema}.refuse() cascade"));
    let second = PostgresEngine::open(&server.url(), options.clone()).unwrap();
    put(&*second, b"2").unwrap();
    let result = put(&*first, b"3");
    assert!(matches!(result, Err(KvError::Fenced(_))), "{result:?}");
    assert!(first.is_taken_over() && !second.is_taken_over());
}

#[test]
fn after_a_restart_of_postgresql_the_owner_may_come_back_within_its_lease() {
    let (server, options) = (store::shared(), others_wait());
    let first = PostgresEngine::open(&server.url(), options.clone()).unwrap();
    put(&*first, b"1").unwrap();
    let schema = &options.schema;
    let owner = server.sql(&format!("select owner from {schema}.format"));
    // As after a restart: the instance of the last beat is another one, and no session is left.
    first.close().unwrap();
    let restarted =
        format!("update {schema}.beat set owner = {owner}, instance = 'before', at = now()");
    server.sql(&restarted);
    end_sessions(server, schema);
    let (is_free, waits_for) = wait(server, &options, 3);
    assert_eq!((is_free, waits_for), (false, Some(Waiting::FormerOwner)));
    server.sql(&format!("update {schema}.beat set at = at - interval '2 minutes'"));
    assert!(wait(server, &options, 1).0);
}
