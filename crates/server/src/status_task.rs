//! `mayflydb status`: how a running server is, in a few lines.

use std::io::Write;

use anyhow::Context;
use clap::Args;
use mayfly_value::{DocBuf, DocBuilder, RawDoc, RawValue};

use crate::backup::show::size;
use crate::client::{Client, Uri};
use crate::expiry_line::{expiry_line, grouped, plain, span};
use crate::expiry_state::{Circumstances, number, text, whole};
use crate::failure::{Failure, FailureKind};

/// The server on this machine.
const DEFAULT_URI: &str = "mongodb://127.0.0.1:27017";
/// Due documents of a policy are counted up to this number.
const DUE_LIMIT: i32 = 10_000;
/// The most policies that are listed.
const MOST_POLICIES: usize = 10;

/// The flags of `mayflydb status`.
#[derive(Clone, Debug, Args)]
pub struct StatusFlags {
    /// The server [default: mongodb://127.0.0.1:27017]
    #[arg(value_name = "URI")]
    pub uri: Option<String>,
}

/// Asks the server, and prints its state for people.
///
/// # Errors
/// A [`Failure`] when the server cannot be reached, or refuses the commands.
pub fn run(flags: &StatusFlags, out: &mut impl Write) -> anyhow::Result<()> {
    let asked = || {
        Failure::new(
            FailureKind::General,
            "cannot ask the server for its state",
            "name a running server and a user with the role clusterMonitor: \
         mayflydb status mongodb://user:password@host:27017",
        )
    };
    let uri = Uri::parse(flags.uri.as_deref().unwrap_or(DEFAULT_URI)).with_context(asked)?;
    let mut client = Client::connect(&uri).with_context(asked)?;
    let server = client.run(command("serverStatus", 1).as_doc()).with_context(asked)?;
    let build = client.run(command("buildInfo", 1).as_doc()).with_context(asked)?;
    let expiry = {
        let mut command = DocBuilder::new();
        command.start_document("ttlStatus").append("dueLimit", DUE_LIMIT).end();
        command.append("$db", "admin");
        client.run(command.finish().as_doc()).with_context(asked)?
    };
    // A user may read the state without reading parameters or backups.
    let parameters = client.run(parameters().as_doc()).ok();
    let parameters = parameters.as_ref().map_or(RawDoc::EMPTY, DocBuf::as_doc);
    let backup = client.run(command("backupStatus", 1).as_doc()).ok();
    let disk = part(server.as_doc(), "diskSpace");
    let around = Circumstances {
        sleep_secs: number(parameters, "ttlMonitorSleepSecs").unwrap_or(60.0),
        is_monitor_enabled: parameters.get("ttlMonitorEnabled") != Some(RawValue::Bool(false)),
        is_disk_nearly_full: disk.get("nearlyFull") == Some(RawValue::Bool(true)),
    };
    let answers = Answers {
        server: server.as_doc(),
        build: build.as_doc(),
        expiry: expiry.as_doc(),
        backup: backup.as_ref().map(DocBuf::as_doc),
    };
    let lines = lines(&answers, &around);
    out.write_all(lines.as_bytes()).context("cannot write the result")
}

/// The replies of the server.
struct Answers<'a> {
    server: RawDoc<'a>,
    build: RawDoc<'a>,
    expiry: RawDoc<'a>,
    backup: Option<RawDoc<'a>>,
}

fn lines(answers: &Answers<'_>, around: &Circumstances) -> String {
    let Answers { server, build, expiry, backup } = *answers;
    let (connections, memory, disk) =
        (part(server, "connections"), part(server, "mem"), part(server, "diskSpace"));
    let mut lines = vec![expiry_line(expiry, around).1];
    lines.push(format!(
        "mayflydb {} on {}, process {}, up {}, engine {}.",
        text(part(build, "mayflydb"), "version"),
        text(server, "host"),
        whole(server, "pid"),
        span(number(server, "uptime").unwrap_or(0.0)),
        text(part(server, "storageEngine"), "name"),
    ));
    let mebibytes = u64::try_from(whole(memory, "resident")).unwrap_or(0);
    lines.push(format!(
        "{}, {} of memory{}.",
        match whole(connections, "current") {
            1 => "1 connection".to_owned(),
            count => format!("{} connections", grouped(count)),
        },
        size(mebibytes << 20),
        match u64::try_from(whole(disk, "freeBytes")) {
            Ok(free) if free > 0 => format!(", {} free on the disk", size(free)),
            _ => String::new(),
        }
    ));
    lines.extend(backup.map(backup_line));
    lines.extend(policies(expiry));
    lines.join("\n") + "\n"
}

/// A nested document; empty without one.
fn part<'d>(document: RawDoc<'d>, name: &str) -> RawDoc<'d> {
    document.get(name).and_then(RawValue::as_document).unwrap_or(RawDoc::EMPTY)
}

fn backup_line(status: RawDoc<'_>) -> String {
    match status.get("last").and_then(RawValue::as_document) {
        None => "No backup was made since the start.".to_owned(),
        Some(last) => {
            let age = number(last, "ageSecs").unwrap_or(0.0);
            format!("The last backup, {}, is {} old.", text(last, "id"), span(age))
        }
    }
}

/// A table of the policies, the latest first.
fn policies(expiry: RawDoc<'_>) -> Vec<String> {
    let policies = expiry.get("policies").and_then(RawValue::as_array);
    let mut policies: Vec<RawDoc<'_>> = policies
        .into_iter()
        .flat_map(|policies| policies.iter())
        .filter_map(|policy| policy.value().as_document())
        .collect();
    if policies.is_empty() {
        return Vec::new();
    }
    let late = |policy: &RawDoc<'_>| number(*policy, "oldestOverdueSecs").unwrap_or(-1.0);
    policies.sort_by(|a, b| late(b).total_cmp(&late(a)));
    let mut lines = vec![
        String::new(),
        format!("{:<40} {:>10} {:>11} {:>12} {:>9}", "policy", "due", "oldest", "deleted", "rate"),
    ];
    for policy in policies.iter().take(MOST_POLICIES) {
        let name = plain(&format!("{} ({})", text(*policy, "ns"), text(*policy, "index")));
        let at_least = policy.get("dueIsLimit") == Some(RawValue::Bool(true));
        let due = format!("{}{}", if at_least { ">=" } else { "" }, grouped(whole(*policy, "due")));
        let oldest = match late(policy) {
            none if none < 0.0 => "-".to_owned(),
            secs => span(secs),
        };
        let (deleted, rate) = (grouped(whole(*policy, "deleted")), whole(*policy, "ratePerSec"));
        lines.push(format!("{name:<40} {due:>10} {oldest:>11} {deleted:>12} {rate:>7}/s"));
    }
    if policies.len() > MOST_POLICIES {
        lines.push(format!("{} more policies", policies.len() - MOST_POLICIES));
    }
    lines
}

fn command(name: &str, value: i32) -> DocBuf {
    let mut command = DocBuilder::new();
    command.append(name, value).append("$db", "admin");
    command.finish()
}

fn parameters() -> DocBuf {
    let mut command = DocBuilder::new();
    command.append("getParameter", 1).append("ttlMonitorSleepSecs", 1);
    command.append("ttlMonitorEnabled", 1).append("$db", "admin");
    command.finish()
}
