//! Starts of the real binary that must fail: each ends with the exit code of the failure and one
//! sentence with the action, the cause, and what the operator can do. No partial state is left.

use std::collections::BTreeMap;
use std::fs;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use crate::common::Server;
use mayfly_value::bson::doc;
use tempfile::TempDir;

/// A start that has not failed after this time has worked.
const PATIENCE: Duration = Duration::from_secs(30);

/// The result of a failed start.
struct Ended {
    code: i32,
    sentence: String,
}

impl Ended {
    /// Checks the exit code, and that the three parts of the sentence contain these texts.
    #[track_caller]
    fn says(&self, code: i32, tried: &str, wrong: &str, advice: &str) {
        assert_eq!(self.code, code, "{}", self.sentence);
        let rest = self.sentence.strip_prefix("mayflydb: ").expect(&self.sentence);
        let (front, to_do) = rest.split_once("; ").expect(&self.sentence);
        let (was_tried, went_wrong) = front.split_once(": ").expect(&self.sentence);
        for (part, text) in [(was_tried, tried), (went_wrong, wrong), (to_do, advice)] {
            assert!(part.contains(text), "'{text}' is not in '{part}' of: {}", self.sentence);
        }
    }
}

/// Starts the binary and waits for its end.
fn start(arguments: &[&str], environment: &[(&str, &str)]) -> Ended {
    let mut child = Command::new(env!("CARGO_BIN_EXE_mayflydb"))
        .args(arguments)
        .envs(environment.iter().copied())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let begun = Instant::now();
    while child.try_wait().unwrap().is_none() {
        if begun.elapsed() > PATIENCE {
            child.kill().unwrap();
            child.wait().unwrap();
            panic!("a server runs that should not: {arguments:?}");
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    let output = child.wait_with_output().unwrap();
    let text = String::from_utf8(output.stderr).unwrap();
    assert_eq!(text.lines().count(), 1, "one line: {text}");
    Ended { code: output.status.code().unwrap(), sentence: text.trim_end().to_owned() }
}

/// Starts it with a folder, on a free port.
fn start_over(folder: &Path, more: &[&str]) -> Ended {
    start(&[&["--port", "0", "--dbpath", folder.to_str().unwrap()], more].concat(), &[])
}

/// A folder that does not exist yet, in a temporary one.
fn new_folder() -> (TempDir, PathBuf) {
    let above = tempfile::tempdir().unwrap();
    let folder = above.path().join("data");
    (above, folder)
}

/// All files of a folder.
fn contents(folder: &Path) -> BTreeMap<String, Vec<u8>> {
    let entries = fs::read_dir(folder).unwrap().map(Result::unwrap);
    let file = |entry: fs::DirEntry| {
        let bytes = fs::read(entry.path()).unwrap_or_default();
        (entry.file_name().into_string().unwrap(), bytes)
    };
    entries.map(file).collect()
}

/// A folder with some data, closed cleanly.
fn used_folder() -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    let mut server = Server::start(folder.path());
    let mut client = server.connect();
    client.ok(&doc! { "insert": "c", "documents": [{ "_id": 1 }], "$db": "test" });
    let _ = client.run(&doc! { "shutdown": 1, "$db": "admin" });
    assert!(server.child.wait().unwrap().success());
    folder
}

/// The one file of a folder whose name begins like this.
fn file_of(folder: &Path, front: &str) -> PathBuf {
    let mut entries = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let named = |path: &PathBuf| path.file_name().unwrap().to_str().unwrap().starts_with(front);
    entries.find(named).unwrap()
}

#[test]
fn mistakes_on_the_command_line() {
    let (_above, folder) = new_folder();
    let unknown = start_over(&folder, &["--prto", "1"]);
    unknown.says(2, "command line", "unknown flag '--prto' (did you mean '--port'?)", "--help");
    let unknown = start_over(&folder, &["--shardsvr"]);
    unknown.says(2, "command line", "unknown flag '--shardsvr'", "--help");
    let missing = start(&["--dbpath"], &[]);
    missing.says(2, "command line", "flag '--dbpath <DBPATH>' needs a value", "--help");
    let wrong = start(&["--dbpath", folder.to_str().unwrap(), "--port", "70000"], &[]);
    wrong.says(2, "configuration", "flag --port: net.port: 70000", "correct the flag");
    let parameter = start_over(&folder, &["--setParameter", "ttlMonitorSleepSec=1"]);
    parameter.says(2, "configuration", "did you mean 'ttlMonitorSleepSecs'?", "correct the flag");
    let value = start_over(&folder, &["--setParameter", "ttlMonitorSleepSecs=soon"]);
    value.says(2, "configuration", "ttlMonitorSleepSecs: soon", "correct the flag");
    let nowhere = start_over(&folder, &["--bind_ip", ""]);
    nowhere.says(2, "cannot listen", "no address is named", "--bind_ip");
    assert!(!folder.exists());
}

#[test]
fn mistakes_in_the_configuration() {
    let (above, folder) = new_folder();
    let file = above.path().join("c.yaml");
    let name = file.to_str().unwrap();
    let absent = start_over(&folder, &["--config", name]);
    absent.says(2, name, "No such file", "--config");
    for (text, wrong) in [
        ("net:\n  prot: 1\n", "c.yaml:2: unknown key 'net.prot' (did you mean 'net.port'?)"),
        ("storage:\n  engine: mmapv1\n", "c.yaml:2: storage.engine: 'mmapv1' is not one"),
        ("net: [1\n", "c.yaml: "),
    ] {
        fs::write(&file, text).unwrap();
        let ended = start_over(&folder, &["--config", name]);
        ended.says(2, "cannot use the configuration", wrong, "correct the file");
    }
    let text = "net:\n  prot: 1\n  port: far\nsecurity:\n  ldap: {}\nsetParameter:\n  noSuch: 1\n  logLevel: 0\n";
    fs::write(&file, text).unwrap();
    let several = start_over(&folder, &["--config", name]);
    for wrong in [
        "c.yaml:2: unknown key 'net.prot'",
        "c.yaml:3: net.port: 'far' is not a whole number",
        "c.yaml:5: unknown key 'security.ldap'",
        "c.yaml:7: unknown server parameter 'noSuch'",
    ] {
        several.says(2, "cannot use the configuration", wrong, "correct the file");
    }
    for (text, wrong) in [
        ("systemLog:\n  destination: file\n", "systemLog.path is not set"),
        ("systemLog:\n  destination: syslog\n  path: a.log\n", "systemLog.destination is syslog"),
        ("systemLog:\n  logAppend: false\n  logRotate: reopen\n", "systemLog.logAppend is false"),
        ("processManagement:\n  fork: true\n", "set systemLog.path"),
        ("operationProfiling:\n  filter: '{ a: '\n", "operationProfiling.filter: "),
    ] {
        fs::write(&file, text).unwrap();
        let ended = start_over(&folder, &["--config", name]);
        ended.says(2, "cannot use the configuration", wrong, "correct");
    }
    let dbpath = folder.to_str().unwrap();
    let variable = start(&["--dbpath", dbpath], &[("MAYFLYDB_PROT", "1")]);
    variable.says(2, "configuration", "(did you mean 'MAYFLYDB_PORT'?)", "unset");
    assert!(!folder.exists());
}

#[test]
fn a_folder_of_another_program_stays_as_it_is() {
    for (names, wrong) in [
        (&["WiredTiger", "WiredTiger.wt", "storage.bson"][..], "mongod"),
        (&["PG_VERSION", "base"], "PostgreSQL"),
        (&["notes.txt"], "notes.txt"),
        (&["CURRENT", "MANIFEST-000001", "000003.log"], "not mayflydb's"),
    ] {
        let folder = tempfile::tempdir().unwrap();
        for name in names {
            fs::write(folder.path().join(name), name).unwrap();
        }
        let before = contents(folder.path());
        let ended = start_over(folder.path(), &[]);
        ended.says(62, "cannot open data folder", wrong, "choose another folder with --dbpath");
        assert_eq!(contents(folder.path()), before);
    }
}

#[test]
fn a_folder_of_a_newer_format_stays_as_it_is() {
    let folder = used_folder();
    fs::write(folder.path().join("MAYFLYDB_FORMAT"), "7\n").unwrap();
    let before = contents(folder.path());
    let ended = start_over(folder.path(), &[]);
    ended.says(62, "cannot open data folder", "in format 7, this one reads", "the version that");
    assert_eq!(contents(folder.path()), before);
}

#[test]
fn a_folder_of_an_older_format_stays_as_it_is() {
    let folder = used_folder();
    for format in [1, 2] {
        fs::write(folder.path().join("MAYFLYDB_FORMAT"), format!("{format}\n")).unwrap();
        let before = contents(folder.path());
        let ended = start_over(folder.path(), &[]);
        let wrong = format!("an older version wrote it in format {format}, this one reads 5");
        ended.says(62, "cannot open data folder", &wrong, "start the version that wrote it");
        for part in ["mongodump", "over an empty folder", "mongorestore"] {
            ended.says(62, "", "", part);
        }
        assert_eq!(contents(folder.path()), before);
    }
}

#[test]
fn a_folder_in_use_names_who_uses_it() {
    let folder = tempfile::tempdir().unwrap();
    let server = Server::start(folder.path());
    let id = match cfg!(target_os = "linux") {
        true => format!("process {}, has it open", server.child.id()),
        false => "has it open".to_owned(),
    };
    let names = |folder: &Path| contents(folder).into_keys().collect::<Vec<_>>();
    let before = names(folder.path());
    let ended = start_over(folder.path(), &[]);
    ended.says(100, "cannot open data folder", &id, "stop that process");
    assert_eq!(names(folder.path()), before);
    let mut client = server.connect();
    client.ok(&doc! { "insert": "c", "documents": [{ "_id": 1 }], "$db": "test" });
    drop(server);
    let again = Server::start(folder.path());
    let found = again.connect().all(&doc! { "find": "c", "$db": "test" });
    assert_eq!(found.len(), 1);
}

#[test]
fn a_port_in_use_names_who_uses_it_and_no_folder_is_made() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let (_above, folder) = new_folder();
    let address = listener.local_addr().unwrap();
    let port = address.port().to_string();
    let dbpath = folder.to_str().unwrap();
    let ended = start(&["--port", &port, "--dbpath", dbpath], &[]);
    let id = match cfg!(target_os = "linux") {
        true => format!("process {}, uses this port", std::process::id()),
        false => "another process uses this port".to_owned(),
    };
    ended.says(48, &format!("cannot listen on {address}"), &id, "another port with --port");
    assert!(!folder.exists());
}

#[test]
fn addresses_that_cannot_be_listened_on() {
    let (_above, folder) = new_folder();
    // An address that is reserved for documentation.
    let foreign = start_over(&folder, &["--bind_ip", "192.0.2.1"]);
    foreign.says(48, "cannot listen on 192.0.2.1", "", "--bind_ip");
    let unknown = start_over(&folder, &["--bind_ip", "no such host"]);
    unknown.says(48, "cannot resolve bind address 'no such host'", "", "--bind_ip");
    assert!(!folder.exists());
}

#[test]
fn a_place_that_cannot_be_a_folder() {
    let above = tempfile::tempdir().unwrap();
    let file = above.path().join("file");
    fs::write(&file, "text").unwrap();
    let below = file.join("data");
    for folder in [&file, &below] {
        let ended = start_over(folder, &[]);
        ended.says(100, folder.to_str().unwrap(), "", "a file has this path");
    }
    let (_above, folder) = new_folder();
    let archive = start_over(&folder, &["--archiveFolder", below.to_str().unwrap()]);
    archive.says(100, "folder for archives", "", "--archiveFolder");
    assert!(!folder.exists());
    assert_eq!(fs::read_to_string(&file).unwrap(), "text");
}

#[test]
fn a_log_that_cannot_be_written() {
    let (above, folder) = new_folder();
    let nowhere = above.path().join("logs/mayflydb.log");
    let ended = start_over(&folder, &["--logpath", nowhere.to_str().unwrap()]);
    ended.says(1, nowhere.to_str().unwrap(), "No such file", "--logpath");
    if Path::new("/dev/full").exists() {
        let ended = start_over(&folder, &["--logpath", "/dev/full"]);
        ended.says(1, "log file /dev/full", "No space left", "--logpath");
    }
    assert!(!folder.exists());
}

#[test]
fn the_log_file_has_the_reason_too() {
    let above = tempfile::tempdir().unwrap();
    let (folder, log) = (above.path().join("data"), above.path().join("mayflydb.log"));
    fs::create_dir(&folder).unwrap();
    fs::write(folder.join("notes.txt"), "").unwrap();
    let ended = start_over(&folder, &["--logpath", log.to_str().unwrap()]);
    ended.says(62, "cannot open data folder", "notes.txt", "--dbpath");
    let reason = ended.sentence.strip_prefix("mayflydb: ").unwrap();
    let log = fs::read_to_string(&log).unwrap();
    let last = log.lines().last().unwrap();
    assert!(last.contains(reason) && last.contains("\"s\":\"E\""), "{log}");
}

#[test]
fn damage_names_the_file() {
    for front in ["CURRENT", "MANIFEST-", "MAYFLYDB_FORMAT"] {
        let folder = used_folder();
        let file = file_of(folder.path(), front);
        fs::write(&file, "damaged").unwrap();
        let ended = start_over(folder.path(), &[]);
        ended.says(14, "cannot open data folder", front, "from a backup");
    }
    // Every table file, because the catalog is in one of them.
    let folder = used_folder();
    let tables: Vec<PathBuf> = fs::read_dir(folder.path())
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.extension().is_some_and(|extension| extension == "sst"))
        .collect();
    assert!(!tables.is_empty());
    for table in &tables {
        let mut bytes = fs::read(table).unwrap();
        bytes.iter_mut().for_each(|byte| *byte ^= 0x55);
        fs::write(table, bytes).unwrap();
    }
    let ended = start_over(folder.path(), &[]);
    ended.says(14, "cannot open data folder", ".sst", "from a backup");
}

#[test]
fn damage_in_the_log_names_the_file() {
    let folder = tempfile::tempdir().unwrap();
    let mut server = Server::start(folder.path());
    let mut client = server.connect();
    for id in 0..100 {
        let document = doc! { "_id": id, "text": "x".repeat(500) };
        client.ok(&doc! { "insert": "c", "documents": [document], "$db": "test" });
    }
    server.child.kill().unwrap();
    server.child.wait().unwrap();
    let log = fs::read_dir(folder.path())
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .find(|path| path.extension().is_some_and(|extension| extension == "log"))
        .unwrap();
    let mut bytes = fs::read(&log).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 0xFF;
    fs::write(&log, bytes).unwrap();
    let ended = start_over(folder.path(), &[]);
    let name = log.file_name().unwrap().to_str().unwrap();
    ended.says(14, "cannot open data folder", name, "from a backup");
}

/// A small file system, unmounted when dropped.
struct Disk(TempDir);

impl Disk {
    /// `None` if this process may not mount file systems.
    fn new() -> Option<Disk> {
        let folder = tempfile::tempdir().unwrap();
        let mounted = Command::new("mount")
            .args(["-t", "tmpfs", "-o", "size=256k", "tmpfs"])
            .arg(folder.path())
            .stderr(Stdio::null())
            .status();
        mounted.is_ok_and(|status| status.success()).then_some(Disk(folder))
    }

    fn grow(&self) {
        let mut remount = Command::new("mount");
        remount.args(["-o", "remount,size=256m"]).arg(self.0.path());
        assert!(remount.status().unwrap().success());
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg(self.0.path()).status();
    }
}

#[test]
fn a_full_disk() {
    let Some(disk) = Disk::new() else {
        eprintln!("SKIPPED: a full disk needs the right to mount a small one");
        return;
    };
    let folder = disk.0.path().join("data");
    let filler = disk.0.path().join("filler");
    // The last write is truncated at the end of the disk.
    let _ = fs::write(&filler, vec![0; 1 << 20]);
    let ended = start_over(&folder, &[]);
    ended.says(100, "cannot open data folder", "No space left on device", "free space on its disk");
    // The files of the first attempt are no obstacle.
    disk.grow();
    drop(Server::start(&folder));
}

#[test]
fn the_health_check_fails_without_a_server() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port().to_string();
    drop(listener);
    let ended = start(&["--healthcheck", "--port", &port], &[]);
    ended.says(1, "cannot ask the server on 127.0.0.1", "refused", "--port");
}

#[test]
fn help_and_version_are_no_failures() {
    for flag in ["--help", "--version", "--print-config"] {
        let output = Command::new(env!("CARGO_BIN_EXE_mayflydb")).arg(flag).output().unwrap();
        assert!(output.status.success() && output.stderr.is_empty(), "{flag}");
        assert!(!output.stdout.is_empty());
        if flag == "--help" {
            let text = String::from_utf8(output.stdout).unwrap();
            let first =
                "A server that speaks MongoDB's wire protocol and expires documents on time";
            assert_eq!(text.lines().next(), Some(first));
        }
    }
}

#[test]
fn an_audit_log_that_cannot_be_written() {
    let (_above, folder) = new_folder();
    let file = |path| ["--auditDestination", "file", "--auditPath", path];
    let tried = "cannot write the audit log";
    start_over(&folder, &file("/no/folder/a")).says(1, tried, "/no/folder/a", "--auditPath");
    start_over(&folder, &file("/dev/full")).says(1, tried, "its first event", "--auditPath");
    let tried = "cannot use the configuration";
    let without = start_over(&folder, &["--auditDestination", "file"]);
    without.says(2, tried, "auditLog.path is not set", "auditLog");
    // A later start succeeds.
    drop(Server::start(&folder));
}
