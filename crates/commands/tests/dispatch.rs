//! Commands through dispatch, with the memory engine and a fixed clock.

use std::sync::Arc;
use std::time::Duration;

use mayfly_base::{Clock, ErrorCode, ManualClock};
use mayfly_commands::{
    Dispatched, DocumentSequence, Handler, Incoming, Next, Outcome, Repeat, RowFlags, Wait,
    dispatch, registry,
};
use mayfly_kv::MemoryEngine;
use mayfly_service::{CommandLine, Connection, LogRing, Service, ServiceOptions};
use mayfly_storage::{Store, StoreOptions};
use mayfly_value::bson::{Bson, Document, doc};
use mayfly_value::{DocBuf, DocBuilder};
use mayfly_work::OpRegistry;

struct Server {
    service: Arc<Service>,
    connection: Arc<Connection>,
}

fn server() -> Server {
    server_at(Arc::new(ManualClock::at_ms(1_700_000_000_123)))
}

fn server_at(clock: Arc<dyn Clock>) -> Server {
    let ops = OpRegistry::new(clock.clone());
    let options = StoreOptions { background: false, ..StoreOptions::default() };
    let engine = Arc::new(MemoryEngine::default());
    let store = Store::open(engine, options, clock.clone(), ops.clone()).unwrap();
    let service = Service::new(ServiceOptions {
        store,
        ops,
        clock,
        log: Arc::new(LogRing::default()),
        command_line: CommandLine { argv: vec!["mayflydb".into()], parsed: DocBuf::empty() },
        host: "test:27017".into(),
        engine_name: "memory",
        max_connections: 10,
    });
    let connection = service.connections.open("127.0.0.1:1".into(), String::new(), 0).unwrap();
    Server { service, connection }
}

impl Server {
    fn full(
        &self,
        command: &Document,
        exhaust_allowed: bool,
        repeat: Repeat,
    ) -> (Document, Outcome) {
        let command = DocBuf::from_bson(command);
        let mut incoming = Incoming::new(command.as_doc());
        (incoming.exhaust_allowed, incoming.repeat) = (exhaust_allowed, repeat);
        self.send(&incoming)
    }

    fn send(&self, incoming: &Incoming<'_>) -> (Document, Outcome) {
        let doc = DocBuilder::in_buffer(b"header".to_vec());
        let Dispatched { doc, next, .. } = dispatch(&self.service, &self.connection, incoming, doc);
        let bytes = doc.finish_buffer();
        assert!(bytes.starts_with(b"header"));
        let Next::Reply(outcome) = next else { panic!("it is not answered") };
        (Document::from_reader(&bytes[6..]).unwrap(), outcome)
    }

    /// How long a handshake waits for a change of the topology, and from which counter.
    fn waits(&self, command: &Document, repeat: Repeat) -> (i64, Duration) {
        let command = DocBuf::from_bson(command);
        let mut incoming = Incoming::new(command.as_doc());
        (incoming.exhaust_allowed, incoming.repeat) = (true, repeat);
        let dispatched = dispatch(&self.service, &self.connection, &incoming, DocBuilder::new());
        match dispatched.next {
            Next::Wait(Wait::Topology { seen, longest }, _) => (seen, longest),
            Next::Wait(Wait::Data(_), _) | Next::Reply(_) | Next::HangUp => {
                panic!("it does not wait")
            }
        }
    }

    fn run(&self, mut command: Document) -> Document {
        if !command.contains_key("$db") {
            command.insert("$db", "admin");
        }
        let mut reply = self.full(&command, false, Repeat::default()).0;
        // The last fields of every reply.
        assert_eq!(reply.keys().last().map(String::as_str), Some("operationTime"), "{reply}");
        reply.remove("operationTime");
        assert!(reply.remove("$clusterTime").is_some(), "{reply}");
        reply
    }

    fn fails(&self, command: Document, code: i32, text: &str) {
        let reply = self.run(command);
        assert_eq!(reply.get_f64("ok").unwrap(), 0.0, "{reply}");
        assert_eq!(reply.get_i32("code").unwrap(), code, "{reply}");
        assert_eq!(reply.get_str("errmsg").unwrap(), text, "{reply}");
        assert_eq!(reply.get_str("codeName").unwrap(), ErrorCode(code).name());
    }
}

#[test]
fn unknown_missing_and_misplaced_commands() {
    let server = server();
    server.fails(doc! {"atlasVersion": 1}, 59, "no such command: 'atlasVersion'");
    server.fails(
        doc! {"getFreeMonitoringStatus": 1},
        59,
        "no such command: 'getFreeMonitoringStatus'",
    );
    server.fails(doc! {"ISMASTER": 1}, 59, "no such command: 'ISMASTER'");
    let text = "the command 'moveChunk' is not implemented yet";
    server.fails(doc! {"moveChunk": 1}, 238, text);
    let text = "getLog may only be run against the admin database.";
    server.fails(doc! {"getLog": "*", "$db": "test"}, 13, text);
    server.fails(doc! {"replSetFreeze": 0}, 76, "not running with --replSet");
    server.fails(doc! {"ping": 1, "x": 1}, 40415, "BSON field 'ping.x' is an unknown field.");
    let command = DocBuf::from_bson(&doc! {"ping": 1});
    let incoming = Incoming::new(command.as_doc());
    assert_eq!(server.send(&incoming).0.get_i32("code").unwrap(), 40571);
}

/// A clock that advances by a second at every read.
struct Hurrying(ManualClock);

impl Clock for Hurrying {
    fn now_ms(&self) -> i64 {
        self.0.now_ms()
    }

    fn monotonic_micros(&self) -> i64 {
        self.0.advance_ms(1000);
        self.0.monotonic_micros()
    }
}

#[test]
fn reads_without_a_limit_of_their_own_get_the_default_one() {
    let server = server_at(Arc::new(Hurrying(ManualClock::at_ms(1_700_000_000_123))));
    let ok = |command: Document| {
        let reply = server.run(command);
        assert_eq!(reply.get_f64("ok").unwrap(), 1.0, "{reply}");
    };
    ok(doc! {"insert": "c", "documents": [{"_id": 1}], "$db": "test"});
    ok(doc! {"setClusterParameter": {"defaultMaxTimeMS": {"readOperations": 1}}});
    let slow =
        doc! {"aggregate": "c", "pipeline": [{"$match": {"a": 1}}], "cursor": {}, "$db": "test"};
    assert_eq!(server.run(slow.clone()).get_i32("code").unwrap(), 50);
    for limit in [0, 100_000_000] {
        let mut limited = slow.clone();
        limited.insert("maxTimeMS", limit);
        ok(limited);
    }
    ok(doc! {"aggregate": "c", "pipeline": [{"$out": "d"}], "cursor": {}, "$db": "test"});
    ok(doc! {"delete": "c", "deletes": [{"q": {}, "limit": 0}], "$db": "test"});
    ok(doc! {"setClusterParameter": {"defaultMaxTimeMS": {"readOperations": Bson::Null}}});
    ok(slow);
}

#[test]
fn writes_without_a_concern_of_their_own_get_the_default_one() {
    let server = server();
    let waits = |concern: Option<Document>| {
        let mut insert = doc! {"insert": "c", "documents": [{}], "$db": "test"};
        if let Some(concern) = concern {
            insert.insert("writeConcern", concern);
        }
        server.full(&insert, false, Repeat::default()).1.wait_durable
    };
    assert!(waits(None));
    server.run(doc! {"setDefaultRWConcern": 1, "defaultWriteConcern": {"w": 1}});
    assert!(!waits(None));
    assert!(waits(Some(doc! {"w": "majority"})));
    server.run(doc! {"setDefaultRWConcern": 1, "defaultWriteConcern": {"w": 1, "j": true}});
    assert!(waits(None));
    assert!(!waits(Some(doc! {"w": 1})));
}

#[test]
fn generic_arguments_are_checked() {
    let server = server();
    let ok = doc! {
        "ping": 1, "lsid": {"id": Bson::Binary(mayfly_value::bson::Binary::from(uuid()))},
        "maxTimeMS": 5, "comment": "x", "apiVersion": "1", "apiStrict": true,
        "$readPreference": {"mode": "primary"}, "readConcern": {"level": "majority"},
        "$clusterTime": {},
    };
    assert_eq!(server.run(ok).get_f64("ok").unwrap(), 1.0);
    let text = "-1 value for maxTimeMS is out of range [0, 2147483647]";
    server.fails(doc! {"ping": 1, "maxTimeMS": -1}, 2, text);
    server.fails(doc! {"ping": 1, "maxTimeMS": 1.5}, 9, "maxTimeMS has non-integral value");
    let text = "txnNumber may only be provided for multi-document transactions and retryable write commands. \
                autocommit:false was not provided, and ping is not a retryable write command.";
    let lsid = doc! {"id": Bson::Binary(mayfly_value::bson::Binary::from(uuid()))};
    server.fails(doc! {"ping": 1, "lsid": lsid, "txnNumber": 1i64}, 50768, text);
    server.fails(doc! {"ping": 1, "apiVersion": "2"}, 322, "API version must be \"1\"");
    let text = "Command does not support writeConcern";
    server.fails(doc! {"ping": 1, "writeConcern": {"w": 1}}, 72, text);
}

fn uuid() -> mayfly_value::bson::Uuid {
    mayfly_value::bson::Uuid::from_bytes([7; 16])
}

#[test]
fn parameters_are_read_and_set() {
    let server = server();
    let reply = server.run(doc! {"getParameter": 1, "featureCompatibilityVersion": 1});
    assert_eq!(reply, doc! {"featureCompatibilityVersion": {"version": "8.2"}, "ok": 1.0});
    server.fails(doc! {"getParameter": "foo"}, 72, "no option found to get");
    let reply = server.run(doc! {"setParameter": 1, "ttlMonitorSleepSecs": 1});
    assert_eq!(reply, doc! {"was": 60, "ok": 1.0});
    let reply = server.run(doc! {"getParameter": 1, "ttlMonitorSleepSecs": 1});
    assert_eq!(reply, doc! {"ttlMonitorSleepSecs": 1, "ok": 1.0});
    let text = "Invalid value for parameter ttlMonitorSleepSecs: 0 is not greater than 0";
    server.fails(doc! {"setParameter": 1, "ttlMonitorSleepSecs": 0}, 2, text);
    let text = "attempt to set unrecognized parameter [foo], use help:true to see options ";
    server.fails(doc! {"setParameter": 1, "foo": 0}, 72, text);
    let reply = server.run(doc! {"setParameter": 1, "ttlIndexRules": "mongod8"});
    assert_eq!(reply.get_str("was").unwrap(), "manual");
    assert!(server.run(doc! {"getParameter": "*"}).len() > 15);
}

#[test]
fn hello_waits_streams_and_keeps_the_client() {
    let server = server();
    let client = doc! {
        "driver": {"name": "d", "version": "1"}, "os": {"type": "Linux"},
        "application": {"name": "tests"},
    };
    let first = doc! {
        "hello": 1, "helloOk": true, "client": client, "$db": "admin",
        "compression": ["zlib", "lz9", "snappy"],
    };
    let reply = server.run(first.clone());
    assert!(reply.get_bool("isWritablePrimary").unwrap());
    assert!(reply.get_bool("helloOk").unwrap());
    assert_eq!(reply.get_array("compression").unwrap().len(), 2);
    assert_eq!(reply.get_i32("maxWireVersion").unwrap(), 27);
    assert_eq!(server.connection.app_name(), "tests");
    assert_eq!(server.run(first).get_i32("code").unwrap(), 186);
    let legacy = server.run(doc! {"ismaster": 1});
    assert!(legacy.get_bool("ismaster").unwrap());

    let version = reply.get_document("topologyVersion").unwrap().clone();
    let waiting = doc! {
        "hello": 1, "topologyVersion": version, "maxAwaitTimeMS": 10_000, "$db": "admin",
    };
    let ten_seconds = Duration::from_secs(10);
    assert_eq!(server.waits(&waiting, Repeat::default()), (0, ten_seconds));
    let repeat = Repeat { waited: true, ..Repeat::default() };
    let (reply, outcome) = server.full(&waiting, true, repeat);
    assert_eq!(reply.get_f64("ok").unwrap(), 1.0);
    assert!(outcome.more_to_come);
    let repeat = Repeat { last_counter: outcome.counter, ..Repeat::default() };
    assert_eq!(server.waits(&waiting, repeat), (0, ten_seconds));
    server.service.topology.changed();
    let (reply, _) = server.full(&waiting, true, Repeat { waited: false, ..repeat });
    assert_eq!(reply.get_document("topologyVersion").unwrap().get_i64("counter").unwrap(), 1);
    server.service.shutdown.begin();
    let (reply, outcome) = server.full(&waiting, true, Repeat { waited: true, ..repeat });
    assert_eq!(reply.get_i32("code").unwrap(), 91);
    assert!(!outcome.more_to_come && outcome.close);
    let alone = doc! {"hello": 1, "maxAwaitTimeMS": 1};
    assert_eq!(server.run(alone).get_i32("code").unwrap(), 31368);
}

#[test]
fn diagnostics_answer() {
    let server = server();
    let commands = [
        doc! {"ping": 1},
        doc! {"buildInfo": 1},
        doc! {"hostInfo": 1},
        doc! {"getLog": "*"},
        doc! {"getLog": "global"},
        doc! {"getLog": "startupWarnings"},
        doc! {"getCmdLineOpts": 1},
        doc! {"connectionStatus": 1, "showPrivileges": true},
        doc! {"whatsmyuri": 1},
        doc! {"_isSelf": 1},
        doc! {"listCommands": 1},
        doc! {"serverStatus": 1},
        doc! {"startSession": 1},
        doc! {"endSessions": []},
        doc! {"refreshSessions": []},
        doc! {"killSessions": []},
        doc! {"killAllSessions": []},
        doc! {"currentOp": 1, "$all": true},
        doc! {"logout": 1},
        doc! {"killOp": 1, "op": 12345},
    ];
    for command in commands {
        let reply = server.run(command.clone());
        assert_eq!(reply.get_f64("ok").unwrap(), 1.0, "{command}: {reply}");
    }
    let reply = server.run(doc! {"currentOp": 1, "$all": true});
    let monitor = reply
        .get_array("inprog")
        .unwrap()
        .iter()
        .filter_map(Bson::as_document)
        .find(|op| op.get_str("desc").is_ok_and(|desc| desc == "TTLMonitor"));
    assert_eq!(monitor.unwrap().get_str("currentOpTime").unwrap(), "2023-11-14T22:13:20.123+00:00");
    assert!(!monitor.unwrap().get_bool("active").unwrap());
    let status = server.run(doc! {"serverStatus": 1, "metrics": 0});
    assert!(status.get_document("opcounters").unwrap().get_i64("command").unwrap() > 10);
    assert!(!status.contains_key("metrics"));
}

#[test]
fn unknown_sequences_are_unknown_fields() {
    let server = server();
    let command = DocBuf::from_bson(&doc! {"ping": 1, "$db": "admin"});
    let documents = DocBuf::from_bson(&doc! {"a": 1});
    let sequence =
        DocumentSequence { name: "documents", documents: documents.as_bytes(), count: 1 };
    let (sequences, mut incoming) = ([sequence], Incoming::new(command.as_doc()));
    incoming.sequences = &sequences;
    assert_eq!(server.send(&incoming).0.get_i32("code").unwrap(), 40415);
}

#[test]
fn what_others_have_written_is_acknowledged_as_durable_only_after_a_sync() {
    let server = server();
    let waits = |mut command: Document| {
        command.insert("$db", "test");
        let (reply, outcome) = server.full(&command, false, Repeat::default());
        assert_eq!(reply.get_f64("ok").unwrap(), 1.0, "{reply}");
        outcome.wait_durable
    };
    let spec = doc! { "key": { "a": 1 }, "name": "a_1" };
    // The second run of each command has no effect, and the same reply.
    for command in [
        doc! { "create": "c" },
        doc! { "createIndexes": "c", "indexes": [spec] },
        doc! { "collMod": "c" },
        doc! { "update": "c", "updates": [{ "q": { "_id": 1 }, "u": { "$set": { "a": 1 } } }] },
        doc! { "drop": "c" },
        doc! { "dropDatabase": 1 },
    ] {
        for _ in 0..2 {
            assert!(waits(command.clone()), "{command}");
            let mut logged = command.clone();
            logged.insert("writeConcern", doc! { "w": 1 });
            assert!(!waits(logged), "{command}");
        }
    }
    // An ordered batch that stops half way has written all the same.
    let document = doc! { "_id": 1 };
    let command = doc! { "insert": "c", "documents": [document.clone(), document] };
    assert!(waits(command));
}

#[test]
fn no_definition_takes_a_name_that_the_server_hands_out() {
    let server = server();
    server.run(doc! { "create": "c", "$db": "test" });
    let spec = doc! { "key": { "a": 1 }, "name": "a_1" };
    for command in [
        doc! { "create": "$cmd" },
        doc! { "create": "$cmd.listCollections" },
        doc! { "createIndexes": "$cmd", "indexes": [spec] },
        doc! { "renameCollection": "test.c", "to": "test.$cmd", "$db": "admin" },
        doc! { "renameCollection": "test.c", "to": "test.system.x", "$db": "admin" },
    ] {
        let mut command = command;
        if !command.contains_key("$db") {
            command.insert("$db", "test");
        }
        // A rename has a code of its own.
        let code = if command.contains_key("renameCollection") { 20 } else { 73 };
        let reply = server.run(command);
        assert_eq!(reply.get_i32("code").ok(), Some(code), "{reply}");
    }
}

/// A driver whose login in the handshake fails tries once more by a command: that is one failure,
/// not two.
#[test]
fn failed_logins_in_handshakes_are_not_counted() {
    let server = server();
    let login = |command: &str| {
        let mut login = doc! {};
        login.insert(command, 1);
        login.extend(doc! {"mechanism": "SCRAM-SHA-256", "payload": "", "db": "admin"});
        login
    };
    for _ in 0..20 {
        let hello =
            doc! {"hello": 1, "speculativeAuthenticate": login("saslStart"), "$db": "admin"};
        let (reply, outcome) = server.full(&hello, false, Repeat::default());
        assert!(!reply.contains_key("speculativeAuthenticate"), "{reply}");
        assert_eq!(outcome.pause, Duration::ZERO);
    }
    let pauses: Vec<bool> = (0..11)
        .map(|_| {
            let mut command = login("saslStart");
            command.remove("db");
            command.insert("$db", "admin");
            let (reply, outcome) = server.full(&command, false, Repeat::default());
            assert_eq!(reply.get_i32("code").unwrap(), 18, "{reply}");
            !outcome.pause.is_zero()
        })
        .collect();
    let (last, first) = pauses.split_last().unwrap();
    assert!(*last && !first.contains(&true), "{pauses:?}");
}

/// Waiting for a sync follows from the row and from the operation: no handler asks for it.
#[test]
fn whatever_writes_is_acknowledged_after_a_sync() {
    let server = server();
    let waits = |command: Document| {
        let (reply, outcome) = server.full(&command, false, Repeat::default());
        assert_eq!(reply.get_f64("ok").unwrap(), 1.0, "{command}: {reply}");
        outcome.wait_durable
    };
    let on = |db: &str, mut command: Document| {
        command.insert("$db", db);
        command
    };
    let statement = |command: Document, number: i64| {
        let mut command = on("test", command);
        let id = mayfly_value::bson::Uuid::from_bytes([7; 16]);
        command.extend(doc! { "lsid": { "id": id }, "txnNumber": number, "autocommit": false });
        command
    };
    for command in [
        on("test", doc! { "insert": "c", "documents": [{ "_id": 1 }] }),
        on("test", doc! { "findAndModify": "c", "query": {}, "update": { "$set": { "a": 1 } } }),
        on("test", doc! { "aggregate": "c", "pipeline": [{ "$out": "d" }], "cursor": {} }),
        on("test", doc! { "convertToCapped": "d", "size": 4096 }),
        on("test", doc! { "createUser": "u", "pwd": "p", "roles": [] }),
        on("test", doc! { "grantRolesToUser": "u", "roles": ["read"] }),
        on("test", doc! { "createRole": "r", "privileges": [], "roles": [] }),
        on("test", doc! { "applyOps": [{ "op": "i", "ns": "test.c", "o": { "_id": 2 } }] }),
        on("admin", doc! { "appendOplogNote": 1, "data": {} }),
        on("admin", doc! { "setUserWriteBlockMode": 1, "global": false }),
        on("admin", doc! { "setDefaultRWConcern": 1, "defaultReadConcern": { "level": "local" } }),
    ] {
        assert!(waits(command.clone()), "{command}");
    }
    for command in [
        on("test", doc! { "find": "c" }),
        on("test", doc! { "aggregate": "c", "pipeline": [{ "$match": {} }], "cursor": {} }),
        on("admin", doc! { "getParameter": "*" }),
    ] {
        assert!(!waits(command.clone()), "{command}");
    }
    // A statement leaves the wait to the commit.
    let mut first = statement(doc! { "insert": "c", "documents": [{ "_id": 3 }] }, 1);
    first.insert("startTransaction", true);
    assert!(!waits(first));
    let mut commit = statement(doc! { "commitTransaction": 1 }, 1);
    commit.insert("$db", "admin");
    assert!(waits(commit));
}

/// Manual: "shutdown", "Command Fields".
#[test]
fn shutdown_checks_the_types_of_its_arguments() {
    let server = server();
    server.fails(
        doc! { "shutdown": 1, "force": "yes" },
        14,
        "BSON field 'shutdown.force' is the wrong type 'string', expected types '[bool, long, int, decimal, double']",
    );
    server.fails(
        doc! { "shutdown": 1, "timeoutSecs": "10" },
        14,
        "BSON field 'shutdown.timeoutSecs' is the wrong type 'string', expected types '[long, int, decimal, double']",
    );
    assert!(!server.service.shutdown.is_requested());
    assert_eq!(
        server.run(doc! { "shutdown": 1, "force": true, "timeoutSecs": 1 }),
        doc! { "ok": 1.0 }
    );
    assert!(server.service.shutdown.is_requested());
}

/// The declarations, `listCommands`, and the strict check of the stable API agree on what belongs
/// to it.
#[test]
fn lists_and_checks_of_the_stable_api_follow_the_declarations() {
    let server = server();
    let (listed, _) =
        server.full(&doc! { "listCommands": 1, "$db": "admin" }, false, Repeat::default());
    let listed = listed.get_document("commands").unwrap();
    let mut unstable = 0;
    for command in registry::commands().iter().filter(|it| matches!(it.handler, Handler::Run(_))) {
        let row = &command.row;
        if row.flags.contains(RowFlags::TEST_ONLY) {
            continue;
        }
        let versions = listed.get_document(row.name).unwrap().get_array("apiVersions").unwrap();
        let is_stable = row.flags.contains(RowFlags::STABLE);
        assert_eq!(!versions.is_empty(), is_stable, "{}", row.name);
        for argument in row.arguments {
            assert!(is_stable || argument.is_stable, "{}: all are unstable", row.name);
            if row.name == "shutdown" || row.flags.contains(RowFlags::BEFORE_AUTH) {
                continue;
            }
            let command = doc! { row.name: 1, argument.name: Bson::Null, "apiVersion": "1", "apiStrict": true, "$db": "admin" };
            let (reply, _) = server.full(&command, false, Repeat::default());
            let is_refused = reply.get_i32("code").ok() == Some(ErrorCode::APIStrictError.0);
            assert_eq!(is_refused, !is_stable || !argument.is_stable, "{}: {reply}", row.name);
            unstable += i32::from(!argument.is_stable);
        }
    }
    assert!(unstable > 20, "{unstable}");
}

/// Changes of a cluster parameter at the same time leave one value, in memory and stored.
#[test]
fn a_cluster_parameter_has_one_value_after_changes_at_the_same_time() {
    let server = server();
    std::thread::scope(|scope| {
        for thread in 0..4 {
            let server = &server;
            scope.spawn(move || {
                for n in 0..50 {
                    let value = doc! { "readOperations": thread * 1000 + n + 1 };
                    server.run(doc! { "setClusterParameter": { "defaultMaxTimeMS": value } });
                }
            });
        }
    });
    let shown = server.run(doc! { "getClusterParameter": "defaultMaxTimeMS" });
    let shown = shown.get_array("clusterParameters").unwrap()[0].as_document().unwrap().clone();
    let find = doc! { "find": "clusterParameters", "$db": "config" };
    let stored = server.full(&find, false, Repeat::default()).0;
    let stored = stored.get_document("cursor").unwrap().get_array("firstBatch").unwrap();
    assert_eq!(stored[0].as_document().unwrap(), &shown);
}

#[test]
fn a_batch_of_a_change_stream_is_short_until_there_is_a_change() {
    let server = server();
    let change = |n: i32| {
        let write = doc! { "insert": "c", "documents": [{ "_id": n }], "$db": "test" };
        assert_eq!(server.run(write).get_i32("n").unwrap(), 1);
    };
    change(0);
    let watch = doc! {
        "aggregate": "c", "pipeline": [{ "$changeStream": {} }], "cursor": {}, "$db": "test",
    };
    let id = server.run(watch).get_document("cursor").unwrap().get_i64("id").unwrap();
    let more = doc! { "getMore": id, "collection": "c", "maxTimeMS": 1, "$db": "test" };
    let more = DocBuf::from_bson(&more);
    let mut incoming = Incoming::new(more.as_doc());
    incoming.repeat =
        Repeat { waited: true, waited_for: Duration::from_secs(1), ..Repeat::default() };
    let batch = || {
        let reply = server.send(&incoming).0;
        let cursor = reply.get_document("cursor").unwrap();
        cursor.get_array("nextBatch").unwrap().len()
    };
    let is_long = || incoming.starts_long(&server.service);
    // It may have to read a part of the log.
    assert!(is_long());
    assert_eq!(batch(), 0);
    assert!(!is_long());
    change(1);
    assert!(is_long());
    assert_eq!(batch(), 1);
    // Another change may have followed.
    assert!(is_long());
    assert_eq!(batch(), 0);
    assert!(!is_long());
    let unknown = DocBuf::from_bson(&doc! { "getMore": 1_i64, "collection": "c", "$db": "test" });
    assert!(!Incoming::new(unknown.as_doc()).starts_long(&server.service));
}
