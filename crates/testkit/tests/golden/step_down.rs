//! A primary that steps down while clients work: writing commands fail or finish, and leave nothing
//! in part; reading commands continue.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use mayfly_base::testing::wait_until;
use mayfly_testkit::{Fixture, dialect};
use mayfly_value::{DocBuf, DocBuilder, RawDoc, RawValue};

const DOCUMENTS: i32 = 20_000;

fn code(reply: &DocBuf) -> i32 {
    match reply.as_doc().get("code") {
        Some(RawValue::Int32(code)) => code,
        _ => 0,
    }
}

fn many(name: &str, documents: std::ops::Range<i32>) -> DocBuf {
    let mut command = DocBuilder::new();
    command.append("insert", name).start_array("documents");
    for id in documents {
        command.push_document().append("_id", id).append("a", id % 7).append("b", "text").end();
    }
    command.end();
    command.finish()
}

fn count(fixture: &Fixture, name: &str) -> i32 {
    let reply =
        fixture.ok("test", &format!("{{count: '{name}', $readPreference: {{mode: 'nearest'}}}}"));
    match reply.as_doc().get("n") {
        Some(RawValue::Int32(n)) => n,
        other => panic!("{other:?}"),
    }
}

/// Runs a command, steps down shortly after its beginning, and returns its reply.
fn interrupted(fixture: &Fixture, after_ms: u64, command: RawDoc<'_>) -> DocBuf {
    let begun = AtomicBool::new(false);
    let reply = std::thread::scope(|scope| {
        let worker = scope.spawn(|| {
            begun.store(true, Ordering::SeqCst);
            fixture.run_document("test", command)
        });
        wait_until("it begins", || begun.load(Ordering::SeqCst));
        std::thread::sleep(Duration::from_millis(after_ms));
        fixture.ok("admin", "{replSetStepDown: 60, force: true}");
        worker.join().unwrap()
    });
    let ok = reply.as_doc().get("ok") == Some(RawValue::Double(1.0));
    // A command that reads and writes, and begins after the step-down, is refused as a read.
    let known = ok || [11602, 10107, 13435].contains(&code(&reply));
    assert!(known, "{}", dialect::show(reply.as_doc()));
    let errors = reply.as_doc().get("writeErrors");
    assert!(errors.is_none(), "{}", dialect::show(reply.as_doc()));
    reply
}

fn loaded() -> Fixture {
    let fixture = Fixture::in_memory();
    fixture.join("rs0");
    let reply = fixture.run_document("test", many("c", 0..DOCUMENTS).as_doc());
    assert_eq!(reply.as_doc().get("n"), Some(RawValue::Int32(DOCUMENTS)));
    fixture
}

fn elect(fixture: &Fixture) {
    fixture.ok("admin", "{replSetFreeze: 0}");
}

fn valid(fixture: &Fixture, name: &str) {
    let report = fixture.ok("test", &format!("{{validate: '{name}'}}"));
    assert_eq!(report.as_doc().get("valid"), Some(RawValue::Bool(true)));
}

#[test]
fn bulk_inserts_end_between_two_units() {
    let fixture = loaded();
    let mut ended = 0;
    for (round, after_ms) in [1, 5, 20, 60].into_iter().enumerate() {
        let name = format!("n{round}");
        let reply = interrupted(&fixture, after_ms, many(&name, 0..DOCUMENTS).as_doc());
        let found = count(&fixture, &name);
        elect(&fixture);
        match code(&reply) {
            0 => assert_eq!(found, DOCUMENTS),
            _ => ended += 1,
        }
        if found > 0 {
            valid(&fixture, &name);
        }
    }
    assert!(ended > 0, "none was interrupted");
}

#[test]
fn builds_and_outputs_finish_or_leave_nothing() {
    let fixture = loaded();
    for after_ms in [0, 2, 10, 40] {
        let env = fixture.env();
        let build = dialect::document(
            "{createIndexes: 'c', indexes: [{key: {a: 1, b: 1}, name: 'x'}]}",
            &env,
        );
        let reply = interrupted(&fixture, after_ms, build.unwrap().as_doc());
        elect(&fixture);
        let indexes = dialect::show(fixture.ok("test", "{listIndexes: 'c'}").as_doc());
        assert_eq!(indexes.contains("'x'"), code(&reply) == 0, "{indexes}");
        valid(&fixture, "c");
        fixture.run("test", "{dropIndexes: 'c', index: 'x'}");
        let out = dialect::document(
            "{aggregate: 'c', pipeline: [{$set: {z: 1}}, {$out: 'o'}], cursor: {}}",
            &env,
        );
        let reply = interrupted(&fixture, after_ms, out.unwrap().as_doc());
        elect(&fixture);
        let all = if code(&reply) == 0 { DOCUMENTS } else { 0 };
        assert_eq!(count(&fixture, "o"), all);
        fixture.run("test", "{drop: 'o'}");
        let names = dialect::show(fixture.ok("test", "{listCollections: 1}").as_doc());
        assert!(!names.contains("tmp"), "{names}");
        let all = dialect::document(
            "{update: 'c', updates: [{q: {}, u: {$inc: {n: 1}}, multi: true}]}",
            &env,
        );
        interrupted(&fixture, after_ms, all.unwrap().as_doc());
        elect(&fixture);
        valid(&fixture, "c");
    }
}

#[test]
fn readers_go_on() {
    let fixture = loaded();
    let env = fixture.env();
    let group = "{aggregate: 'c', pipeline: [{$group: {_id: '$a', n: {$sum: 1}}}], cursor: {}}";
    let reply = interrupted(&fixture, 5, dialect::document(group, &env).unwrap().as_doc());
    assert!(matches!(code(&reply), 0 | 13435), "{}", dialect::show(reply.as_doc()));
    elect(&fixture);
    let reply = fixture.ok(
        "test",
        "{find: 'c', batchSize: 2, lsid: {id: BinData(4, 'AAAAAAAAQACAAAAAAAAAAQ==')}}",
    );
    let cursor = reply.as_doc().get("cursor").and_then(RawValue::as_document).unwrap();
    let Some(RawValue::Int64(id)) = cursor.get("id") else { panic!("{reply:?}") };
    fixture.ok("admin", "{replSetStepDown: 60, force: true}");
    let lsid = "lsid: {id: BinData(4, 'AAAAAAAAQACAAAAAAAAAAQ==')}";
    fixture.ok(
        "test",
        &format!("{{getMore: NumberLong('{id}'), collection: 'c', batchSize: 2, {lsid}}}"),
    );
    fixture.ok("test", &format!("{{killCursors: 'c', cursors: [NumberLong('{id}')]}}"));
    fixture.ok("admin", "{endSessions: [{id: BinData(4, 'AAAAAAAAQACAAAAAAAAAAQ==')}]}");
    fixture.ok("admin", "{ping: 1}");
    // A change stream reads, too.
    let near = "$readPreference: {mode: 'secondary'}";
    fixture.ok(
        "test",
        &format!("{{aggregate: 'c', pipeline: [{{$changeStream: {{}}}}], cursor: {{}}, {near}}}"),
    );
    for (concern, expected) in [
        ("readConcern: {level: 'majority'}", 0),
        ("readConcern: {level: 'local', afterClusterTime: Timestamp(1, 1)}", 0),
        ("readConcern: {level: 'nonsense'}", 2),
        ("readConcern: 1", 14),
    ] {
        let reply = fixture.run("test", &format!("{{find: 'c', limit: 1, {concern}, {near}}}"));
        assert_eq!(code(&reply), expected, "{concern}: {}", dialect::show(reply.as_doc()));
    }
    elect(&fixture);
    for (concern, expected) in [
        ("{w: 1}", 0),
        ("{w: 'majority', j: true, wtimeout: 10}", 0),
        ("{w: 0}", 0),
        ("{w: 51}", 9),
        ("{w: -1}", 9),
    ] {
        let reply = fixture
            .run("test", &format!("{{insert: 'w', documents: [{{}}], writeConcern: {concern}}}"));
        assert_eq!(code(&reply), expected, "{concern}: {}", dialect::show(reply.as_doc()));
    }
    for (concern, expected) in [("{w: 2}", 100), ("{w: 'nonsense'}", 79)] {
        let reply = fixture
            .run("test", &format!("{{insert: 'w', documents: [{{}}], writeConcern: {concern}}}"));
        assert_eq!(reply.as_doc().get("n"), Some(RawValue::Int32(1)), "{concern}");
        let unmet = reply.as_doc().get("writeConcernError").and_then(RawValue::as_document);
        let unmet = unmet.and_then(|unmet| unmet.get("code"));
        assert_eq!(unmet, Some(RawValue::Int32(expected)), "{concern}");
    }
}

#[test]
fn who_waits_for_a_time_that_does_not_come_ends_with_the_server() {
    let fixture = Fixture::in_memory();
    fixture.join("rs0");
    fixture.ok("admin", "{replSetStepDown: 60, force: true}");
    let find = "{find: 'c', readConcern: {afterClusterTime: Timestamp(1800000100, 1)}, \
                $clusterTime: {clusterTime: Timestamp(1800000100, 1)}, $readPreference: {mode: 'nearest'}}";
    std::thread::scope(|scope| {
        let waiting = scope.spawn(|| fixture.run("test", find));
        std::thread::sleep(Duration::from_millis(20));
        assert!(!waiting.is_finished());
        fixture.service.shutdown.begin();
        assert_eq!(code(&waiting.join().unwrap()), 11600);
    });
}
