//! `mayflydb backup --uri --to`: runs the command `backup` in a server, and shows its progress.
//!
//! A second connection asks `currentOp` for the progress. When this process ends, the server
//! notices that the client has disconnected, and ends the backup.

use std::io::IsTerminal;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::anyhow;
use indicatif::ProgressBar;
use mayfly_value::{DocBuf, DocBuilder, RawDoc, RawValue};

use super::task::BackupFlags;
use super::{failed, progress, show};
use crate::client::{Client, ServerError, Uri};
use crate::failure::{Failure, FailureKind};

/// The interval of two looks at the progress.
const LOOK: Duration = Duration::from_millis(500);
const TRIED: &str = "cannot make a backup";

/// Makes a backup; returns a text for people.
///
/// # Errors
/// A [`Failure`].
pub(super) fn back_up(flags: &BackupFlags) -> anyhow::Result<String> {
    let mistake = |text: &str| {
        let advice = "for example: mayflydb backup --uri mongodb://127.0.0.1:27017 --to daily";
        failed::options(TRIED, text, advice)
    };
    let uri = flags.uri.as_deref().ok_or_else(|| mistake("--uri is missing"))?;
    let to = flags.to.as_deref().ok_or_else(|| mistake("--to is missing"))?;
    let uri = Uri::parse(uri).map_err(|error| mistake(&format!("{error:#}")))?;
    let comment = format!("mayflydb backup {:016x}", rand::random::<u64>());
    let mut client = Client::connect(&uri).map_err(of_server)?;
    let command = command(flags, to, &comment);
    let ended = AtomicBool::new(false);
    let bar = progress::bar("Backing up", 0);
    let reply = std::thread::scope(|threads| {
        if std::io::stderr().is_terminal() {
            threads.spawn(|| watch(&uri, &comment, &bar, &ended));
        }
        let reply = client.run(command.as_doc());
        ended.store(true, Ordering::Relaxed);
        reply
    });
    bar.finish_and_clear();
    Ok(summary(reply.map_err(of_server)?.as_doc(), to))
}

fn command(flags: &BackupFlags, to: &str, comment: &str) -> DocBuf {
    let mut command = DocBuilder::new();
    command.append("backup", 1).append("to", to);
    if let Some(parent) = &flags.parent {
        command.append("parent", parent.as_str());
    }
    if let Some(max) = flags.max_mbps {
        command.append("maxMBps", i64::from(max));
    }
    command.append("comment", comment).append("$db", "admin");
    command.finish()
}

fn of_server(error: anyhow::Error) -> anyhow::Error {
    let (kind, advice) = match error.downcast_ref::<ServerError>() {
        Some(ServerError { code: 2 | 9 | 14 | 72 | 115, .. }) => {
            (FailureKind::Options, "correct the flags, or the configuration of the server")
        }
        Some(ServerError { code: 13 | 18, .. }) => {
            (FailureKind::Options, "log in as a user with the role backup on the database admin")
        }
        Some(_) => (FailureKind::General, "nothing was changed; run the command again"),
        None => (FailureKind::General, "check that the server is running, and its address"),
    };
    let error = anyhow!("{error:#}");
    error.context(Failure::new(kind, TRIED, advice))
}

/// Shows the progress until the command has ended. Errors only mean that nothing is shown.
fn watch(uri: &Uri, comment: &str, bar: &ProgressBar, ended: &AtomicBool) {
    let Ok(mut client) = Client::connect(uri) else { return };
    let mut ask = DocBuilder::new();
    ask.append("currentOp", 1).append("$ownOps", true).append("command.comment", comment);
    ask.append("$db", "admin");
    let ask = ask.finish();
    while !ended.load(Ordering::Relaxed) {
        let Ok(reply) = client.run(ask.as_doc()) else { return };
        if let Some((done, total)) = shown(reply.as_doc()) {
            bar.set_length(total);
            bar.set_position(done);
        }
        std::thread::sleep(LOOK);
    }
}

fn shown(reply: RawDoc<'_>) -> Option<(u64, u64)> {
    let op = reply.get("inprog")?.as_array()?.iter().next()?;
    let progress = op.value().as_document()?.get("progress")?.as_document()?;
    Some((number(progress, "done"), number(progress, "total")))
}

fn number(document: RawDoc<'_>, name: &str) -> u64 {
    match document.get(name) {
        Some(RawValue::Int64(number)) => u64::try_from(number).unwrap_or(0),
        _ => 0,
    }
}

fn summary(reply: RawDoc<'_>, to: &str) -> String {
    let text = |name: &str| reply.get(name).and_then(RawValue::as_str).unwrap_or("-").to_owned();
    let size = |name: &str| show::size(number(reply, name));
    let seconds = number(reply, "millis") as f64 / 1000.0;
    format!(
        "The backup {} to {to} is complete: {} files, {}; {} were sent in {seconds:.1} s.\n",
        text("id"),
        number(reply, "files"),
        size("bytes"),
        size("sentBytes"),
    )
}
