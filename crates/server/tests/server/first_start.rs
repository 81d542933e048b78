//! The first start of a container: a user from the environment, scripts from a folder, and clients
//! without a login on a server with users.

use std::fs;
use std::io::{Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;

use mayfly_base::testing::crate_folder;
use mayfly_value::bson::doc;

use crate::authorization::{log_in, ok, ok_login, run};
use crate::common::{Server, message};

/// A replacement of the shell that records its arguments.
fn shell(folder: &Path) {
    let program = folder.join("mongosh");
    let text = format!("#!/bin/sh\necho \"$@\" >> {}/called\n", folder.display());
    fs::write(&program, text).unwrap();
    fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
}

fn command(folder: &Path, variables: &[(&str, &str)]) -> Command {
    let path = format!("{}:{}", folder.display(), std::env::var("PATH").unwrap());
    let mut command = Command::new(env!("CARGO_BIN_EXE_mayflydb"));
    command.env("PATH", path).envs(variables.iter().copied());
    command
}

const USER: (&str, &str) = ("MONGO_INITDB_ROOT_USERNAME", "root");
const PASSWORD: (&str, &str) = ("MONGO_INITDB_ROOT_PASSWORD", "hunter2");

#[test]
fn the_first_start_makes_a_user_and_runs_scripts_once() {
    let folder = tempfile::tempdir().unwrap();
    let scripts = folder.path().join("scripts");
    fs::create_dir(&scripts).unwrap();
    shell(folder.path());
    let called = folder.path().join("called");
    let note =
        format!("echo \"shell $MONGO_INITDB_DATABASE ${{mongo[0]}}\" >> {}\n", called.display());
    fs::write(scripts.join("10-first.sh"), note).unwrap();
    fs::write(scripts.join("20-second.js"), "db.c.insertOne({})").unwrap();
    fs::write(scripts.join("README"), "not a script").unwrap();
    let variables = [USER, PASSWORD, ("MONGO_INITDB_DATABASE", "shop")];
    let (data, options) = (folder.path().join("data"), ["--initFolder", scripts.to_str().unwrap()]);
    for _ in 0..2 {
        let server = Server::start_by(command(folder.path(), &variables), &data, &options);
        // A user is enough for authorization to be on.
        let mut client = server.connect();
        let find = doc! { "find": "c", "$db": "shop" };
        assert_eq!(run(&mut client, find.clone()).get_i32("code").ok(), Some(13));
        assert_eq!(log_in(&mut client, "root", "admin", "wrong").get_i32("code").ok(), Some(18));
        ok_login(&mut client, "root", "admin", "hunter2");
        ok(&mut client, find);
        let insert = doc! { "insert": "c", "documents": [{}], "$db": "shop" };
        ok(&mut client, insert);
    }
    let called = fs::read_to_string(&called).unwrap();
    let lines: Vec<&str> = called.lines().collect();
    assert_eq!(lines.len(), 2, "{called}");
    assert_eq!(lines[0], "shell shop mongosh");
    assert!(lines[1].starts_with("--quiet --host 127.0.0.1 --port "), "{called}");
    assert!(lines[1].ends_with(&format!(" shop {}/20-second.js", scripts.display())), "{called}");
    assert!(!data.join("first-start").exists());
}

#[test]
fn a_first_start_that_fails_is_not_taken_for_done() {
    let folder = tempfile::tempdir().unwrap();
    let scripts = folder.path().join("scripts");
    fs::create_dir(&scripts).unwrap();
    fs::write(scripts.join("a.sh"), "exit 3\n").unwrap();
    let data = folder.path().join("data");
    let refused = || {
        let mut command = command(folder.path(), &[USER, PASSWORD]);
        let options = ["--port", "0", "--initFolder", scripts.to_str().unwrap(), "--dbpath"];
        let output = command.args(options).arg(&data).output().unwrap();
        assert_eq!(output.status.code(), Some(1));
        String::from_utf8(output.stderr).unwrap()
    };
    let said = refused();
    assert!(said.contains("a.sh") && said.contains("exit status: 3"), "{said}");
    // The effects of the failed script are unknown.
    fs::write(scripts.join("a.sh"), "exit 0\n").unwrap();
    let said = refused();
    assert!(said.contains("did not finish") && said.contains("empty the data folder"), "{said}");
    fs::remove_dir_all(&data).unwrap();
    let options = ["--initFolder", scripts.to_str().unwrap()];
    let server = Server::start_by(command(folder.path(), &[USER, PASSWORD]), &data, &options);
    ok_login(&mut server.connect(), "root", "admin", "hunter2");
}

#[test]
fn strangers_send_little_and_do_not_stay() {
    let folder = tempfile::tempdir().unwrap();
    let options = ["--storageEngine", "memory", "--maxConns", "8"];
    let server =
        Server::start_by(command(folder.path(), &[USER, PASSWORD]), folder.path(), &options);
    let mut known = server.connect();
    ok_login(&mut known, "root", "admin", "hunter2");
    let large = doc! { "insert": "c", "documents": [{ "s": "x".repeat(100_000) }], "$db": "shop" };
    ok(&mut known, large.clone());
    // The server closes the connection as soon as the length is announced.
    let mut stranger = server.connect().stream;
    stranger.write_all(&message(&large)[..16]).unwrap();
    assert_eq!(stranger.read(&mut [0]).unwrap_or(0), 0);
    // Half of the eight connections are for clients without a login. When there are more, the
    // oldest one is closed; connections with a login stay open.
    let mut strangers: Vec<_> = (0..5).map(|_| server.connect()).collect();
    let hello = doc! { "hello": 1, "$db": "admin" };
    for newest in &mut strangers[1..] {
        ok(newest, hello.clone());
    }
    assert_eq!(strangers[0].stream.read(&mut [0]).unwrap_or(0), 0);
    ok(&mut known, hello.clone());
    // One of them begins a request and does not finish it: it has ten seconds. The others wait
    // between requests, as drivers' monitors do.
    let mut slow = strangers.pop().unwrap().stream;
    slow.write_all(&message(&hello)[..20]).unwrap();
    assert_eq!(slow.read(&mut [0]).unwrap_or(0), 0);
    for patient in &mut strangers[1..] {
        ok(patient, hello.clone());
    }
}

/// A server that runs the scripts of a folder in the built-in shell, and what it printed.
fn built_in(scripts: &Path, folder: &Path) -> (Option<i32>, String, String) {
    let mut command = command(folder, &[USER, PASSWORD]);
    // There is no mongosh.
    command.env("PATH", "/usr/bin:/bin");
    let options = ["--port", "0", "--initFolder", scripts.to_str().unwrap(), "--dbpath"];
    let output = command.args(options).arg(folder.join("data")).output().unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    (output.status.code(), text(output.stdout), text(output.stderr))
}

/// Scripts as compose files have them: each checks its own effects, and throws where they differ.
#[test]
fn usual_scripts_run_without_mongosh() {
    let folder = tempfile::tempdir().unwrap();
    let scripts = crate_folder().join("tests/server/init_scripts");
    fs::write(folder.path().join("secret"), "from a file\n").unwrap();
    let secret = folder.path().join("secret");
    let variables = [
        USER,
        PASSWORD,
        ("APP_DATABASE", "app"),
        ("APP_USER", "app"),
        ("SECRET_FILE", secret.to_str().unwrap()),
    ];
    let mut command = command(folder.path(), &variables);
    command.env("PATH", "/usr/bin:/bin");
    let options = ["--initFolder", scripts.to_str().unwrap()];
    let server = Server::start_by(command, &folder.path().join("data"), &options);
    let mut client = server.connect();
    ok_login(&mut client, "root", "admin", "hunter2");
    let count = |client: &mut _, db: &str, name: &str| {
        ok(client, doc! { "count": name, "$db": db }).get_i32("n").unwrap()
    };
    for (db, name, n) in [
        ("blog", "posts", 2),
        ("legacy", "users", 3),
        ("hr", "people", 1),
        ("stock", "items", 2500),
        ("waits", "c", 1),
        ("strict", "settings", 2),
        ("end", "c", 1),
    ] {
        assert_eq!(count(&mut client, db, name), n, "{db}.{name}");
    }
    ok_login(&mut server.connect(), "app", "app", "secret");
    ok_login(&mut server.connect(), "files", "files", "from a file");
}

#[test]
fn the_built_in_shell_says_where_a_script_failed_and_what_it_lacks() {
    for (source, parts) in [
        (
            "\n\nprint('begun');\ndb.c.insertOne({ _id: 1 });\ndb.c.insertOne({ _id: 1 });",
            &["a.js:5: MongoServerError: E11000 duplicate key error"][..],
        ),
        (
            "db.c.watch()",
            &["a.js:1: ", "db.collection.watch() is not part of the built-in shell", "mongosh"],
        ),
        ("db.c.frobnicate(1)", &["db.c.frobnicate() is not part of the built-in shell"]),
        ("sh.addShard('x')", &["sh.addShard() is not part of the built-in shell"]),
        ("require('os')", &["require('os') is not part of"]),
        ("connect('mongodb://db.example.com/x')", &["connects to its own server only"]),
        ("let x = ;", &["SyntaxError", "a.js:1"]),
        ("throw new Error('own')", &["a.js:1: Error: own"]),
        ("quit(3)", &["quit(3)"]),
        ("undeclared.x", &["a.js:1: ReferenceError: undeclared is not defined"]),
        ("(async () => { await 1; throw new Error('late'); })()", &["Error: late"]),
        (
            "db.getSiblingDB('admin').auth('root', 'wrong')",
            &["MongoServerError: Authentication failed"],
        ),
        ("let a = {}; a.a = a; db.c.insertOne(a)", &["Exceeded depth limit"]),
        ("(function f() { f(); })()", &["a.js:1: ", "stack"]),
    ] {
        let folder = tempfile::tempdir().unwrap();
        let scripts = folder.path().join("scripts");
        fs::create_dir(&scripts).unwrap();
        fs::write(scripts.join("a.js"), source).unwrap();
        let (status, printed, said) = built_in(&scripts, folder.path());
        assert_eq!(status, Some(1), "{source}: {said}");
        for part in parts {
            assert!(said.contains(part), "{source}: {said}");
        }
        assert_eq!(printed.lines().any(|line| line == "begun"), source.contains("begun"));
    }
}
