//! Log files of the real binary: rotation by command and by signal, with and without another
//! program that moves files, and what else signals do.

use std::fs;
use std::path::{Path, PathBuf};

use crate::common::{Connection, Server};
use mayfly_base::testing::wait_until;
use mayfly_value::bson::doc;
use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;

/// A server with its log in a file.
struct Logged {
    folder: TempDir,
    server: Server,
}

impl Logged {
    fn start(options: &[&str]) -> Logged {
        let folder = tempfile::tempdir().unwrap();
        let log = folder.path().join("mayflydb.log");
        let server = Server::start_logging(&folder.path().join("data"), &log, options);
        Logged { folder, server }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.server.child), signal).unwrap();
    }

    /// The files that a rotation has renamed.
    fn rotated(&self, of: &str) -> Vec<PathBuf> {
        let entries = fs::read_dir(self.folder.path()).unwrap();
        let paths = entries.map(|entry| entry.unwrap().path());
        let front = format!("{of}.2");
        let named =
            |path: &PathBuf| path.file_name().unwrap().to_str().unwrap().starts_with(&front);
        paths.filter(named).collect()
    }
}

/// A line in the log: the start of a connection.
fn write_a_line(server: &Server) -> Connection {
    let mut client = server.connect();
    client.ok(&doc! { "ping": 1, "$db": "admin" });
    client
}

fn lines(path: &Path) -> usize {
    fs::read_to_string(path).unwrap_or_default().lines().count()
}

#[test]
fn a_log_that_another_program_moved_begins_anew() {
    let logged = Logged::start(&[]);
    let (log, moved) = (logged.path("mayflydb.log"), logged.path("moved"));
    for by in ["command", "signal"] {
        fs::rename(&log, &moved).unwrap();
        let before = lines(&moved);
        match by {
            "command" => {
                let mut client = logged.server.connect();
                client.ok(&doc! { "logRotate": 1, "$db": "admin" });
            }
            _ => logged.signal(Signal::USR1),
        }
        wait_until("a new log", || log.exists());
        let at_most = lines(&moved);
        drop(write_a_line(&logged.server));
        wait_until("lines in the new log", || lines(&log) > 0);
        assert!(at_most <= before + 2, "{by}");
        assert_eq!(lines(&moved), at_most, "{by}: a line in the moved file");
        assert!(logged.rotated("mayflydb.log").is_empty(), "{by}");
        assert!(logged.rotated("moved").is_empty(), "{by}");
    }
}

#[test]
fn the_log_is_renamed_or_only_opened_again() {
    let logged = Logged::start(&[]);
    let log = logged.path("mayflydb.log");
    logged.signal(Signal::USR1);
    wait_until("a renamed log", || logged.rotated("mayflydb.log").len() == 1 && log.exists());

    let audit = logged.path("audit.json");
    let options = ["--logRotate", "reopen", "--auditDestination", "file", "--auditPath"];
    let logged = Logged::start(&[&options[..], &[audit.to_str().unwrap()]].concat());
    let log = logged.path("mayflydb.log");
    let mut client = logged.server.connect();
    client.ok(&doc! { "logRotate": 1, "$db": "admin" });
    assert!(logged.rotated("mayflydb.log").is_empty());
    // As logrotate does: it renames the file, and then sends a signal.
    fs::rename(&log, logged.path("moved")).unwrap();
    fs::rename(&audit, logged.path("moved.json")).unwrap();
    client.ok(&doc! { "logRotate": 1, "$db": "admin" });
    drop(write_a_line(&logged.server));
    wait_until("a new log", || lines(&log) > 0);
    // The event about the rotation.
    assert_eq!(lines(&audit), 1);
}

#[test]
fn a_hangup_opens_the_log_again_and_the_server_goes_on() {
    let mut logged = Logged::start(&[]);
    let (log, moved) = (logged.path("mayflydb.log"), logged.path("moved"));
    logged.signal(Signal::HUP);
    drop(write_a_line(&logged.server));
    fs::rename(&log, &moved).unwrap();
    logged.signal(Signal::HUP);
    wait_until("a new log", || log.exists());
    drop(write_a_line(&logged.server));
    wait_until("lines in the new log", || lines(&log) > 0);
    assert!(logged.rotated("mayflydb.log").is_empty());
    assert!(logged.server.child.try_wait().unwrap().is_none());
}

#[test]
fn the_log_of_the_run_before_is_kept_or_renamed() {
    let folder = tempfile::tempdir().unwrap();
    let (log, file) = (folder.path().join("mayflydb.log"), folder.path().join("c.yaml"));
    fs::write(&file, "systemLog:\n  logAppend: false\n").unwrap();
    for (options, keeps) in
        [(&[][..], true), (&["--logappend"], true), (&["--config", file.to_str().unwrap()], false)]
    {
        fs::write(&log, "before\n").unwrap();
        let data = folder.path().join("data");
        let mut server = Server::start_logging(&data, &log, options);
        let text = fs::read_to_string(&log).unwrap();
        assert_eq!(text.starts_with("before\n"), keeps, "{options:?}: {text}");
        let _ = server.connect().run(&doc! { "shutdown": 1, "$db": "admin" });
        assert!(server.child.wait().unwrap().success());
    }
    let renamed = fs::read_dir(folder.path()).unwrap().map(|entry| entry.unwrap().path());
    let renamed: Vec<_> = renamed
        .filter(|path| path.file_name().unwrap().to_str().unwrap().starts_with("mayflydb.log.2"))
        .collect();
    assert_eq!(renamed.len(), 1);
    assert_eq!(fs::read_to_string(&renamed[0]).unwrap(), "before\n");
}

#[test]
fn a_signal_to_stop_lets_commands_finish() {
    let mut logged = Logged::start(&["--setParameter", "enableTestCommands=1"]);
    let mut client = logged.server.connect();
    client.ok(&doc! { "insert": "c", "documents": [{ "_id": 1 }], "$db": "test" });
    // Longer than the second of the command `shutdown`, and shorter than the time after a signal.
    let sleeping = doc! { "find": "c", "$db": "test", "filter": { "$where":
    "const end = Date.now() + 2000; while (Date.now() < end) {} return true;" } };
    std::thread::scope(|scope| {
        let found = scope.spawn(move || client.all(&sleeping).len());
        wait_until("the command runs", || {
            let mut other = logged.server.connect();
            let running = doc! { "currentOp": 1, "$db": "admin", "ns": "test.c" };
            let reply = other.ok(&running);
            let running = reply.as_doc().get("inprog").and_then(|list| list.as_array());
            running.is_some_and(|list| list.iter().count() > 0)
        });
        logged.signal(Signal::TERM);
        assert_eq!(found.join().unwrap(), 1);
    });
    assert!(logged.server.child.wait().unwrap().success());
}

#[test]
fn a_signal_to_stop_ends_transactions_that_others_wait_for() {
    let mut logged = Logged::start(&[]);
    let mut holder = logged.server.connect();
    holder.ok(&doc! { "insert": "c", "documents": [{ "_id": 1 }], "$db": "test" });
    let update = doc! { "update": "c", "$db": "test", "updates": [
        { "q": { "_id": 1 }, "u": { "$inc": { "a": 1 } } },
    ] };
    let mut held = update.clone();
    held.extend(doc! {
        "lsid": { "id": mayfly_value::bson::Uuid::new() }, "txnNumber": 1_i64, "startTransaction": true,
        "autocommit": false,
    });
    holder.ok(&held);
    let mut waiting = logged.server.connect();
    std::thread::scope(|scope| {
        let updated = scope.spawn(move || waiting.run(&update).unwrap());
        wait_until("the update waits", || {
            let running = doc! { "currentOp": 1, "$db": "admin", "ns": "test.c", "active": true };
            let reply = logged.server.connect().ok(&running);
            let running = reply.as_doc().get("inprog").and_then(|list| list.as_array());
            running.is_some_and(|list| list.iter().count() > 0)
        });
        logged.signal(Signal::TERM);
        let reply = updated.join().unwrap();
        assert_eq!(reply.as_doc().get("n"), Some(mayfly_value::RawValue::Int32(1)), "{reply:?}");
    });
    assert!(logged.server.child.wait().unwrap().success());
}

#[test]
fn a_cut_of_the_write_ahead_log_is_logged_with_what_is_known() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("data");
    let mut server = Server::start(&data);
    let mut client = server.connect();
    client.ok(&doc! { "insert": "c", "documents": [{ "_id": 1 }], "$db": "test" });
    server.child.kill().unwrap();
    server.child.wait().unwrap();
    let entries = fs::read_dir(&data).unwrap().map(|entry| entry.unwrap().path());
    let log = entries.filter(|path| path.extension().is_some_and(|it| it == "log")).max().unwrap();
    let mut bytes = fs::read(&log).unwrap();
    let whole = bytes.len();
    bytes.extend([0xAB; 100]);
    fs::write(&log, bytes).unwrap();
    let path = folder.path().join("mayflydb.log");
    let server = Server::start_logging(&data, &path, &[]);
    let text = fs::read_to_string(&path).unwrap();
    let line = text
        .lines()
        .find(|line| line.contains("the write-ahead log is unreadable from this offset"));
    let line = line.expect(&text);
    assert!(line.contains("\"s\":\"W\"") && line.contains(&format!("\"end\":{whole}")), "{line}");
    let found = server.connect().all(&doc! { "find": "c", "$db": "test" });
    assert_eq!(found.len(), 1);
}
