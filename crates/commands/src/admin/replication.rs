//! Replica-set commands, for a member of a set or a server outside of a set.

use std::time::Duration;

use mayfly_auth::Action;
use mayfly_base::{Error, ErrorCode, Result};
use mayfly_service::ReplicaSet;
use mayfly_value::DocBuilder;
use mayfly_value::arguments::error::mistyped;

use crate::context::{Command, CommandContext};
use crate::diagnostics::member::append_set_status;
use crate::request::row::RowFlags;
use crate::request::{Needs, Request};
use mayfly_value::arguments::convert::{truth, whole_number};

pub(crate) const GET_STATUS: Command =
    Command::new("replSetGetStatus", "Returns the state of the replica set", run_status)
        .needs(Needs::Cluster(&[Action::ReplSetGetStatus]))
        .flags(RowFlags::ADMIN_ONLY.union(RowFlags::LENIENT));
pub(crate) const GET_CONFIG: Command =
    Command::new("replSetGetConfig", "Returns the replica set's configuration", run_config)
        .needs(Needs::Cluster(&[Action::ReplSetGetConfig]))
        .since("3.0")
        .flags(RowFlags::ADMIN_ONLY.union(RowFlags::LENIENT));
pub(crate) const INITIATE: Command =
    Command::new("replSetInitiate", "Initiates a replica set", run_initiate)
        .needs(Needs::Cluster(&[Action::ReplSetConfigure]))
        .flags(RowFlags::ADMIN_ONLY.union(RowFlags::LENIENT));
pub(crate) const STEP_DOWN: Command =
    Command::new("replSetStepDown", "Makes the primary a secondary for a while", run_step_down)
        .needs(Needs::Cluster(&[Action::ReplSetStateChange]))
        .flags(RowFlags::ADMIN_ONLY.union(RowFlags::LENIENT));
pub(crate) const FREEZE: Command = Command::new(
    "replSetFreeze",
    "Prevents a secondary from becoming the primary, or allows it again with 0",
    run_freeze,
)
.needs(Needs::Cluster(&[Action::ReplSetStateChange]))
.flags(RowFlags::ADMIN_ONLY.union(RowFlags::LENIENT));

/// The default time of secondaries to catch up before a step-down, in seconds.
const CATCH_UP_SECS: i64 = 10;

/// The reference's text. The suffix [`ABOUT_ROUTER`] is added for commands that show the state of
/// the set.
const NOT_IN_SET: &str = "not running with --replSet";
const ABOUT_ROUTER: &str = ": this server answers drivers like a router; start it with --replSet NAME to make it a replica set of one \
                            member; sh.status() shows its state as a router";

pub(super) fn set<'s>(ctx: &CommandContext<'s>) -> Result<&'s ReplicaSet> {
    let missing = || Error::new(ErrorCode::NoReplicationEnabled, NOT_IN_SET);
    ctx.service.replica_set.get().ok_or_else(missing)
}

/// The same as [`set`], for commands that show the set.
fn shown_set<'s>(ctx: &CommandContext<'s>) -> Result<&'s ReplicaSet> {
    set(ctx).map_err(|error| Error::new(error.code(), format!("{NOT_IN_SET}{ABOUT_ROUTER}")))
}

fn run_status(ctx: &CommandContext<'_>, _: &Request<'_>, doc: &mut DocBuilder) -> Result<()> {
    append_set_status(ctx, shown_set(ctx)?, doc);
    Ok(())
}

fn run_config(ctx: &CommandContext<'_>, _: &Request<'_>, doc: &mut DocBuilder) -> Result<()> {
    let set = shown_set(ctx)?;
    doc.start_document("config");
    set.config().append_to(set, &set.me(ctx.connection, &ctx.service.host), doc);
    doc.end();
    Ok(())
}

fn run_initiate(ctx: &CommandContext<'_>, _: &Request<'_>, _: &mut DocBuilder) -> Result<()> {
    match ctx.service.replica_set.get() {
        // The set is initiated when the server starts.
        Some(_) => Err(Error::new(ErrorCode::AlreadyInitialized, "already initialized")),
        None => {
            let text = "This node was not started with replication enabled.";
            Err(Error::new(ErrorCode::NoReplicationEnabled, text))
        }
    }
}

/// Manual, "replSetStepDown". All members read one store, so none has to catch up. Another one
/// becomes the primary at once. A set of one member needs `force`, and otherwise fails at once; the
/// reference waits for `secondaryCatchUpPeriodSecs` first.
fn run_step_down(
    ctx: &CommandContext<'_>,
    request: &Request<'_>,
    _: &mut DocBuilder,
) -> Result<()> {
    let has_others = set(ctx)?.count() > 1;
    let number = |name: &str, default: i64| -> Result<i64> {
        match request.body.get(name) {
            None => Ok(default),
            Some(value) => whole_number(value).ok_or_else(|| {
                mistyped(format!(
                    "Expected field \"{name}\" to have numeric type, but found {}",
                    value.type_name()
                ))
            }),
        }
    };
    let force = match request.body.get("force") {
        None => false,
        Some(value) => truth(value).ok_or_else(|| {
            mistyped(format!(
                "Expected boolean or number type for field \"force\", found {}",
                value.type_name()
            ))
        })?,
    };
    let seconds = match number("replSetStepDown", 60)? {
        0 => 60,
        seconds => seconds,
    };
    let catch_up = number("secondaryCatchUpPeriodSecs", if force { 0 } else { CATCH_UP_SECS })?;
    if seconds < 0 {
        return Err(Error::bad_value("stepdown period must be a positive integer"));
    }
    if catch_up < 0 {
        return Err(Error::bad_value(
            "secondaryCatchUpPeriodSecs period must be a positive or absent",
        ));
    }
    if seconds < catch_up {
        return Err(Error::bad_value(
            "stepdown period must be longer than secondaryCatchUpPeriodSecs",
        ));
    }
    if !ctx.service.is_primary() {
        return Err(Error::new(ErrorCode::NotWritablePrimary, "not primary so can't step down"));
    }
    if !force && !has_others {
        return Err(Error::new(
            ErrorCode::ExceededTimeLimit,
            "No electable secondaries caught up. Please use the replSetStepDown command with the argument \
             {force: true} to force node to step down.",
        ));
    }
    ctx.service.store.step_down(seconds);
    ctx.service.is_primary();
    tracing::info!(id = 21_340, seconds, "Stepping down in response to replSetStepDown command");
    let code = ErrorCode::InterruptedDueToReplStateChange;
    ctx.service.sessions.transactions.abort(code, |_| true);
    // Kills running writes; the TTL monitor checks by itself.
    for op in ctx.service.ops.list() {
        if op.writes() && op.id() != ctx.op.id() {
            op.kill(code);
        }
    }
    if has_others {
        ctx.service.shutdown.request_hand_over(Duration::from_secs(seconds.unsigned_abs()));
    }
    Ok(())
}

/// Manual, "replSetFreeze". A set of one member elects itself as soon as it is allowed to. One of
/// several members leaves it to the others to replace a primary that is gone.
fn run_freeze(ctx: &CommandContext<'_>, request: &Request<'_>, doc: &mut DocBuilder) -> Result<()> {
    let set = set(ctx)?;
    let seconds = request.body.get("replSetFreeze").and_then(whole_number).unwrap_or(0);
    if seconds < 0 {
        return Err(Error::bad_value("freeze period must be a positive integer"));
    }
    if ctx.service.is_primary() {
        let why = "cannot freeze node when primary or running for election. state: Primary";
        return Err(Error::new(ErrorCode::NotSecondary, why));
    }
    match seconds {
        0 => {
            doc.append("info", "unfreezing");
            set.freeze(i64::MIN);
            ctx.service.store.step_up();
            ctx.service.is_primary();
        }
        seconds => {
            let span = seconds.saturating_mul(1_000_000);
            set.freeze(ctx.service.clock.monotonic_micros().saturating_add(span));
            ctx.service.store.step_down(seconds);
        }
    }
    Ok(())
}
