//! Commits that wait for a synchronous standby.

use std::thread;
use std::time::Duration;

use mayfly_base::testing::wait_until;
use mayfly_kv_postgres::{PostgresEngine, PostgresOptions};

use crate::opening::put;
use crate::store::{self, Server};

/// The sessions whose commit waits for a standby.
fn waiting(server: &Server) -> String {
    server.sql(
        "select coalesce(string_agg(pid::text, ','), '') from pg_stat_activity \
         where wait_event = 'SyncRep'",
    )
}

/// `alter system` waits for no standby, and may not be part of a transaction of statements.
fn set_standbys(server: &Server, names: &str) {
    server.sql(&format!("alter system set synchronous_standby_names = '{names}'"));
    server.sql("select pg_reload_conf()");
    wait_until("the setting is in effect", || {
        server.sql("show synchronous_standby_names") == names
    });
}

#[test]
fn a_commit_that_only_the_primary_has_is_not_acknowledged() {
    let server = Server::start();
    let options = PostgresOptions { deadline: Duration::from_secs(60), ..store::fresh() };
    let engine = PostgresEngine::open(&server.url(), options).unwrap();
    put(&*engine, b"1").unwrap();
    set_standbys(&server, "missing");
    let writer = thread::spawn(move || put(&*engine, b"2"));
    wait_until("the commit waits for the standby", || !waiting(&server).is_empty());
    let first = waiting(&server);
    // PostgreSQL shows the commit from now on, which only the primary has.
    server.sql(&format!("select pg_terminate_backend({first})"));
    wait_until("settling the commit waits for the standby, too", || {
        let now = waiting(&server);
        assert!(!writer.is_finished(), "a commit was acknowledged that no standby has");
        !now.is_empty() && now != first
    });
    set_standbys(&server, "");
    assert_eq!(writer.join().unwrap(), Ok(()));
}
