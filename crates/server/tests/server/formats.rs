//! Data folders that earlier versions wrote: one of each format since 3. They are refused without
//! `--upgrade`, and with it they contain what they did, and the old files are kept.
//!
//! Each folder was left by a server that was killed. It contains documents with indexes and a
//! policy, deletions, replacements and a transaction in the log, a time series, a capped and a
//! clustered collection, a view, a user, and a dropped collection.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use mayfly_base::testing::crate_folder;
use mayfly_kv_rocksdb::{FORMAT, FORMAT_FILE};
use mayfly_value::RawValue;
use mayfly_value::bson::{Document, doc};

use crate::common::{Connection, Server};

/// The format, `dbHash` of the database `shop`, and the number of entries of the log.
const FOLDERS: &[(u32, &str, usize)] =
    &[(3, "6bd872e551d75a66a283e29db68ba46e", 25), (4, "dc16af054ae6a11c6b8fa81a0d1b4d58", 25)];
const OPTIONS: &[&str] = &["--replSet", "rs0", "--setParameter", "ttlMonitorEnabled=false"];

/// Unpacks the folder of a format.
fn unpack(format: u32) -> (tempfile::TempDir, PathBuf) {
    let above = tempfile::tempdir().unwrap();
    let folder = above.path().join("data");
    fs::create_dir(&folder).unwrap();
    let packed = crate_folder().join("tests/server/formats");
    let mut tar = Command::new("tar");
    tar.arg("xzf").arg(packed.join(format!("{format}.tar.gz"))).arg("-C").arg(&folder);
    assert!(tar.status().unwrap().success());
    (above, folder)
}

/// The files of a folder that contain data.
fn files(folder: &Path) -> BTreeMap<String, Vec<u8>> {
    let mut files = BTreeMap::new();
    for entry in fs::read_dir(folder).unwrap().map(Result::unwrap) {
        let name = entry.file_name().into_string().unwrap();
        if entry.file_type().unwrap().is_file() && !["LOCK", "RESERVE"].contains(&&*name) {
            files.insert(name, fs::read(entry.path()).unwrap());
        }
    }
    files
}

fn check_data(client: &mut Connection, hash: &str, entries: usize) {
    let mut ask =
        |command: Document| Document::from_reader(client.ok(&command).as_bytes()).unwrap();
    let reply = ask(doc! { "dbHash": 1, "$db": "shop" });
    assert_eq!(reply.get_str("md5").unwrap(), hash);
    for name in ["carts", "system.buckets.series", "capped", "clustered"] {
        let valid = ask(doc! { "validate": name, "full": true, "$db": "shop" });
        assert!(valid.get_bool("valid").unwrap(), "{valid}");
    }
    let mut found = |name: &str, db: &str| {
        let reply = ask(doc! { "find": name, "batchSize": 1000, "$db": db });
        reply.get_document("cursor").unwrap().get_array("firstBatch").unwrap().len()
    };
    // Starts may add entries.
    assert!(found("oplog.rs", "local") >= entries);
    assert_eq!(found("few", "shop"), 5);
}

fn shut_down(mut server: Server, client: &mut Connection) {
    let _ = client.run(&doc! { "shutdown": 1, "$db": "admin" });
    assert!(server.child.wait().unwrap().success());
}

#[test]
fn folders_of_older_formats_are_converted_when_they_are_to_be() {
    for (format, hash, entries) in FOLDERS {
        let (above, folder) = unpack(*format);
        let before = files(&folder);
        let kept = folder.join(format!("before-format-{FORMAT}"));
        if *format < FORMAT {
            let mut refused = Command::new(env!("CARGO_BIN_EXE_mayflydb"));
            refused.args(["--port", "0", "--dbpath"]).arg(&folder);
            let ended = refused.output().unwrap();
            assert_eq!(ended.status.code(), Some(62), "format {format}");
            let text = String::from_utf8(ended.stderr).unwrap();
            assert!(text.contains("start once with --upgrade"), "{text}");
            assert_eq!(files(&folder), before);
            // What an interrupted upgrade has left is replaced.
            fs::create_dir(folder.join("before-format.new")).unwrap();
            fs::create_dir(&kept).unwrap();
            fs::write(kept.join("old"), "").unwrap();
        }
        let server = Server::start_with(&folder, &[OPTIONS, &["--upgrade"]].concat());
        let mut client = server.connect();
        check_data(&mut client, hash, *entries);
        client.ok(&doc! { "insert": "carts", "documents": [{ "_id": "new" }], "$db": "shop" });
        shut_down(server, &mut client);
        let marker = fs::read_to_string(folder.join(FORMAT_FILE)).unwrap();
        assert_eq!(marker.trim(), FORMAT.to_string());
        if *format < FORMAT {
            assert_eq!(files(&kept), before);
            assert!(!folder.join("before-format.new").exists());
            // The kept folder opens as the folder did.
            let old = above.path().join("old");
            fs::rename(&kept, &old).unwrap();
            let server = Server::start_with(&old, &[OPTIONS, &["--upgrade"]].concat());
            let mut client = server.connect();
            check_data(&mut client, hash, *entries);
            shut_down(server, &mut client);
        }
        // From now on it needs no flag, and the flag does nothing.
        for more in [&[][..], &["--upgrade"]] {
            let server = Server::start_with(&folder, &[OPTIONS, more].concat());
            let mut client = server.connect();
            let count = doc! { "count": "carts", "query": { "_id": "new" }, "$db": "shop" };
            let count = client.ok(&count);
            assert_eq!(count.as_doc().get("n"), Some(RawValue::Int32(1)));
            shut_down(server, &mut client);
        }
        assert!(!kept.exists());
    }
}
