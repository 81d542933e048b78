//! The commands of a router about its shards. The server is a router with one shard, itself: it
//! records what clients shard in `config`, and all documents stay where they are. A member of a
//! replica set does not have these commands.

use std::sync::Arc;

use mayfly_auth::{Action, Target};
use mayfly_base::{Error, ErrorCode, Namespace, Result};
use mayfly_buckets::TimeSeries;
use mayfly_service::sharding::{self, BalancerMode, SHARD, Uniqueness};
use mayfly_storage::{Collection, CreateIndexesOptions};
use mayfly_value::arguments::Argument;
use mayfly_value::arguments::convert::whole_number;
use mayfly_value::shell::Shell;
use mayfly_value::{DocBuf, DocBuilder, RawDoc, RawValue};

use crate::context::{Command, CommandContext, Handler};
use crate::request::row::{Names, RowFlags, Writes};
use crate::request::{Demands, Needs, Request, no_such_command};

pub(super) const LIST: Command = Command::new("listShards", "Lists the shards", list)
    .needs(Needs::Cluster(&[Action::ListShards]))
    .flags(RowFlags::ADMIN_ONLY);
pub(super) const MAP: Command =
    Command::new("getShardMap", "Returns the addresses of the shards", map)
        .needs(Needs::Cluster(&[Action::GetShardMap]))
        .flags(RowFlags::ADMIN_ONLY);
pub(super) const ENABLE: Command =
    Command::new("enableSharding", "Records that a database is sharded", enable)
        .aliases(&["enablesharding"])
        .arguments(&[Argument::string("primaryShard")])
        .needs(Needs::Demands(enable_demands))
        .names(Names::Word)
        .writes(Writes::Settings)
        .flags(RowFlags::ADMIN_ONLY);
pub(super) const SHARD_COLLECTION: Command =
    Command::new("shardCollection", "Records the shard key of a collection", shard_collection)
        .aliases(&["shardcollection"])
        .arguments(ARGUMENTS)
        .needs(Needs::FullName(&[Action::EnableSharding]))
        .names(Names::FullName)
        .writes(Writes::Settings)
        .flags(RowFlags::ADMIN_ONLY);
pub(super) const START: Command =
    Command::new("balancerStart", "Starts the balancer, which has one shard", start)
        .needs(Needs::Demands(balancer_demands))
        .writes(Writes::Settings)
        .since("3.4")
        .flags(RowFlags::ADMIN_ONLY);
pub(super) const STOP: Command = Command::new("balancerStop", "Stops the balancer", stop)
    .needs(Needs::Demands(balancer_demands))
    .writes(Writes::Settings)
    .since("3.4")
    .flags(RowFlags::ADMIN_ONLY);

/// The arguments; the number of chunks and their distribution have no effect on one shard.
const ARGUMENTS: &[Argument] = &[
    Argument::document("key").required(),
    Argument::flag("unique"),
    Argument::whole("numInitialChunks"),
    Argument::bool("presplitHashedZones").since("4.4"),
    Argument::document("collation"),
    Argument::document("timeseries").since("5.1"),
    Argument::flag("enforceUniquenessCheck"),
];

fn enable_demands(demands: &mut Demands<'_>, request: &Request<'_>) {
    let db = request.target().as_str().unwrap_or_default();
    demands.need(Target::Database(db), Action::EnableSharding);
}

fn balancer_demands(demands: &mut Demands<'_>, _: &Request<'_>) {
    demands.need(Target::Collection("config", "settings"), Action::Update);
}

/// Refuses the command as an unknown one in a replica set.
///
/// # Errors
/// 59 CommandNotFound.
pub(super) fn check_router(ctx: &CommandContext<'_>, request: &Request<'_>) -> Result<()> {
    match ctx.service.replica_set.get() {
        None => Ok(()),
        Some(_) => Err(no_such_command(request.name)),
    }
}

fn list(ctx: &CommandContext<'_>, request: &Request<'_>, reply: &mut DocBuilder) -> Result<()> {
    request.arguments()?;
    check_router(ctx, request)?;
    reply.start_array("shards").push_document();
    reply.append("_id", SHARD).append("host", ctx.service.host.as_str()).append("state", 1);
    reply.end().end();
    Ok(())
}

fn map(ctx: &CommandContext<'_>, request: &Request<'_>, reply: &mut DocBuilder) -> Result<()> {
    request.arguments()?;
    check_router(ctx, request)?;
    let host = ctx.service.host.as_str();
    reply.start_document("map").append(SHARD, host).append("config", host).end();
    for part in ["hosts", "connStrings"] {
        reply.start_document(part).append(host, SHARD).end();
    }
    Ok(())
}

/// The internal databases, which cannot be sharded.
fn check_database(db: &str) -> Result<()> {
    match db {
        "admin" | "local" | "config" => {
            let text = format!("can't shard {db} database");
            Err(Error::new(ErrorCode::IllegalOperation, text))
        }
        _ => Ok(()),
    }
}

fn enable(ctx: &CommandContext<'_>, request: &Request<'_>, _: &mut DocBuilder) -> Result<()> {
    let fields = request.arguments()?;
    check_router(ctx, request)?;
    let db = match request.target() {
        RawValue::String(db) => db,
        other => return Err(fields.wrong_or_missing(request.row.name, other, "string")),
    };
    // The name of a collection is only needed to check that of the database.
    let ns = Namespace::new(db, "c")?;
    check_database(ns.db())?;
    if let Some(other) = fields.string("primaryShard")?.filter(|name| *name != SHARD) {
        let text = format!("Shard {other} does not exist");
        return Err(Error::new(ErrorCode::ShardNotFound, text));
    }
    sharding::record_database(&ctx.service.store, ctx.op, db)
}

fn start(ctx: &CommandContext<'_>, request: &Request<'_>, _: &mut DocBuilder) -> Result<()> {
    set_balancer(ctx, request, BalancerMode::Full)
}

fn stop(ctx: &CommandContext<'_>, request: &Request<'_>, _: &mut DocBuilder) -> Result<()> {
    set_balancer(ctx, request, BalancerMode::Off)
}

fn set_balancer(ctx: &CommandContext<'_>, request: &Request<'_>, mode: BalancerMode) -> Result<()> {
    request.arguments()?;
    check_router(ctx, request)?;
    sharding::record_balancer(&ctx.service.store, ctx.op, mode)
}

fn shard_collection(
    ctx: &CommandContext<'_>,
    request: &Request<'_>,
    reply: &mut DocBuilder,
) -> Result<()> {
    let fields = request.arguments()?;
    check_router(ctx, request)?;
    let ns = full_name(request)?;
    let key = fields.document("key")?.unwrap_or(RawDoc::EMPTY);
    let is_hashed = check_key(key)?;
    let unique = match fields.bool("unique")? {
        Some(true) => Uniqueness::Unique,
        _ => Uniqueness::Shared,
    };
    if is_hashed && unique == Uniqueness::Unique {
        let text = "Hashed shard keys cannot be declared unique.";
        return Err(Error::new(ErrorCode::InvalidOptions, text));
    }
    check_without_effect(request)?;
    let series = fields.document("timeseries")?;
    if let Some((buckets, series)) = time_series(ctx, &ns, series)? {
        shard_series(ctx, (&ns, &buckets, &series), (key, unique))?;
        reply.append("collectionsharded", ns.as_str());
        return Ok(());
    }
    let store = &ctx.service.store;
    store.check_no_view(ctx.store.view, &ns)?;
    let (collection, _) = store.get_or_create(ctx.store.view, &ns)?;
    if !is_sharded(ctx, (&ns, &collection), key)? {
        prepare_index(ctx, &collection, key, unique)?;
        sharding::record_database(store, ctx.op, ns.db())?;
        sharding::record_collection(store, ctx.op, &collection, (key, unique))?;
        append_event(ctx, request, &collection, (key, unique))?;
    }
    reply.append("collectionsharded", ns.as_str());
    Ok(())
}

/// Writes the event of a sharded collection into the log.
///
/// # Errors
/// Errors of the engine.
fn append_event(
    ctx: &CommandContext<'_>,
    request: &Request<'_>,
    collection: &Collection,
    (key, unique): (RawDoc<'_>, Uniqueness),
) -> Result<()> {
    let fields = request.arguments()?;
    let mut event = DocBuilder::new();
    event.append("shardCollection", collection.namespace().as_str()).append("shardKey", key);
    event.append("unique", unique == Uniqueness::Unique);
    event.append("numInitialChunks", fields.long("numInitialChunks")?.unwrap_or(0));
    event.append("presplitHashedZones", fields.bool("presplitHashedZones")?.unwrap_or(false));
    ctx.service.store.append_event(collection, event.finish().as_doc())
}

/// Whether a collection is sharded by this key.
///
/// # Errors
/// 23 AlreadyInitialized if it is sharded by another one.
fn is_sharded(
    ctx: &CommandContext<'_>,
    (ns, collection): (&Namespace, &Collection),
    key: RawDoc<'_>,
) -> Result<bool> {
    let Some(before) = sharding::sharded(&ctx.service.store, collection)? else {
        return Ok(false);
    };
    if before.as_doc().get("key") != Some(RawValue::Document(key)) {
        let text = format!("sharding already enabled for collection {ns}");
        return Err(Error::new(ErrorCode::AlreadyInitialized, text));
    }
    Ok(true)
}

/// A time series with its buckets.
type Series = (Arc<Collection>, Arc<TimeSeries>);

/// The time series of this name, which is created with the given options if it is missing. `None`
/// if the command is not about a time series.
///
/// # Errors
/// 72 InvalidOptions for options of another time series, errors of `create`.
fn time_series(
    ctx: &CommandContext<'_>,
    ns: &Namespace,
    given: Option<RawDoc<'_>>,
) -> Result<Option<Series>> {
    let store = &ctx.service.store;
    let found = || store.time_series_named(ctx.store.view, ns);
    match (found(), given) {
        (existing, None) => Ok(existing),
        (Some(existing), Some(given)) => {
            let given = TimeSeries::parse(given, "shardCollection.timeseries")?;
            if given.document() != existing.1.document() {
                let text = format!("the time series {ns} has other options");
                return Err(Error::new(ErrorCode::InvalidOptions, text));
            }
            Ok(Some(existing))
        }
        (None, Some(given)) => {
            if store.collection(ctx.store.view, ns).is_some() {
                let text = format!("the collection {ns} is no time series");
                return Err(Error::new(ErrorCode::InvalidOptions, text));
            }
            let mut command = DocBuilder::new();
            command.append("create", ns.collection()).append("timeseries", given);
            run_inner(ctx, ns, &command.finish())?;
            Ok(found())
        }
    }
}

/// Records a time series as sharded. The key may contain the meta field, fields within it and, at
/// its end, the time field.
///
/// # Errors
/// 2 BadValue for another key, 23 AlreadyInitialized, errors of the index.
fn shard_series(
    ctx: &CommandContext<'_>,
    (ns, buckets, series): (&Namespace, &Collection, &TimeSeries),
    (key, unique): (RawDoc<'_>, Uniqueness),
) -> Result<()> {
    let invalid = |text: &str| Err(Error::bad_value(text));
    let mut on_buckets = DocBuilder::new();
    let last = key.iter().count() - 1;
    for (at, field) in key.iter().enumerate() {
        let is_time = field.name() == series.fields.time;
        if is_time && at < last {
            return invalid("the time field can only be the last field of a shard key");
        }
        if is_time && field.value() == RawValue::String("hashed") {
            return invalid("the time field of a shard key can only be ascending");
        }
        match series.fields.on_bucket_meta(field.name()) {
            Some(path) => on_buckets.append(&path, field.value()),
            None if is_time => {
                on_buckets.append(&["control.min.", field.name()].concat(), field.value())
            }
            None => {
                return invalid(
                    "Sharding a time-series collection needs a key of the metaField, fields within it, or the timeField",
                );
            }
        };
    }
    let on_buckets = on_buckets.finish();
    if is_sharded(ctx, (ns, buckets), on_buckets.as_doc())? {
        return Ok(());
    }
    let mut command = DocBuilder::new();
    command.append("createIndexes", ns.collection()).start_array("indexes").push_document();
    command.append("key", key).append("name", index_name(key).as_str()).end().end();
    run_inner(ctx, ns, &command.finish())?;
    let store = &ctx.service.store;
    sharding::record_database(store, ctx.op, ns.db())?;
    sharding::record_collection(store, ctx.op, buckets, (on_buckets.as_doc(), unique))
}

/// Runs another command about the collection.
fn run_inner(ctx: &CommandContext<'_>, ns: &Namespace, body: &DocBuf) -> Result<()> {
    let name = body.as_doc().iter().next().map_or("", |field| field.name());
    let command = ctx.commands.find(name).map(|entry| entry.command);
    match command.map(|command| (command, command.handler)) {
        Some((command, Handler::Run(run))) => {
            let request = Request::inner(&command.row, ns.db(), body.as_doc());
            run(ctx, &request, &mut DocBuilder::new())
        }
        _ => Err(Error::internal(format!("the command {name} is missing"))),
    }
}

/// The collection in the command's value, which includes the database.
fn full_name(request: &Request<'_>) -> Result<Namespace> {
    let name = request.target().as_str().and_then(|name| name.split_once('.'));
    let Some((db, collection)) = name else {
        let text = "the value of shardCollection must be the full name of a collection";
        return Err(Error::new(ErrorCode::InvalidNamespace, text));
    };
    let ns = Namespace::new(db, collection)?;
    check_database(ns.db())?;
    if ns.collection().starts_with("system.") {
        let text = format!("can't shard system collection {ns}");
        return Err(Error::new(ErrorCode::IllegalOperation, text));
    }
    Ok(ns)
}

/// Checks a shard key, and returns whether one of its fields is hashed.
///
/// # Errors
/// 2 BadValue.
fn check_key(key: RawDoc<'_>) -> Result<bool> {
    let hashed = key.iter().filter(|field| field.value() == RawValue::String("hashed")).count();
    let is_valid = |field: mayfly_value::RawElement<'_>| {
        let name = field.name();
        let is_path = !name.is_empty() && name.split('.').all(|part| !part.is_empty());
        let value = field.value();
        let ascends = value == RawValue::String("hashed")
            || (mayfly_value::Number::from_value(value).is_some()
                && whole_number(value) == Some(1));
        is_path && !name.starts_with('$') && ascends
    };
    if key.is_empty() || hashed > 1 || !key.iter().all(is_valid) {
        let text = format!(
            "Unsupported shard key pattern {}. Pattern must either be a single hashed field, or a list of ascending fields",
            Shell(key)
        );
        return Err(Error::bad_value(text));
    }
    Ok(hashed > 0)
}

/// Checks the arguments that have no effect.
///
/// # Errors
/// 2 BadValue for a collation that is not the simple one.
fn check_without_effect(request: &Request<'_>) -> Result<()> {
    let fields = request.arguments()?;
    for name in ["enforceUniquenessCheck", "presplitHashedZones"] {
        fields.bool(name)?;
    }
    fields.long("numInitialChunks")?;
    if let Some(collation) = fields.document("collation")?
        && collation.get("locale") != Some(RawValue::String("simple"))
    {
        let text = format!(
            "The collation for shardCollection must be {{locale: 'simple'}}, but found: {}",
            Shell(collation)
        );
        return Err(Error::bad_value(text));
    }
    Ok(())
}

/// Creates an index on the shard key of an empty collection, and requires one of others.
///
/// # Errors
/// 72 InvalidOptions.
fn prepare_index(
    ctx: &CommandContext<'_>,
    collection: &Collection,
    key: RawDoc<'_>,
    unique: Uniqueness,
) -> Result<()> {
    let store = &ctx.service.store;
    let begins_with = |index: &DocBuf| {
        let fields = index.as_doc().get("key").and_then(RawValue::as_document);
        let mut fields = fields.unwrap_or(RawDoc::EMPTY).iter();
        key.iter().all(|wanted| {
            fields.next().is_some_and(|field| {
                field.name() == wanted.name() && is_same_order(field.value(), wanted.value())
            })
        })
    };
    if collection.list_indexes().iter().any(begins_with) {
        return Ok(());
    }
    if store.count_documents(ctx.op, collection)? > 0 {
        let text = "Please create an index that starts with the proposed shard key before sharding the collection";
        return Err(Error::new(ErrorCode::InvalidOptions, text));
    }
    let mut spec = DocBuilder::new();
    spec.append("key", key).append("name", index_name(key).as_str());
    if unique == Uniqueness::Unique {
        spec.append("unique", true);
    }
    let spec = spec.finish();
    let options = CreateIndexesOptions { ignore_unknown: false, update_policies: false };
    let (by, ns) = ((&**ctx.op, ctx.store.view), collection.namespace());
    store.create_indexes(by, &ns, &[spec.as_doc()], options)?;
    Ok(())
}

/// The default name of the index on a shard key.
fn index_name(key: RawDoc<'_>) -> String {
    let part = |field: mayfly_value::RawElement<'_>| {
        [field.name(), "_", field.value().as_str().unwrap_or("1")].concat()
    };
    key.iter().map(part).collect::<Vec<_>>().join("_")
}

/// Whether a field of an index has the order of a field of a shard key.
fn is_same_order(of_index: RawValue<'_>, of_key: RawValue<'_>) -> bool {
    match of_key {
        RawValue::String(_) => of_index == of_key,
        _ => whole_number(of_index) == Some(1),
    }
}
