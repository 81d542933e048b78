//! Configuration files of MongoDB's packages start the real binary, in the foreground and in the
//! background, and its keys are used.

use std::fs;
use std::path::Path;
use std::process::Command;

use crate::common::{Connection, Server, is_healthy};
use mayfly_base::testing::wait_until;
use mayfly_value::RawValue;
use mayfly_value::bson::{Document, doc};
use rustix::process::{Pid, Signal, kill_process, test_kill_process};

/// The keys of the file in the packages for Debian. Manual, "Configuration File Options".
const DEBIAN: &str = "\
storage:
  dbPath: /var/lib/mongodb
systemLog:
  destination: file
  logAppend: true
  path: /var/log/mongodb/mongod.log
net:
  port: 27017
  bindIp: 127.0.0.1
processManagement:
  timeZoneInfo: /usr/share/zoneinfo
#security:
operationProfiling:
replication:
sharding:
";

fn found(client: &mut Connection, command: &Document) -> Document {
    let reply = client.ok(command);
    Document::from_reader(reply.as_bytes()).unwrap()
}

#[test]
fn the_file_of_the_debian_package_starts_the_server() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("mongod.conf");
    fs::write(&file, DEBIAN).unwrap();
    // The flags replace folders that a test must not write to.
    let log = folder.path().join("mongod.log");
    let options = ["--config", file.to_str().unwrap()];
    let server = Server::start_logging(&folder.path().join("data"), &log, &options);
    let text = fs::read_to_string(&log).unwrap();
    let ignored: Vec<&str> = text.lines().filter(|line| line.contains(" is ignored: ")).collect();
    assert_eq!(ignored.len(), 1, "{text}");
    let line = "mongod.conf:11: processManagement.timeZoneInfo is ignored: the time zone database";
    assert!(ignored[0].contains(line), "{text}");
    // The log states where the data is.
    let data = fs::canonicalize(folder.path().join("data")).unwrap();
    let ready = format!("data in {}, started in", data.display());
    assert!(text.lines().any(|line| line.contains("\"id\":23016") && line.contains(&ready)));
    server.connect().ok(&doc! { "ping": 1, "$db": "admin" });
}

#[test]
fn further_keys_are_used_or_ignored_with_a_line_each() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("mongod.conf");
    let text = "\
storage:
  engine: wiredTiger
  journal:
    enabled: true
    commitIntervalMs: 50
  directoryPerDB: false
  wiredTiger:
    engineConfig:
      cacheSizeGB: 0.25
      journalCompressor: snappy
    collectionConfig:
      blockCompressor: zstd
systemLog:
  component:
    replication:
      heartbeats:
        verbosity: 1
net:
  unixDomainSocket:
    enabled: true
  compression:
    compressors: snappy,zstd
operationProfiling:
  mode: all
  slowOpThresholdMs: 250
  slowOpSampleRate: 0.5
security:
  keyFile: /etc/mongod.key
replication:
  replSetName: rs0
";
    fs::write(&file, text).unwrap();
    let log = folder.path().join("mongod.log");
    let options = ["--config", file.to_str().unwrap(), "--cacheSizeGB", "0.1"];
    let server = Server::start_logging(&folder.path().join("data"), &log, &options);
    let lines = fs::read_to_string(&log).unwrap();
    for key in [
        "2: storage.engine",
        "4: storage.journal.enabled",
        "5: storage.journal.commitIntervalMs",
        "6: storage.directoryPerDB",
        "10: storage.wiredTiger.engineConfig.journalCompressor",
        "12: storage.wiredTiger.collectionConfig.blockCompressor",
        "17: systemLog.component.replication.heartbeats.verbosity",
        "20: net.unixDomainSocket.enabled",
        "22: net.compression.compressors",
        "28: security.keyFile",
    ] {
        let line = format!("mongod.conf:{key} is ignored: ");
        assert_eq!(lines.matches(&line).count(), 1, "{key} in {lines}");
    }
    assert_eq!(lines.matches(" is ignored: ").count(), 10, "{lines}");
    // A key for members of a set implies logins, as in the reference.
    let mut client = server.connect();
    let refused = client.run(&doc! { "find": "c", "$db": "test" }).unwrap();
    assert_eq!(refused.as_doc().get("code"), Some(RawValue::Int32(13)));
    // The first user may be created from this machine.
    client.ok(&doc! { "createUser": "u", "pwd": "p", "roles": ["root"], "$db": "admin" });
}

#[test]
fn the_profiler_begins_as_configured() {
    let folder = tempfile::tempdir().unwrap();
    let options = ["--profile", "2", "--slowms", "250", "--slowOpSampleRate", "0.5"];
    let server = Server::start_with(folder.path(), &options);
    let mut client = server.connect();
    let asked = found(&mut client, &doc! { "profile": -1, "$db": "test" });
    assert_eq!(asked.get_i32("was").ok(), Some(2));
    assert_eq!(asked.get_i32("slowms").ok(), Some(250));
    assert_eq!(asked.get_f64("sampleRate").ok(), Some(0.5));
    // A read from a missing database does not create it.
    client.ok(&doc! { "find": "c", "$db": "nowhere" });
    client.ok(&doc! { "insert": "c", "documents": [{ "_id": 1 }], "$db": "test" });
    client.ok(&doc! { "find": "c", "$db": "test" });
    let recorded = doc! { "count": "system.profile", "query": { "ns": "test.c" }, "$db": "test" };
    assert_eq!(found(&mut client, &recorded).get_i32("n").ok(), Some(2));
    let names = found(&mut client, &doc! { "listDatabases": 1, "nameOnly": true, "$db": "admin" });
    assert!(!names.to_string().contains("nowhere"), "{names}");
    // The command `profile` overrides the configuration for its database.
    client.ok(&doc! { "profile": 0, "$db": "test" });
    client.ok(&doc! { "find": "c", "$db": "test" });
    assert_eq!(
        found(&mut client, &doc! { "profile": -1, "$db": "test" }).get_i32("was").ok(),
        Some(0)
    );
    assert_eq!(
        found(&mut client, &doc! { "profile": -1, "$db": "other" }).get_i32("was").ok(),
        Some(2)
    );
}

/// Waits until a process has ended.
fn wait_for_end(process: Pid) {
    wait_until("the process ends", || test_kill_process(process).is_err());
}

#[test]
fn the_server_runs_in_the_background() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    let (log, pid_file, data) = (path("mongod.log"), path("mongod.pid"), path("data"));
    let text = format!(
        "processManagement:\n  fork: true\n  pidFilePath: {}\nsystemLog:\n  destination: file\n  path: {}\n\
         storage:\n  dbPath: {}\nnet:\n  port: 0\n",
        pid_file.display(),
        log.display(),
        data.display()
    );
    let file = path("mongod.conf");
    fs::write(&file, text).unwrap();
    let start = |more: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_mayflydb"));
        command.arg("--config").arg(&file).args(more).output().unwrap()
    };
    let started = start(&[]);
    assert!(started.status.success(), "{started:?}");
    let number = fs::read_to_string(&pid_file).unwrap();
    let process = Pid::from_raw(number.trim().parse().unwrap()).unwrap();
    let said = String::from_utf8(started.stdout).unwrap();
    assert_eq!(said, format!("mayflydb runs in the background, process {}\n", number.trim()));
    // The first process ends only when the server is ready.
    let healthy = Command::new(env!("CARGO_BIN_EXE_mayflydb"))
        .args(["--healthcheck", "--dbpath"])
        .arg(&data)
        .output()
        .unwrap();
    assert!(healthy.status.success(), "{healthy:?}");
    // A second server reports why it does not start, with the exit code of the failure.
    let second = start(&["--pidfilepath", path("second.pid").to_str().unwrap()]);
    assert_eq!(second.status.code(), Some(100), "{second:?}");
    let sentence = String::from_utf8(second.stderr).unwrap();
    assert!(sentence.contains("has it open") && sentence.lines().count() == 1, "{sentence}");
    assert!(!path("second.pid").exists());
    kill_process(process, Signal::TERM).unwrap();
    wait_for_end(process);
    assert!(!pid_file.exists());
    assert!(fs::read_to_string(&log).unwrap().contains("\"msg\":\"stopped\""));
}

#[test]
fn a_process_number_that_cannot_be_written() {
    let folder = tempfile::tempdir().unwrap();
    let output = Command::new(env!("CARGO_BIN_EXE_mayflydb"))
        .args(["--port", "0", "--pidfilepath", "/no/such/folder/a.pid", "--dbpath"])
        .arg(folder.path().join("data"))
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    assert!(String::from_utf8(output.stderr).unwrap().contains("--pidfilepath"));
    assert!(!Path::new(&folder.path().join("data")).exists());
}

#[test]
fn the_health_check_needs_no_flags() {
    let folder = tempfile::tempdir().unwrap();
    let mut server = Server::start(folder.path());
    assert!(is_healthy(folder.path(), &[]));
    // A port that is named has precedence over the file.
    let port = server.port.to_string();
    assert!(is_healthy(folder.path(), &["--port", &port]));
    let other = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let other_port = other.local_addr().unwrap().port().to_string();
    drop(other);
    assert!(!is_healthy(folder.path(), &["--port", &other_port]));
    server.child.kill().unwrap();
    server.child.wait().unwrap();
    // The file of a server that was killed is not valid.
    assert!(!is_healthy(folder.path(), &[]));
    let mut server = Server::start(folder.path());
    assert!(is_healthy(folder.path(), &[]));
    let _ = server.connect().run(&doc! { "shutdown": 1, "$db": "admin" });
    server.child.wait().unwrap();
    assert!(!folder.path().join("running.json").exists());
}
