//! Opening: what is refused, with which reason, and one server for each store.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::time::Duration;

use mayfly_base::testing::wait_until;
use mayfly_base::{Clock, SystemClock};
use mayfly_kv::{Engine, Guard, Keyspace, KvError, KvResult, TxnOptions};
use mayfly_kv_postgres::{OpenError, PostgresEngine, PostgresOptions};

use crate::store;

pub(crate) fn put(engine: &dyn Engine, key: &[u8]) -> KvResult<()> {
    let mut txn = engine.begin(TxnOptions::default())?;
    txn.put(Keyspace::Record, key, b"v", Guard::Checked)?;
    txn.commit()
}

/// Options for a store that is opened more than once.
pub(crate) fn options() -> PostgresOptions {
    let wait_for_owner = Duration::from_millis(300);
    PostgresOptions { connections: 4, held_snapshots: 2, wait_for_owner, ..store::fresh() }
}

fn refused(url: &str, options: PostgresOptions) -> OpenError {
    PostgresEngine::open(url, options).map(|_| ()).unwrap_err()
}

#[test]
fn data_survives_reopening() {
    let (url, options) = (store::shared().url(), options());
    for round in 0..3_u8 {
        let engine = PostgresEngine::open(&url, options.clone()).unwrap();
        for earlier in 0..round {
            assert_eq!(engine.get_once(Keyspace::Record, &[earlier], &mut |_| ()), Ok(true));
        }
        put(&*engine, &[round]).unwrap();
        if round == 1 {
            engine.close().unwrap();
        }
    }
}

#[test]
fn wrong_servers_databases_and_logins() {
    let server = store::shared();
    let (at, port) = ("127.0.0.1", server.port);
    server.sql("create role secret login password 'right'");
    server.sql("create role poor login");
    server.sql("create database latin encoding 'LATIN1' template template0");
    let open = |url: String| refused(&url, options());
    let found = open(format!("postgresql://secret:wrong@{at}:{port}/postgres?sslmode=disable"));
    assert!(matches!(&found, OpenError::Login(_)), "{found:?}");
    assert!(!format!("{found} {found:?}").contains("wrong"));
    let found = open(format!("postgresql://mayfly@{at}:{port}/missing?sslmode=disable"));
    assert!(matches!(found, OpenError::NoDatabase(_)), "{found:?}");
    let found = open(format!("postgresql://poor@{at}:{port}/postgres?sslmode=disable"));
    assert!(matches!(found, OpenError::NoRights(_)), "{found:?}");
    let found = open(format!("postgresql://mayfly@{at}:{port}/latin?sslmode=disable"));
    assert_eq!(found, OpenError::Encoding("LATIN1".into()));
    let found = open(format!("postgresql://mayfly@{at}:{port}/postgres?sslmode=require"));
    assert!(matches!(found, OpenError::Unavailable(_)), "{found:?}");
    let found = open("postgresql://mayfly@no-such-host.invalid/postgres".into());
    assert!(matches!(found, OpenError::Unavailable(_)), "{found:?}");
    let read_only = "options=-cdefault_transaction_read_only%3Don";
    let url = format!("{}&{read_only}", server.url());
    PostgresEngine::open(&url, options()).expect("the engine's own settings come last");

    // The password is read from a file that only the user can read.
    let folder = tempfile::TempDir::new().unwrap();
    let file = folder.path().join("pgpass");
    fs::write(&file, "*:*:*:secret:right\n").unwrap();
    let url = format!(
        "postgresql://secret@{at}:{port}/postgres?sslmode=disable&passfile={}",
        file.display()
    );
    fs::set_permissions(&file, fs::Permissions::from_mode(0o644)).unwrap();
    assert!(matches!(refused(&url, options()), OpenError::PasswordFile(_)));
    fs::set_permissions(&file, fs::Permissions::from_mode(0o600)).unwrap();
    let found = refused(&url, options());
    assert!(matches!(found, OpenError::NoRights(_)), "the login succeeds: {found:?}");
}

#[test]
fn a_schema_of_another_program_or_of_another_format() {
    let (server, options) = (store::shared(), options());
    let (url, schema) = (server.url(), options.schema.clone());
    server.sql(&format!("create schema {schema}; create table {schema}.other (a int)"));
    assert!(matches!(refused(&url, options.clone()), OpenError::Foreign(_)));
    server.sql(&format!("drop table {schema}.other"));
    drop(PostgresEngine::open(&url, options.clone()).expect("an empty schema is used"));
    for (format, reason) in [(2, OpenError::NewerFormat(2)), (0, OpenError::OlderFormat(0))] {
        server.sql(&format!("update {schema}.format set format = {format}"));
        assert_eq!(refused(&url, options.clone()), reason);
    }
}

#[test]
fn one_server_owns_a_store() {
    let (server, options) = (store::shared(), options());
    let url = format!("{}&application_name=first", server.url());
    let first = PostgresEngine::open(&url, options.clone()).unwrap();
    put(&*first, b"1").unwrap();
    let found = refused(&server.url(), options.clone());
    assert!(matches!(&found, OpenError::InUse(by) if by.starts_with("first from 127.0.0.1")));
    // The first server loses its owner lock: a session ends, as by a network that is cut.
    let schema = &options.schema;
    let unlock = format!(
        "select count(pg_terminate_backend(pid)) from pg_locks where locktype = 'advisory' \
         and mode = 'ExclusiveLock' \
         and objid::bigint = hashtextextended('{schema}', 2) & 4294967295"
    );
    assert_eq!(server.sql(&unlock), "1");
    put(&*first, b"2").expect("no other server has taken the store over");
    wait_until("the session ends", || server.sql(&unlock) == "0");
    let second = PostgresEngine::open(&server.url(), options.clone()).unwrap();
    put(&*second, b"3").unwrap();
    let result = put(&*first, b"4");
    assert!(matches!(result, Err(KvError::Fenced(_))), "{result:?}");
    assert_eq!(second.get_once(Keyspace::Record, b"2", &mut |_| ()), Ok(true));
    assert_eq!(second.get_once(Keyspace::Record, b"4", &mut |_| ()), Ok(false));
}

#[test]
fn the_store_has_the_clock_of_the_database() {
    let engine = PostgresEngine::open(&store::shared().url(), options()).unwrap();
    let machine = SystemClock::new();
    let before = machine.now_ms();
    let wall_ms = engine.wall_ms().unwrap().unwrap();
    // PostgreSQL runs on this machine, and its time is rounded.
    assert!((before - 1..=machine.now_ms() + 1).contains(&wall_ms));
}
