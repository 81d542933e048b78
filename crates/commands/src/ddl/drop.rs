//! `drop` and `dropDatabase`.

use mayfly_auth::Action;
use mayfly_base::{Error, ErrorCode, Result};
use mayfly_buckets::TimeSeries;
use mayfly_service::{Actor, sharding};
use mayfly_storage::OPLOG;
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

fn run_database(
    ctx: &CommandContext<'_>,
    request: &Request<'_>,
    reply: &mut DocBuilder,
) -> Result<()> {
    let fields = request.arguments()?;
    if fields.long("dropDatabase")? != Some(1) {
        return Err(Error::bad_value("have to pass 1 as db parameter"));
    }
    if request.db == "admin" {
        let text = "Dropping the 'admin' database is prohibited.";
        return Err(Error::new(ErrorCode::IllegalOperation, text));
    }
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
