//! Tests of the whole table: unique names, complete rows, and no list of commands besides the rows.

use std::fs;
use std::path::{Path, PathBuf};

use mayfly_base::testing::crate_folder;
use mayfly_query::{STAGES, UNAVAILABLE_STAGES};
use mayfly_service::metrics::MAX_COMMANDS;

use super::*;
use crate::context::Handler;
use crate::request::row::{Audited, Hides, InTransaction, Names, Reads, Writes};
use crate::request::{Needs, RowFlags};

fn rows() -> impl Iterator<Item = &'static Row> {
    commands().iter().map(|command| &command.row)
}

fn running() -> impl Iterator<Item = &'static Row> {
    let run = |command: &&&Command| matches!(command.handler, Handler::Run(_));
    commands().iter().filter(run).map(|command| &command.row)
}

/// The names of the rows with a property, in alphabetical order.
fn named(has: impl Fn(&Row) -> bool) -> Vec<&'static str> {
    let mut names: Vec<_> = running().filter(|row| has(row)).map(|row| row.name).collect();
    names.sort_unstable();
    names
}

#[test]
fn names_are_found_and_fit_the_counters() {
    assert!(commands().len() <= MAX_COMMANDS);
    for command in commands() {
        let row = &command.row;
        assert!(std::ptr::eq(find(row.name).unwrap().command, *command), "{}", row.name);
        let finds = |alias: &&str| find(alias).unwrap().command.row.name == row.name;
        assert!(row.aliases.iter().all(finds));
    }
    assert!(find("atlasVersion").is_none());
    assert_eq!(find("ismaster").unwrap().command.row.name, "isMaster");
}

#[test]
fn no_two_groups_implement_the_same_name() {
    let implemented = || GROUPS[..GROUPS.len() - 1].iter().copied().flatten();
    for command in implemented() {
        let name = command.row.name;
        assert_eq!(implemented().filter(|other| other.row.name == name).count(), 1, "{name}");
    }
}

#[test]
fn every_command_declares_what_it_needs() {
    for row in rows() {
        let undeclared = matches!(row.needs, Needs::Undeclared);
        assert!(!undeclared, "{} does not say which rights it needs", row.name);
    }
}

#[test]
fn before_a_login_nothing_but_the_handshake_runs() {
    // From the manual: what drivers send before a login, and commands that concern no data.
    let known = [
        "_isSelf",
        "authenticate",
        "buildInfo",
        "connectionStatus",
        "endSessions",
        "hello",
        "isMaster",
        "isdbgrid",
        "listCommands",
        "logout",
        "ping",
        "saslContinue",
        "saslStart",
        "whatsmyuri",
    ];
    assert_eq!(named(|row| row.flags.contains(RowFlags::BEFORE_AUTH)), known);
    for row in running().filter(|row| row.flags.contains(RowFlags::BEFORE_AUTH)) {
        assert!(matches!(row.needs, Needs::Nothing), "{}", row.name);
    }
    assert_eq!(named(|row| row.flags.contains(RowFlags::FIRST_USER)), ["createRole", "createUser"]);
}

#[test]
fn whatever_changes_users_or_roles_is_an_event() {
    for command in access::ROWS.iter().filter(|command| command.row.writes.is_documents()) {
        let is_event = matches!(
            command.row.audited,
            Audited::User | Audited::UserChange | Audited::Role | Audited::Database
        );
        assert!(is_event, "{}", command.row.name);
    }
    // Other write commands may write to the collections of users and roles.
    for row in rows().filter(|row| row.writes.is_documents()) {
        assert!(!matches!(row.audited, Audited::No), "{}", row.name);
    }
}

/// Manual: "Transactions", "Operations", and "Informational Commands"; "Transactions and
/// Operations".
#[test]
fn what_transactions_take_is_what_the_manual_lists() {
    let statements = [
        "aggregate",
        "bulkWrite",
        "coordinateCommitTransaction",
        "delete",
        "distinct",
        "find",
        "findAndModify",
        "getMore",
        "insert",
        "prepareTransaction",
        "releaseMemory",
        "update",
    ];
    assert_eq!(named(|row| row.in_transaction == InTransaction::Statement), statements);
    let definitions = ["create", "createIndexes"];
    assert_eq!(named(|row| row.in_transaction == InTransaction::Definition), definitions);
    assert_eq!(named(|row| row.in_transaction == InTransaction::LaterStatement), ["killCursors"]);
    let ends = ["abortTransaction", "commitTransaction"];
    assert_eq!(named(|row| row.in_transaction == InTransaction::Ends), ends);
    let beside = ["buildInfo", "connectionStatus", "hello", "isMaster", "ping"];
    assert_eq!(named(|row| row.in_transaction == InTransaction::Informational), beside);
}

/// Manual: "Read Preference", "Read Concern" (the table of levels), "setDefaultRWConcern",
/// "defaultMaxTimeMS".
#[test]
fn reads_are_what_the_manual_lists() {
    let by_preference = [
        "aggregate",
        "collStats",
        "count",
        "dataSize",
        "dbStats",
        "distinct",
        "explain",
        "filemd5",
        "find",
        "listCollections",
        "listDatabases",
        "listIndexes",
        "listSearchIndexes",
        "mapReduce",
        "validate",
    ];
    assert_eq!(named(|row| row.reads.contains(Reads::PREFERENCE)), by_preference);
    let defaults = ["aggregate", "count", "dbHash", "distinct", "find"];
    assert_eq!(named(|row| row.reads.contains(Reads::DEFAULTS)), defaults);
    let linearizable = ["aggregate", "count", "distinct", "find"];
    assert_eq!(named(|row| row.reads.contains(Reads::LINEARIZABLE)), linearizable);
    let snapshot = ["aggregate", "distinct", "find"];
    assert_eq!(named(|row| row.reads.contains(Reads::SNAPSHOT)), snapshot);
}

/// Manual: "Stable API", "Commands".
#[test]
fn the_stable_api_is_what_the_manual_lists() {
    let is_stable = |row: &Row| row.flags.contains(RowFlags::STABLE);
    let stable = named(|row| is_stable(row) && !row.flags.contains(RowFlags::TEST_ONLY));
    assert_eq!(stable.len(), 29);
    assert!(stable.contains(&"endSessions"));
    assert!(!stable.contains(&"serverStatus") && !stable.contains(&"distinct"));
}

/// Manual: "Retryable Writes", "Retryable Write Operations".
#[test]
fn repeatable_writes_are_what_the_manual_lists() {
    let repeatable = ["bulkWrite", "delete", "findAndModify", "insert", "update"];
    assert_eq!(named(|row| row.writes == Writes::Repeatable), repeatable);
}

#[test]
fn whatever_holds_a_secret_hides_it() {
    let secret = [
        "authenticate",
        "createUser",
        "hello",
        "isMaster",
        "saslContinue",
        "saslStart",
        "updateUser",
    ];
    assert_eq!(named(|row| row.hides == Hides::Secrets), secret);
    // If the command's value is not its collection, it may name a collection of users elsewhere.
    for row in running().filter(|row| matches!(row.names, Names::List | Names::Entries)) {
        assert_eq!(row.hides, Hides::Users, "{}", row.name);
    }
}

/// Protocol terms that are also names of commands, with another part of the same line.
const WORDS: &[(&str, &str)] = &[
    // Names of opcounters.
    ("insert", "OpKind::Insert"),
    ("update", "OpKind::Update"),
    // Operations of `bulkWrite`.
    ("insert", "Action::Insert"),
    ("update", "Action::Update"),
    ("delete", "Action::Remove"),
    // An obsolete field of write concerns.
    ("fsync", "Argument::flag"),
    ("fsync", "\"j\""),
];

/// Adding a command is one file and one row: the floors that apply to every command read rows, and
/// no file compares names.
#[test]
fn no_rule_names_a_command() {
    let source = crate_folder().join("src");
    let mut files = Vec::new();
    rust_files(&source, &mut files);
    let mut problems = Vec::new();
    for file in &files {
        let inside = file.strip_prefix(&source).unwrap();
        let floor = inside.iter().next().and_then(|floor| floor.to_str()).unwrap_or_default();
        let text = fs::read_to_string(file).unwrap();
        let code = text.split("\n#[cfg(test)]\nmod ").next().unwrap_or(&text);
        for (at, line) in code.lines().enumerate().filter(|(_, line)| !is_prose(line)) {
            let place = format!("{}:{}: {}", inside.display(), at + 1, line.trim());
            let asks = line.contains("row.name ==") || line.contains("match request.row.name {");
            if asks && floor != "registry" {
                problems.push(place.clone());
            }
            if !["request", "context", "rules", "dispatch"].contains(&floor) {
                continue;
            }
            problems.extend(running().filter(|row| names(line, row.name)).map(|_| place.clone()));
        }
    }
    assert!(files.len() > 100 && problems.is_empty(), "{problems:#?}");
}

/// The files that may list names of stages: the table itself, its rows of searches, and one with
/// filter operators, of which one has the name of a stage.
const STAGE_TABLES: &[&str] = &[
    "query/src/pipeline/rows.rs",
    "query/src/pipeline/searches.rs",
    "query/src/language/validator.rs",
];

/// Adding a stage is one file and one row: no rule lists stages or compares their names.
#[test]
fn no_rule_names_a_stage() {
    let crates = crate_folder();
    let crates = crates.parent().unwrap();
    let mut files = Vec::new();
    for name in ["commands", "query", "service", "storage"] {
        rust_files(&crates.join(name).join("src"), &mut files);
    }
    let absent = UNAVAILABLE_STAGES.iter().map(|stage| stage.name);
    let stages: Vec<_> = STAGES.iter().map(|row| row.name).chain(absent).collect();
    let mut problems = Vec::new();
    for file in &files {
        let inside = file.strip_prefix(crates).unwrap();
        let shown = inside.to_str().unwrap();
        if STAGE_TABLES.contains(&shown) || shown.ends_with("tests.rs") {
            continue;
        }
        let text = fs::read_to_string(file).unwrap();
        let code = text.split("\n#[cfg(test)]\nmod ").next().unwrap_or(&text);
        for (at, line) in code.lines().enumerate().filter(|(_, line)| !is_prose(line)) {
            if stages.iter().any(|stage| asks_for(line, stage)) {
                problems.push(format!("{}:{}: {}", inside.display(), at + 1, line.trim()));
            }
        }
    }
    assert!(files.len() > 200 && problems.is_empty(), "{problems:#?}");
}

/// Whether a line compares something with this name, or has it in a list or a pattern.
fn asks_for(line: &str, stage: &str) -> bool {
    let (line, name) = (line.trim(), format!("\"{stage}\""));
    let lists = line.starts_with(&name) && (line.ends_with(',') || line.contains("=>"));
    let parts = [format!("== {name}"), format!("| {name}"), format!("{name} |")];
    lists
        || line.starts_with(&format!("({name}"))
        || line.contains(&name) && line.contains("matches!")
        || parts.iter().any(|part| line.contains(part.as_str()))
}

#[test]
fn a_line_that_asks_for_a_stage_is_found() {
    for line in [
        r#"if name == "$out" {"#,
        r#""$densify","#,
        r#""$out" | "$merge" => true,"#,
        r#"matches!(name, "$out")"#,
        r#"("$facet", RawValue::Document(facets)) => {"#,
    ] {
        assert!(STAGES.iter().any(|row| asks_for(line, row.name)), "{line}");
    }
    assert!(!asks_for(r#"stages.push("$skip", skip);"#, "$skip"));
}

fn is_prose(line: &str) -> bool {
    line.trim_start().starts_with("//")
}

fn names(line: &str, command: &str) -> bool {
    let is_word = |(name, part): &(&str, &str)| *name == command && line.contains(part);
    line.contains(&format!("\"{command}\"")) && !WORDS.iter().any(is_word)
}

fn rust_files(folder: &Path, out: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        match path.is_dir() {
            true => rust_files(&path, out),
            false => out.push(path),
        }
    }
}
