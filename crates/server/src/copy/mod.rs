//! `mayflydb copy`: moves a store between a data folder and PostgreSQL, while clients use it.
//!
//! The README of this folder has the protocol, and what an interruption after each step leaves.
//!
//! * [`place`]: what the flags name.
//! * [`source`]: a store that a running server has open, or that no server has open.
//! * [`base`]: the entries of one point.
//! * [`follow`]: the log after it, and the switch-over.
//! * [`verify`]: the comparison of source and target.

mod base;
mod follow;
mod local;
mod place;
mod server;
mod source;
mod verify;

use std::io::Write;
use std::sync::Arc;

use anyhow::{Context, anyhow};
use clap::Args;
use mayfly_base::ErrorCode;
use mayfly_kv::Engine;
use mayfly_storage::{CopyPhase, CopyState, CopyTarget};

use self::place::Place;
use self::source::Source;
use crate::failure::{Failure, FailureKind};
use crate::{offline, permissions};

const TRIED: &str = "cannot copy the store";

/// The flags of `mayflydb copy`.
#[derive(Clone, Debug, Args)]
pub struct CopyFlags {
    /// The source: mongodb://user:password@host:27017 of its server; without a server, its data
    /// folder or its postgresql:// URL
    #[arg(long, value_name = "SOURCE")]
    pub from: String,
    /// The target, which contains nothing or an unfinished copy: a folder or a postgresql:// URL
    #[arg(long, value_name = "TARGET")]
    pub to: String,
    /// Move the store: when the target has caught up, make writes wait, end the source's server,
    /// and release the target. A source without a server cannot be started again afterwards
    #[arg(long = "switchOver")]
    pub switch_over: bool,
    /// Compare all documents and indexes of source and target; needs a source without a server
    #[arg(long)]
    pub verify: bool,
}

/// Copies, and prints the result for people.
///
/// # Errors
/// A [`Failure`] with the exit code.
pub fn run(flags: &CopyFlags, out: &mut impl Write) -> anyhow::Result<()> {
    permissions::restrict_new_files();
    let (from, to) = (Place::parse("--from", &flags.from)?, Place::parse("--to", &flags.to)?);
    place::check(&from, &to, flags)?;
    let source = Source::open(&from, flags)?;
    let engine = to.open_target()?;
    let copied = copy(source, &engine, flags, out);
    if copied.is_err() {
        // The error counts more. The state of the copy is stored with each step.
        let _ = engine.close();
    }
    copied
}

fn copy(
    mut source: Source,
    engine: &Arc<dyn Engine>,
    flags: &CopyFlags,
    out: &mut impl Write,
) -> anyhow::Result<()> {
    let found = match CopyTarget::find(&**engine) {
        Ok(found) => found,
        Err(error) if error.code() == ErrorCode::IllegalOperation && flags.verify => {
            let compared = verify::compare_complete(source, engine.clone(), out);
            let _ = engine.close();
            return compared;
        }
        Err(error) => return Err(of_target(&error)),
    };
    let target = match found {
        Some(state) => resume(&mut source, engine, state)?,
        None => base::begin(&mut source, engine.clone())?,
    };
    let target = match target.state().phase {
        CopyPhase::Base => base::copy(&mut source, target)?,
        CopyPhase::Log | CopyPhase::Complete => target,
    };
    follow::follow(source, target, flags, out)
}

/// Continues an unfinished copy, if it is one of this source.
fn resume(
    source: &mut Source,
    engine: &Arc<dyn Engine>,
    state: CopyState,
) -> anyhow::Result<CopyTarget> {
    say("an unfinished copy is in the target; it goes on");
    if state.phase == CopyPhase::Base {
        let point = source.begin(state.copy)?;
        check_source(&state, point.store)?;
        if !point.goes_on || point.time != state.time {
            say("the source no longer has the point of that copy; it begins again");
            return base::begin(source, engine.clone());
        }
    }
    CopyTarget::resume(engine.clone(), state).map_err(|error| of_target(&error))
}

/// Checks that an unfinished copy is one of this source.
fn check_source(state: &CopyState, store: [u8; 16]) -> anyhow::Result<()> {
    match state.store == store {
        true => Ok(()),
        false => {
            let advice = "name the source of that copy, or empty the target: delete the folder, \
                          or drop the schema mayflydb of the database";
            let failure = Failure::new(FailureKind::Folder, TRIED, advice);
            Err(anyhow!("the target has an unfinished copy of another store").context(failure))
        }
    }
}

/// Prints a line for people, on the standard error output.
fn say(text: &str) {
    // Progress that cannot be shown ends no copy.
    let _ = writeln!(std::io::stderr(), "mayflydb copy: {text}");
}

fn print(out: &mut impl Write, text: &str) -> anyhow::Result<()> {
    writeln!(out, "{text}").and_then(|()| out.flush()).context("cannot write the result")
}

/// The failure for an error of the target.
fn of_target(error: &mayfly_base::Error) -> anyhow::Error {
    let (kind, advice) = match error.code() {
        ErrorCode::IllegalOperation => {
            (FailureKind::Folder, "name an empty folder or an empty database with --to")
        }
        ErrorCode::DataCorruptionDetected => {
            (FailureKind::Damage, "empty the target, and copy again; the source is as it was")
        }
        _ => (FailureKind::Folder, "run the same command again, which goes on"),
    };
    let tried = "cannot write into the target";
    offline::of_store(error).context(Failure::new(kind, tried, advice))
}
