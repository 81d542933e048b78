//! `drop` and `dropDatabase`.

use std::sync::Arc;

use mayfly_auth::Action;
use mayfly_base::{Error, ErrorCode, Namespace, Result};
use mayfly_buckets::TimeSeries;
use mayfly_service::{Actor, sharding};
use mayfly_storage::{Collection, OPLOG};
use mayfly_value::DocBuilder;

use crate::context::{COLLECTION_UUID, Command, CommandContext};
use crate::request::row::{LogForm, RowFlags, Writes};
use crate::request::{Needs, Request};

pub(crate) const ROW: Command = Command::new("drop", "Drops a collection", run)
    .arguments(&[COLLECTION_UUID])
    .needs(Needs::Collection(&[Action::DropCollection]))
    .flags(RowFlags::STABLE)
    .writes(Writes::Settings)
    .replayed(LogForm::Command, &[ErrorCode::NamespaceNotFound]);
pub(crate) const DATABASE: Command = Command::new("dropDatabase", "Drops a database", run_database)
    .needs(Needs::Database(&[Action::DropDatabase]))
    .flags(RowFlags::STABLE)
    .writes(Writes::Settings)
    .replayed(LogForm::Command, &[ErrorCode::NamespaceNotFound]);

fn run(ctx: &CommandContext<'_>, request: &Request<'_>, reply: &mut DocBuilder) -> Result<()> {
    let fields = request.arguments()?;
    let ns = request.namespace()?;
    ctx.check_uuid(&ns, &fields)?;
    if ns.as_str() == OPLOG {
        let text = "can't drop live oplog while replicating";
        return Err(Error::new(ErrorCode::IllegalOperation, text));
    }
    // A missing collection is not an error since 7.0.
    let store = &ctx.service.store;
    if store.collection(ctx.store.view, &ns).is_some() {
        check_droppable(ctx, &ns)?;
    }
    if store.collection(ctx.store.view, &ns).is_none()
        && let Some((buckets, _)) = store.time_series_named(ctx.store.view, &ns)
    {
        if let Some(indexes) = store.drop_collection(&buckets.namespace())? {
            reply.append("nIndexesWas", indexes).append("ns", ns.as_str());
        }
    } else if let Some(indexes) = store.drop_collection(&ns)? {
        reply.append("nIndexesWas", indexes).append("ns", ns.as_str());
    } else if ctx.service.store.drop_view(ctx.op, &ns)? {
        reply.append("ns", ns.as_str());
    } else if ctx.service.audit.is_on() {
        let (actor, code) = (Actor::Client(ctx.connection), ErrorCode::NamespaceNotFound);
        ctx.service.audit(actor, "dropCollection", code, |param| {
            param.append("ns", ns.as_str());
        });
    }
    ctx.service.top.forget(ns.as_str());
    for ns in [Some(&ns), TimeSeries::buckets_of(&ns).as_ref()].into_iter().flatten() {
        sharding::forget_collection(store, ctx.op, ns)?;
    }
    // Also waits for the log if nothing was dropped: a concurrent client may have dropped it
    // without waiting.
    Ok(())
}

/// Refuses to drop databases that the server needs, and values of the command other than 1.
///
/// # Errors
/// 20 IllegalOperation; for other values 2 BadValue as from a router, 5255100 as from a member of
/// a replica set.
fn check_database_droppable(ctx: &CommandContext<'_>, db: &str, is_one: bool) -> Result<()> {
    let is_router = ctx.service.replica_set.get().is_none();
    let refused = |text: &str| Err(Error::new(ErrorCode::IllegalOperation, text));
    match db {
        "local" => refused("Cannot drop 'local' database while replication is active"),
        "config" if is_router => refused("Cannot drop the config database"),
        _ if !is_one && is_router => Err(Error::bad_value("have to pass 1 as db parameter")),
        _ if !is_one => Err(Error::new(ErrorCode(5255100), "Have to pass 1 as 'drop' parameter")),
        "admin" => refused("Dropping the 'admin' database is prohibited."),
        _ => Ok(()),
    }
}

/// System collections that may be dropped in every database.
const DROPPABLE: &[&str] = &["system.js", "system.healthlog"];

/// Refuses to drop collections that the server needs.
///
/// # Errors
/// 20 IllegalOperation, 125 CommandFailed for the definitions of views while there are time series.
fn check_droppable(ctx: &CommandContext<'_>, ns: &Namespace) -> Result<()> {
    let refused = |text: String| Err(Error::new(ErrorCode::IllegalOperation, text));
    let is_series = |collection: &Arc<Collection>| collection.time_series().is_some();
    match (ns.db(), ns.collection()) {
        (_, name) if !name.starts_with("system.") || DROPPABLE.contains(&name) => Ok(()),
        ("config", "system.sessions" | "system.preimages") | ("admin", "system.keys") => Ok(()),
        (_, name)
            if ["buckets.", "statistics."]
                .iter()
                .any(|kind| name["system.".len()..].starts_with(kind)) =>
        {
            Ok(())
        }
        (db, "system.profile") => match ctx.service.profiler.database(db).level {
            0 => Ok(()),
            _ => refused("turn off profiling before dropping system.profile collection".to_owned()),
        },
        (db, mayfly_storage::SYSTEM_VIEWS) => {
            match ctx.service.store.collections(Some(db)).iter().any(is_series) {
                false => Ok(()),
                true => {
                    let text = "cannot drop collection system.views when time-series collections are present";
                    Err(Error::new(ErrorCode::CommandFailed, text))
                }
            }
        }
        _ => refused(format!("cannot drop system collection {ns}")),
    }
}

fn run_database(
    ctx: &CommandContext<'_>,
    request: &Request<'_>,
    reply: &mut DocBuilder,
) -> Result<()> {
    let fields = request.arguments()?;
    check_database_droppable(ctx, request.db, fields.long("dropDatabase")? == Some(1))?;
    let dropped = ctx.service.store.drop_database(request.db)?;
    ctx.service.profiler.forget_database(request.db);
    if dropped {
        sharding::forget_database(&ctx.service.store, ctx.op, request.db)?;
        reply.append("dropped", request.db);
        let dropped = format!("{}.", request.db);
        ctx.service.top.forget_others(|namespace| !namespace.starts_with(&dropped));
    }
    Ok(())
}
