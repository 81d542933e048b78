//! Permissions of the files that the real binary writes: other users of the machine read none of
//! them.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::common::Server;
use mayfly_value::bson::doc;

/// Every file and folder in this one, itself included, with its permissions.
fn modes(folder: &Path) -> Vec<(PathBuf, u32)> {
    let mode = |path: &Path| fs::metadata(path).unwrap().mode() & 0o777;
    let mut all = vec![(folder.to_owned(), mode(folder))];
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        match path.is_dir() {
            true => all.extend(modes(&path)),
            false => all.push((path.clone(), mode(&path))),
        }
    }
    all
}

#[track_caller]
fn all_closed(folder: &Path) {
    for (path, mode) in modes(folder) {
        let expected = if path.is_dir() { 0o700 } else { 0o600 };
        assert_eq!(mode, expected, "{} has {mode:o}", path.display());
    }
}

/// Starts a server as a shell with this mask does.
fn start(mask: &str, folder: &Path, options: &[&str]) -> Server {
    let mut shell = Command::new("sh");
    shell.args(["-c", "umask $0; exec \"$@\"", mask, env!("CARGO_BIN_EXE_mayflydb")]);
    Server::start_by(shell, folder, options)
}

/// Creates files of every kind: tables, logs, spill files.
fn use_it(server: &Server) {
    let mut client = server.connect();
    for round in 0..20 {
        let documents: Vec<_> =
            (0..100).map(|at| doc! { "_id": round * 100 + at, "t": "x".repeat(1000) }).collect();
        client.ok(&doc! { "insert": "c", "documents": documents, "$db": "test" });
    }
    client.ok(&doc! { "createIndexes": "c", "$db": "test", "indexes": [{ "key": { "t": 1 }, "name": "t" }] });
    client.ok(&doc! { "fsync": 1, "$db": "admin" });
}

#[test]
fn files_are_for_the_servers_user_only() {
    let above = tempfile::tempdir().unwrap();
    let folder = above.path().join("data");
    let path = |name: &str| folder.join(name).to_str().unwrap().to_owned();
    let archive = path("archive");
    let mut server = start("022", &folder, &["--archiveFolder", &archive]);
    use_it(&server);
    all_closed(&folder);
    let _ = server.connect().run(&doc! { "shutdown": 1, "$db": "admin" });
    server.child.wait().unwrap();
    all_closed(&folder);

    // Files of an older version are restricted, including logs next to the data.
    for (path, _) in modes(&folder) {
        let mode = if path.is_dir() { 0o755 } else { 0o644 };
        fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
    }
    let (log, audit) = (path("mayflydb.log"), path("audit.json"));
    let options = ["--auditDestination", "file", "--auditPath", &audit];
    let mut shell = Command::new("sh");
    shell.args(["-c", "umask 022; exec \"$@\"", "sh", env!("CARGO_BIN_EXE_mayflydb")]);
    let server = Server::start_logging_by(shell, &folder, Path::new(&log), &options);
    server.connect().ok(&doc! { "logRotate": 1, "$db": "admin" });
    use_it(&server);
    assert!(Path::new(&log).exists() && Path::new(&audit).exists());
    all_closed(&folder);
}

#[test]
fn the_system_may_choose_the_permissions() {
    let above = tempfile::tempdir().unwrap();
    let folder = above.path().join("data");
    let server = start("027", &folder, &["--setParameter", "honorSystemUmask=true"]);
    use_it(&server);
    for (path, mode) in modes(&folder) {
        let expected = if path.is_dir() { 0o750 } else { 0o640 };
        // The permissions of the reserve do not follow the umask: it contains no data.
        if !path.ends_with("RESERVE") {
            assert_eq!(mode, expected, "{} has {mode:o}", path.display());
        }
    }
    let mut client = server.connect();
    let reply = client.ok(&doc! { "getParameter": 1, "honorSystemUmask": 1, "$db": "admin" });
    let honors = reply.as_doc().get("honorSystemUmask");
    assert_eq!(honors, Some(mayfly_value::RawValue::Bool(true)));
}
