//! Metrics of a server with a data folder: the disk, the write-ahead log, sizes before a flush.

use crate::common::{Connection, Server};
use mayfly_service::observe::{Figure, Unit, figures};
use mayfly_value::bson::{Bson, Document, doc};

fn found(client: &mut Connection, command: &Document) -> Document {
    let reply = client.ok(command);
    Document::from_reader(reply.as_bytes()).unwrap()
}

fn size_of(client: &mut Connection, db: &str) -> i64 {
    let databases = found(client, &doc! { "listDatabases": 1, "$db": "admin" });
    let databases = databases.get_array("databases").unwrap();
    let mut databases = databases.iter().map(|database| database.as_document().unwrap());
    databases.find(|it| it.get_str("name").ok() == Some(db)).unwrap().get_i64("sizeOnDisk").unwrap()
}

#[test]
fn sizes_are_there_from_the_first_write() {
    // The folder is the default, `./data`.
    let folder = tempfile::tempdir().unwrap();
    let mut command = std::process::Command::new("sh");
    let enter = format!("cd '{}' && exec \"$@\"", folder.path().display());
    command.args(["-c", &enter, "sh", env!("CARGO_BIN_EXE_mayflydb")]);
    let server = Server::start_in_default_folder(command, &[]);
    let mut client = server.connect();
    let documents: Vec<_> = (0..100).map(|id| doc! { "_id": id, "t": "x".repeat(100) }).collect();
    client.ok(&doc! { "insert": "c", "documents": documents, "$db": "test" });
    assert!(size_of(&mut client, "test") > 10_000);
    assert!(size_of(&mut client, "local") > 0);
    let stats = found(&mut client, &doc! { "dbStats": 1, "$db": "test" });
    let disk = |name: &str| stats.get_f64(name).unwrap();
    assert!(disk("fsUsedSize") > 0.0 && disk("fsTotalSize") >= disk("fsUsedSize"), "{stats}");
    let stats = found(&mut client, &doc! { "dbStats": 1, "$db": "local" });
    assert!(stats.get_i64("objects").unwrap() > 0 && stats.get_f64("storageSize").unwrap() > 0.0);
    let status = found(&mut client, &doc! { "serverStatus": 1, "$db": "admin" });
    let engine = status.get_document("storageEngine").unwrap();
    assert!(engine.get_i64("writeAheadLogBytes").unwrap() > 0, "{engine}");
    // Deleted documents that the log references are kept for change streams.
    client.ok(&doc! { "delete": "c", "deletes": [{ "q": {}, "limit": 0 }], "$db": "test" });
    client.ok(&doc! { "fsync": 1, "$db": "admin" });
    client.ok(&doc! { "compact": "c", "$db": "test" });
    let status = found(&mut client, &doc! { "serverStatus": 1, "$db": "admin" });
    let engine = status.get_document("storageEngine").unwrap();
    assert!(engine.get_i64("keptVersionBytes").is_ok(), "{engine}");
}

/// A line for each field: its place and its type.
fn skeleton(document: &Document, place: &str, out: &mut String) {
    for (name, value) in document {
        let place = if place.is_empty() { name.clone() } else { format!("{place}.{name}") };
        match value {
            Bson::Document(inner) => {
                out.push_str(&format!("{place}: object\n"));
                skeleton(inner, &place, out);
            }
            other => out.push_str(&format!("{place}: {:?}\n", other.element_type())),
        }
    }
}

/// A server of which `serverStatus` has every section, after each kind of operation.
fn status_of_a_busy_server(folder: &std::path::Path) -> Document {
    let server = Server::start_with(folder, &["--replSet", "rs"]);
    let mut client = server.connect();
    let concern = doc! { "w": 1 };
    client.ok(&doc! { "insert": "c", "documents": [{ "_id": 1 }], "writeConcern": concern, "$db": "test" });
    client.ok(&doc! { "find": "c", "$db": "test" });
    found(&mut client, &doc! { "serverStatus": 1, "$db": "admin" })
}

#[test]
fn the_fields_of_server_status_keep_their_places_and_types() {
    let folder = tempfile::tempdir().unwrap();
    let mut shown = String::new();
    skeleton(&status_of_a_busy_server(folder.path()), "", &mut shown);
    assert!(shown == include_str!("server_status.txt"), "{shown}");
}

/// Numbers of `serverStatus` that are no metrics, with the reason.
const NO_FIGURES: &[(&str, &str)] = &[
    ("pid", "a name of the process"),
    ("repl", "the state of the member: versions and times"),
    ("mem.bits", "a property of the build"),
    ("ok", "part of every reply"),
    ("$clusterTime", "part of every reply"),
];

/// Calls `see` with the steps to each number.
fn each_number<'d>(
    document: &'d Document,
    steps: &mut Vec<&'d str>,
    see: &mut impl FnMut(&[&'d str]),
) {
    for (name, value) in document {
        steps.push(name);
        match value {
            Bson::Document(inner) => each_number(inner, steps, see),
            Bson::Int32(_) | Bson::Int64(_) | Bson::Double(_) | Bson::Decimal128(_) => see(steps),
            _ => {}
        }
        steps.pop();
    }
}

#[test]
fn each_number_of_server_status_has_a_row() {
    let folder = tempfile::tempdir().unwrap();
    let status = status_of_a_busy_server(folder.path());
    let mut unused: Vec<&str> = NO_FIGURES.iter().map(|(place, _)| *place).collect();
    let mut seen = std::collections::BTreeSet::new();
    each_number(&status, &mut Vec::new(), &mut |steps| {
        let place = steps.join(".");
        let rows = figures().filter(|row| row.is_at(steps.iter().copied())).map(|row| row.place);
        // A field may have its own row in addition to one with labels.
        let rows: Vec<&str> = rows.collect();
        seen.extend(rows.iter().copied());
        let listed = NO_FIGURES.iter().find(|(listed, _)| {
            place.strip_prefix(listed).is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
        });
        unused.retain(|place| listed.is_none_or(|(listed, _)| listed != place));
        assert_eq!(
            rows.is_empty(),
            listed.is_some(),
            "'{place}' has no row, or a row and a reason"
        );
    });
    assert_eq!(unused, [""; 0], "no longer there");
    let flags = |row: &&Figure| row.unit == Unit::Flag;
    // Those of a store in PostgreSQL are not shown here: test_standby.py.
    let remote = |row: &&Figure| row.place.starts_with("storageEngine.standbys.");
    let shown = figures().filter(|row| !flags(row) && !remote(row) && row.is_in_server_status());
    let missing = shown.filter(|row| !seen.contains(row.place));
    let missing: Vec<&str> = missing.map(|row| row.place).collect();
    assert_eq!(missing, [""; 0], "rows that serverStatus does not show");
}
