//! A secondary: it reads what the owner of a store writes, and is a member that others see.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use mayfly_base::testing::wait_until;
use mayfly_kv::{Engine, Keyspace, KvError, Member, Sharing, TxnOptions};
use mayfly_kv_postgres::{OpenError, PostgresEngine, PostgresOptions};

use crate::opening::{options, put};
use crate::store;

fn member(address: &str, options: &PostgresOptions) -> PostgresOptions {
    PostgresOptions { others_wait: true, address: Some(address.into()), ..options.clone() }
}

fn reads(engine: &dyn Engine, key: &[u8]) -> bool {
    let txn = engine.begin(TxnOptions::READ_ONLY).unwrap();
    txn.get(Keyspace::Record, key, &mut |_| {}).unwrap()
}

#[test]
fn a_secondary_reads_and_does_not_write() {
    let (server, options) = (store::shared(), options());
    let url = server.url();
    let missing = PostgresEngine::open_secondary(&url, member("b:2", &options));
    assert!(matches!(missing.err(), Some(OpenError::Foreign(_))), "there is no store yet");
    let owner = PostgresEngine::open(&url, member("a:1", &options)).unwrap();
    let secondary = PostgresEngine::open_secondary(&url, member("b:2", &options)).unwrap();
    assert!(!reads(&*secondary, b"1"));
    put(&*owner, b"1").unwrap();
    assert!(reads(&*secondary, b"1"));
    let refused = secondary.begin(TxnOptions::default()).map(drop);
    assert!(matches!(refused, Err(KvError::Fenced(_))), "{refused:?}");
    let refused = secondary.begin_ingest(Keyspace::Record).map(drop);
    assert!(matches!(refused, Err(KvError::Fenced(_))), "{refused:?}");
    secondary.close().unwrap();
    put(&*owner, b"2").unwrap();
    owner.close().unwrap();
}

#[test]
fn members_see_each_other_and_the_owner() {
    let (server, options) = (store::shared(), options());
    let url = server.url();
    let owner = PostgresEngine::open(&url, member("a:1", &options)).unwrap();
    let secondary = PostgresEngine::open_secondary(&url, member("b:2", &options)).unwrap();
    let listed = |address: &str, is_owner| Member { address: address.into(), is_owner };
    let seen = secondary.sharing().members();
    assert_eq!(seen.list, [listed("a:1", true), listed("b:2", false)]);
    assert!(seen.term > 0 && owner.sharing().members().term == seen.term);
    // A new owner ends the sessions of the former one, and not those of secondaries.
    let before = reads(&*secondary, b"9");
    owner.close().unwrap();
    let next = PostgresEngine::open(&url, member("c:3", &options)).unwrap();
    assert_eq!(before, reads(&*secondary, b"9"));
    let third = PostgresEngine::open_secondary(&url, member("d:4", &options)).unwrap();
    let seen_later = third.sharing().members();
    assert_eq!(seen_later.list, [listed("b:2", false), listed("c:3", true), listed("d:4", false)]);
    assert!(seen_later.term > seen.term);
    next.close().unwrap();
}

#[test]
fn an_owner_that_announces_nothing_is_not_listened_to() {
    let (server, options) = (store::shared(), options());
    let url = server.url();
    // Without an address it sees no other members.
    let owner = PostgresEngine::open(&url, PostgresOptions { address: None, ..options.clone() });
    let owner = owner.unwrap();
    let secondary = PostgresEngine::open_secondary(&url, member("b:2", &options)).unwrap();
    let is_called = Arc::<AtomicBool>::default();
    let called = is_called.clone();
    let listens = secondary.listen(Box::new(move || called.store(true, Ordering::Release)));
    wait_until("the session listens", || is_called.load(Ordering::Acquire));
    owner.announce();
    assert!(!listens.load(Ordering::Acquire));
    secondary.close().unwrap();
    owner.close().unwrap();
}

#[test]
fn announcements_arrive_also_after_the_connection_was_lost() {
    let (server, options) = (store::shared(), options());
    let url = server.url();
    let owner = PostgresEngine::open(&url, member("a:1", &options)).unwrap();
    let secondary = PostgresEngine::open_secondary(&url, member("b:2", &options)).unwrap();
    let calls = Arc::<AtomicU64>::default();
    let counted = calls.clone();
    let count = move || {
        counted.fetch_add(1, Ordering::AcqRel);
    };
    let listens = secondary.listen(Box::new(count));
    let count = || calls.load(Ordering::Acquire);
    for is_lost in [false, true] {
        if is_lost {
            // The listener is called when it has lost the connection, and when it has another one.
            let before = count();
            let ended = server.sql(&format!(
                "select count(pg_terminate_backend(pid)) from pg_stat_activity \
                 where query like '%listen \"{}\"%' and pid <> pg_backend_pid()",
                options.schema
            ));
            assert_eq!(ended, "1");
            wait_until("the listener notices", || count() >= before + 2);
        }
        // An idle owner announces, too, once it has seen the secondary.
        wait_until("announcements arrive", || listens.load(Ordering::Acquire));
        assert_eq!(owner.members().list.len(), 2);
        let before = count();
        wait_until("it announces again", || count() >= before + 2);
        let before = count();
        owner.announce();
        wait_until("the announcement arrives", || count() > before);
    }
    secondary.close().unwrap();
    owner.close().unwrap();
}
