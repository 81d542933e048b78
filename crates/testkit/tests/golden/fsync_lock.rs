//! Writers wait while `fsync` holds its lock, readers do not.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use mayfly_testkit::Fixture;
use mayfly_value::RawValue;

/// Long enough for a writer to finish if it does not wait.
const A_WHILE: Duration = Duration::from_millis(50);

#[test]
fn writers_wait_for_the_unlock() {
    let fixture = Fixture::in_memory();
    fixture.ok("test", "{insert: 'c', documents: [{_id: 1}]}");
    fixture.ok("admin", "{fsync: 1, lock: true}");
    let wrote = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let writer = scope.spawn(|| {
            fixture.ok("test", "{insert: 'c', documents: [{_id: 2}]}");
            wrote.store(true, Ordering::SeqCst);
        });
        std::thread::sleep(A_WHILE);
        assert!(!wrote.load(Ordering::SeqCst), "the writer did not wait");
        let found = fixture.ok("test", "{count: 'c'}");
        assert_eq!(found.as_doc().get("n"), Some(RawValue::Int32(1)));
        let ops = fixture.ok("admin", "{currentOp: 1}");
        assert_eq!(ops.as_doc().get("fsyncLock"), Some(RawValue::Bool(true)));
        fixture.ok("admin", "{fsyncUnlock: 1}");
        writer.join().unwrap();
    });
    let found = fixture.ok("test", "{count: 'c'}");
    assert_eq!(found.as_doc().get("n"), Some(RawValue::Int32(2)));
    assert!(fixture.ok("admin", "{currentOp: 1}").as_doc().get("fsyncLock").is_none());
}

#[test]
fn nothing_expires_under_the_lock() {
    let mut fixture = Fixture::in_memory();
    let index = "{key: {x: 1}, name: 'x_1', expireAfterSeconds: 0}";
    fixture.ok("test", &format!("{{createIndexes: 'c', indexes: [{index}]}}"));
    fixture.ok("test", "{insert: 'c', documents: [{_id: 1, x: Date(now - 1000)}]}");
    let left = |fixture: &Fixture| match fixture.ok("test", "{count: 'c'}").as_doc().get("n") {
        Some(RawValue::Int32(n)) => n,
        _ => -1,
    };
    fixture.ok("admin", "{fsync: 1, lock: true}");
    fixture.ttl_pass();
    assert_eq!(left(&fixture), 1);
    fixture.ok("admin", "{fsyncUnlock: 1}");
    fixture.ttl_pass();
    assert_eq!(left(&fixture), 0);
}
