//! Servers that wait for a store.

use std::thread;
use std::time::{Duration, Instant};

use mayfly_base::testing::wait_until;
use mayfly_kv::{Engine, KvError, Sharing};
use mayfly_kv_postgres::{PostgresEngine, PostgresOptions, Waiting, WhenFree};

use crate::opening::{options, put};
use crate::proxy::Proxy;
use crate::store::{self, Server};

fn others_wait() -> PostgresOptions {
    PostgresOptions { others_wait: true, lease: Duration::from_secs(60), ..options() }
}

fn of_member(options: &PostgresOptions, address: &str) -> PostgresOptions {
    PostgresOptions { others_wait: true, address: Some(address.into()), ..options.clone() }
}

/// Waits for the store, until it is free or after this many looks; returns whether it is free, and
/// what was waited for last.
fn wait(server: &Server, options: &PostgresOptions, looks: u32) -> (bool, Option<Waiting>) {
    wait_and(WhenFree::Open, server, options, looks)
}

fn wait_and(
    when_free: WhenFree,
    server: &Server,
    options: &PostgresOptions,
    looks: u32,
) -> (bool, Option<Waiting>) {
    let (mut left, mut last) = (looks, None);
    let found =
        PostgresEngine::await_store(&server.url(), options, &|| when_free, &mut |waiting| {
            last = Some(waiting.clone());
            left -= 1;
            left > 0
        });
    (found.unwrap(), last)
}

#[test]
fn one_secondary_stands_for_owner_and_the_others_wait() {
    let (server, options) = (store::shared(), options());
    let member = |address: &str| of_member(&options, address);
    let stand =
        |address: &str, looks| wait_and(WhenFree::StandForOwner, server, &member(address), looks);
    let owner = PostgresEngine::open(&server.url(), member("a:1")).unwrap();
    let (is_free, waited) = stand("b:2", 1);
    assert!(!is_free && matches!(waited, Some(Waiting::Owner(_))), "{waited:?}");
    owner.close().unwrap();
    // The owner that has closed the store may leave it to others: its lock is free at once. Now
    // there are none.
    let leave = || wait_and(WhenFree::LeaveToOthers, server, &member("a:1"), 2);
    assert_eq!(leave(), (true, None));
    // The others wait for three seconds from here.
    let began = Instant::now();
    assert_eq!(stand("b:2", 1), (true, None));
    assert_eq!(leave(), (false, Some(Waiting::Candidate)));
    assert_eq!(stand("c:3", 2), (false, Some(Waiting::Candidate)));
    // A server that does not serve reads yet opens the store all the same.
    assert_eq!(wait(server, &member("d:4"), 1), (true, None));
    // The candidate does not open the store.
    assert_eq!(stand("c:3", 100), (true, Some(Waiting::Candidate)));
    assert!(began.elapsed() > Duration::from_secs(1), "{:?}", began.elapsed());
    // The candidate has opened the store: when it is gone, another one follows at once.
    let owner = PostgresEngine::open(&server.url(), member("c:3")).unwrap();
    assert!(!stand("b:2", 1).0);
    owner.close().unwrap();
    assert_eq!(stand("b:2", 1), (true, None));
}

#[test]
fn two_servers_that_leave_the_store_do_not_wait_for_each_other() {
    let (server, options) = (store::shared(), options());
    let member = |address: &str| of_member(&options, address);
    for address in ["a:1", "b:2"] {
        let owner = PostgresEngine::open(&server.url(), member(address)).unwrap();
        owner.begin_to_hand_over();
        owner.close().unwrap();
    }
    let leave = |address: &str| wait_and(WhenFree::LeaveToOthers, server, &member(address), 2);
    assert_eq!(leave("b:2"), (false, Some(Waiting::Candidate)));
    assert_eq!(leave("a:1"), (true, None));
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

#[test]
fn an_owner_whose_network_stalled_takes_its_lock_again() {
    let server = store::shared();
    let options = PostgresOptions { address: Some("a:1".into()), ..others_wait() };
    let holder = format!(
        "select coalesce(max(pid), 0) from pg_locks where locktype = 'advisory' and granted \
         and objid::bigint = hashtextextended('{}', 2) & 4294967295",
        options.schema
    );
    let proxy = Proxy::start(server.port);
    let engine = PostgresEngine::open(&server.url_at(proxy.port), options).unwrap();
    put(&*engine, b"1").unwrap();
    let first = server.sql(&holder);
    assert_ne!(first, "0");
    proxy.stall(true);
    // A beat, and the time after which it is given up.
    thread::sleep(Duration::from_secs(5));
    proxy.stall(false);
    wait_until("another session of the owner holds the lock", || {
        let now = server.sql(&holder);
        now != first && now != "0"
    });
    put(&*engine, b"2").unwrap();
    assert!(!engine.is_taken_over());
}

/// A member that cannot reach the database gives its connections up after the lease. Clients whose
/// commits are being settled are answered then, not after the deadlines of their commands.
#[test]
fn commits_are_settled_for_as_long_as_the_lease() {
    let server = store::shared();
    let (lease, deadline) = (Duration::from_secs(2), Duration::from_secs(60));
    let address = Some("a:1".into());
    let options = PostgresOptions { address, lease, deadline, ..others_wait() };
    let proxy = Proxy::start(server.port);
    let engine = PostgresEngine::open(&server.url_at(proxy.port), options).unwrap();
    // Each of the later commits has a connection.
    let put_all = |value: u8| -> Vec<_> {
        thread::scope(|scope| {
            let engine = &*engine;
            let began = |key: u8| scope.spawn(move || put(engine, &[key, value]));
            let threads: Vec<_> = (0..4).map(began).collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).collect()
        })
    };
    assert!(put_all(1).iter().all(Result::is_ok));
    proxy.stall(true);
    let began = Instant::now();
    let results = thread::scope(|scope| {
        let results = scope.spawn(|| put_all(2));
        // They have sent their commits by then.
        thread::sleep(Duration::from_millis(200));
        proxy.cut_all();
        results.join().unwrap()
    });
    let took = began.elapsed();
    assert!(results.iter().all(|it| matches!(it, Err(KvError::CommitUnknown(_)))), "{results:?}");
    // Two beats that are given up after three seconds each.
    assert!(took > lease && took < Duration::from_secs(12), "{took:?}");
    proxy.stall(false);
}
