//! A member of a set that cannot reach the store which it shares with others: it is neither primary
//! nor secondary, and its errors make clients look for another primary. When it reaches the store
//! again, it answers as before.
//!
//! Specification "Server Discovery and Monitoring": 10107, 11602 and 13436 mark a server as
//! unknown. The state RECOVERING is 3.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use mayfly_kv::{
    Engine, EngineWrapper, Expected, Keyspace, KvError, KvResult, MemoryEngine, NamedKey, Sharing,
    ThroughVisitor, Txn, TxnOptions,
};
use mayfly_testkit::Fixture;
use mayfly_value::RawValue;

/// A memory engine that answers unless it is cut off.
struct Reachable {
    inner: MemoryEngine,
    /// Whether calls fail.
    fails: AtomicBool,
    /// Whether the engine has noticed that.
    is_cut_off: AtomicBool,
    /// Whether it notices that at its next call.
    notices: AtomicBool,
}

impl Reachable {
    fn check(&self) -> KvResult<()> {
        match self.fails.load(Ordering::Acquire) {
            true => {
                self.is_cut_off.fetch_or(self.notices.load(Ordering::Acquire), Ordering::AcqRel);
                Err(KvError::Unavailable("the store cannot be reached".into()))
            }
            false => Ok(()),
        }
    }

    fn set(&self, fails: bool, is_cut_off: bool) {
        self.fails.store(fails, Ordering::Release);
        self.is_cut_off.store(is_cut_off, Ordering::Release);
        self.notices.store(false, Ordering::Release);
    }

    fn is_lost_at_the_next_call(&self) {
        self.notices.store(true, Ordering::Release);
    }
}

impl Sharing for Reachable {
    fn is_cut_off(&self) -> bool {
        self.is_cut_off.load(Ordering::Acquire)
    }
}

impl EngineWrapper for Reachable {
    fn inner(&self) -> &dyn Engine {
        &self.inner
    }

    fn sharing(&self) -> &dyn Sharing {
        self
    }

    fn begin(&self, options: TxnOptions) -> KvResult<Box<dyn Txn>> {
        self.check()?;
        self.inner.begin(options)
    }

    fn get_once(
        &self,
        keyspace: Keyspace,
        key: &[u8],
        see: &mut dyn FnMut(&[u8]),
    ) -> KvResult<bool> {
        self.check()?;
        self.inner.get_once(keyspace, key, see)
    }

    fn get_through_once(
        &self,
        keyspace: Keyspace,
        key: &[u8],
        named: &NamedKey<'_>,
        see: &mut ThroughVisitor<'_>,
    ) -> KvResult<bool> {
        self.check()?;
        self.inner.get_through_once(keyspace, key, named, see)
    }

    fn get_if(
        &self,
        expected: &Expected<'_>,
        entry: (Keyspace, &[u8]),
        see: &mut dyn FnMut(&[u8]),
    ) -> KvResult<Option<bool>> {
        self.check()?;
        self.inner.get_if(expected, entry, see)
    }
}

fn member() -> (Fixture, Arc<Reachable>) {
    let engine = Arc::new(Reachable {
        inner: MemoryEngine::new(),
        fails: AtomicBool::new(false),
        is_cut_off: AtomicBool::new(false),
        notices: AtomicBool::new(false),
    });
    let opened = engine.clone();
    let fixture = Fixture::new(Box::new(move || opened.clone()));
    fixture.join("rs0");
    fixture.ok("test", "{insert: 'c', documents: [{_id: 1}]}");
    (fixture, engine)
}

const FIND: &str = "{find: 'c', filter: {_id: 1}}";
const FIND_NEAR: &str = "{find: 'c', filter: {_id: 1}, $readPreference: {mode: 'nearest'}}";
const INSERT: &str = "{insert: 'c', documents: [{_id: 2}]}";

/// The code of the command's error; 0 if it succeeds.
fn code(fixture: &Fixture, command: &str) -> i32 {
    match fixture.run("test", command).as_doc().get("code") {
        Some(RawValue::Int32(code)) => code,
        _ => 0,
    }
}

/// Whether `hello` reports a primary and a secondary, and the state that `replSetGetStatus`
/// reports.
fn reported(fixture: &Fixture) -> (bool, bool, i32) {
    let hello = fixture.ok("admin", "{hello: 1}");
    let is = |name: &str| hello.as_doc().get(name) == Some(RawValue::Bool(true));
    let status = fixture.ok("admin", "{replSetGetStatus: 1}");
    let state = match status.as_doc().get("myState") {
        Some(RawValue::Int32(state)) => state,
        other => panic!("{other:?}"),
    };
    (is("isWritablePrimary"), is("secondary"), state)
}

const PRIMARY: (bool, bool, i32) = (true, false, 1);
const RECOVERING: (bool, bool, i32) = (false, false, 3);

#[test]
fn a_member_without_its_store_is_neither_primary_nor_secondary() {
    let (fixture, engine) = member();
    assert_eq!(reported(&fixture), PRIMARY);
    engine.set(true, true);
    assert_eq!(reported(&fixture), RECOVERING);
    let codes = [FIND, FIND_NEAR, INSERT].map(|command| code(&fixture, command));
    assert_eq!(codes, [13436, 13436, 10107]);
    fixture.ok("admin", "{ping: 1}");
    engine.set(false, false);
    assert_eq!(reported(&fixture), PRIMARY);
    assert_eq!([FIND, FIND_NEAR, INSERT].map(|command| code(&fixture, command)), [0; 3]);
}

#[test]
fn operations_that_lose_the_store_report_a_change_of_the_primary() {
    let (fixture, engine) = member();
    // The engine waits for the store; the operation began before it was noticed to be lost.
    engine.set(true, false);
    assert_eq!([FIND, INSERT].map(|command| code(&fixture, command)), [6, 6]);
    engine.is_lost_at_the_next_call();
    assert_eq!(code(&fixture, FIND), 11602);
    assert_eq!(reported(&fixture), RECOVERING);
    engine.set(true, false);
    engine.is_lost_at_the_next_call();
    assert_eq!(code(&fixture, INSERT), 11602);
}

#[test]
fn the_topology_version_changes_so_that_waiting_clients_learn_of_it() {
    let (fixture, engine) = member();
    let version = |fixture: &Fixture| {
        let hello = fixture.ok("admin", "{hello: 1}");
        let version = hello.as_doc().get("topologyVersion").and_then(RawValue::as_document);
        version.and_then(|version| version.get("counter")).map(|counter| format!("{counter:?}"))
    };
    let before = version(&fixture);
    engine.set(true, true);
    assert_eq!(code(&fixture, FIND), 13436);
    let lost = version(&fixture);
    engine.set(false, false);
    assert_eq!(code(&fixture, FIND), 0);
    assert!(before != lost && lost != version(&fixture) && before.is_some());
}
