//! A secondary: it reads what the owner of a store writes, and is a member that others see.

use mayfly_kv::{Engine, Keyspace, KvError, Member, TxnOptions};
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
    let seen = secondary.members();
    assert_eq!(seen.list, [listed("a:1", true), listed("b:2", false)]);
    assert!(seen.term > 0 && owner.members().term == seen.term);
    // A new owner ends the sessions of the former one, and not those of secondaries.
    let before = reads(&*secondary, b"9");
    owner.close().unwrap();
    let next = PostgresEngine::open(&url, member("c:3", &options)).unwrap();
    assert_eq!(before, reads(&*secondary, b"9"));
    let third = PostgresEngine::open_secondary(&url, member("d:4", &options)).unwrap();
    let seen_later = third.members();
    assert_eq!(seen_later.list, [listed("b:2", false), listed("c:3", true), listed("d:4", false)]);
    assert!(seen_later.term > seen.term);
    next.close().unwrap();
}
