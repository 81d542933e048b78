//! `collMod`: changes options of a collection, a view, or an index (expiry contract, section 3).

use mayfly_base::{Error, ErrorCode, Namespace, Result};
use mayfly_buckets::TimeSeries;
use mayfly_storage::policy::TtlOptions;
use mayfly_storage::policy::value::{expire_after_for_collection, expire_after_for_collmod};
use mayfly_storage::{
    CollModChange, Collection, IndexSelector, NewExpireAfter, OPLOG, TtlIndexRules,
};
use mayfly_value::arguments::{Argument, Form};
use mayfly_value::{DocBuf, DocBuilder, RawDoc, RawValue};

use super::options::{
    IMAGES, Images, VALIDATION_ACTION, VALIDATION_LEVEL, capped_max, capped_size, compact, images,
    invalid, merged, validation, with_expiry, with_ttl,
};
use super::{encrypted_fields, time_series, view};
use crate::context::{COLLECTION_UUID, Command, CommandContext};
use crate::request::row::{LogForm, Reads, RowFlags, Writes};
use crate::request::{Fields, Needs, Request};
use crate::rules::rights::demands;

pub(crate) const ROW: Command =
    Command::new("collMod", "Changes options of a collection or index", run)
        .arguments(ARGUMENTS)
        .needs(Needs::Demands(demands::coll_mod))
        .flags(RowFlags::STABLE)
        .writes(Writes::Settings)
        .reads(Reads::empty())
        .replayed(LogForm::Command, &[ErrorCode::NamespaceNotFound, ErrorCode::IndexNotFound]);

/// Options of the reference that are not supported.
const MISSING: &[&str] = &["recordPreImages"];

const ARGUMENTS: &[Argument] = &[
    Argument::fields("index", INDEX),
    Argument::one_of("expireAfterSeconds", &[Form::String, Form::Number]).null_is_value(),
    Argument::flag("dryRun").since("6.0"),
    Argument::document("ttl").unstable(),
    Argument::document("validator"),
    VALIDATION_LEVEL,
    VALIDATION_ACTION,
    IMAGES,
    Argument::whole("cappedSize").at_least(1).since("6.0").unstable(),
    Argument::whole("cappedMax").since("6.0").unstable(),
    Argument::document("timeseries").since("5.0"),
    Argument::string("viewOn"),
    Argument::array("pipeline"),
    Argument::any("recordPreImages"),
    Argument::flag(MIXED_BUCKETS).since("5.2").unstable(),
    COLLECTION_UUID,
];

/// Whether buckets of a time series may contain values of several types in one field, as those of
/// old versions do. It has no effect, because all buckets may.
const MIXED_BUCKETS: &str = "timeseriesBucketsMayHaveMixedSchemaData";

/// The fields of `index`.
const INDEX: &[Argument] = &[
    Argument::string("name"),
    Argument::document("keyPattern"),
    Argument::any("expireAfterSeconds"),
    Argument::flag("hidden"),
    Argument::flag("unique"),
    Argument::flag("prepareUnique"),
    Argument::any("forceNonUnique"),
    Argument::document("ttl").unstable(),
];

/// Options of a collection.
const OF_COLLECTIONS: &[&str] = &[
    "ttl",
    "validator",
    "validationLevel",
    "validationAction",
    "changeStreamPreAndPostImages",
    "cappedSize",
    "cappedMax",
    "timeseries",
];
/// Options that a time series cannot have.
const NOT_OF_TIME_SERIES: &[&str] =
    &["validator", "validationLevel", "validationAction", "changeStreamPreAndPostImages"];
/// Options of a view.
const OF_VIEWS: &[&str] = &["viewOn", "pipeline"];

fn run(ctx: &CommandContext<'_>, request: &Request<'_>, reply: &mut DocBuilder) -> Result<()> {
    let fields = request.arguments()?;
    let ns = request.namespace()?;
    ctx.check_uuid(&ns, &fields)?;
    let index = fields.document("index")?;
    let rules = ctx.service.store.ttl_params().rules();
    let index = index.map(|index| IndexChange::parse(index, rules)).transpose()?;
    check_expiry_text(&request.body)?;
    check_missing(&fields)?;
    // A time series is stored as a collection of buckets.
    let series = match ctx.store.collection(&ns) {
        Some(_) => None,
        None => ctx.service.store.time_series_named(ctx.store.view, &ns),
    };
    if series.is_some() && index.as_ref().is_some_and(|index| index.change.expire_after.is_some()) {
        return Err(invalid(
            "TTL indexes are not supported for time-series collections. Please refer to the documentation and use the \
             top-level 'expireAfterSeconds' option instead",
        ));
    }
    let ns = series.as_ref().map_or(ns, |(buckets, _)| buckets.namespace());
    if ctx.store.collection(&ns).is_none() {
        let Some(view) = ctx.service.store.view(ctx.store.view, &ns)? else {
            if ns.as_str() == OPLOG && fields.get("cappedMax").is_some() {
                return Err(invalid("the oplog has no limit on the number of its entries"));
            }
            return Err(Error::new(ErrorCode::NamespaceNotFound, "ns does not exist"));
        };
        let others = OF_COLLECTIONS.iter().chain(&["index", "expireAfterSeconds", MIXED_BUCKETS]);
        if let Some(name) = others.copied().find(|name| fields.get(name).is_some()) {
            return Err(invalid(format!("option not supported on a view: {name}")));
        }
        view::change(ctx, (request, &ns), view.as_doc(), &fields)?;
        return Ok(());
    }
    let expires = index.as_ref().is_some_and(|index| index.change.expire_after.is_some());
    if encrypted_fields::is_encrypted(ctx, &ns) {
        let new = expires.then(encrypted_fields::expiring_index);
        encrypted_fields::check_validation(&fields).and(new.map_or(Ok(()), Err))?;
    }
    if ctx.store.collection(&ns).is_some_and(|found| found.time_series().is_some())
        && let Some(name) = NOT_OF_TIME_SERIES.iter().find(|name| fields.get(name).is_some())
    {
        return Err(invalid(format!("option not supported on a time series: {name}")));
    }
    check_hidden(&ns, index.as_ref())?;
    check_mixed_buckets(ctx.store.collection(&ns).as_deref(), &fields)?;
    if let Some(name) = OF_VIEWS.iter().find(|name| fields.get(name).is_some()) {
        return Err(invalid(format!("option only supported on a view: {name}")));
    }
    if fields.bool("dryRun")?.unwrap_or(false) {
        return dry_run(ctx, &ns, index.as_ref(), reply);
    }
    let expiry = match fields.get("expireAfterSeconds") {
        Some(value) => Some(Expiry::parse(ctx, &ns, value)?),
        None => None,
    };
    // A command without options is a change, too, of which change streams have an event.
    let has_options =
        expiry.is_some() || OF_COLLECTIONS.iter().any(|name| fields.get(name).is_some());
    if has_options || index.is_none() {
        change_options(ctx, &ns, &fields, expiry)?;
    }
    if let Some(index) = index {
        apply(ctx, &ns, &index, reply)?;
    }
    Ok(())
}

/// Refuses options that are not supported.
fn check_missing(fields: &Fields<'_>) -> Result<()> {
    for name in MISSING {
        if fields.get(name).is_some() {
            return Err(Error::not_implemented(format_args!("the option '{name}' of 'collMod'")));
        }
    }
    Ok(())
}

/// The server needs the indexes of system collections.
fn check_hidden(ns: &Namespace, index: Option<&IndexChange<'_>>) -> Result<()> {
    let hides = index.is_some_and(|index| index.change.hidden.is_some());
    let name = ns.collection();
    if hides && name.starts_with("system.") && !name.starts_with("system.buckets.") {
        return Err(Error::bad_value("Can't hide index on system collection"));
    }
    Ok(())
}

/// Checks that an option for buckets has some.
fn check_mixed_buckets(collection: Option<&Collection>, fields: &Fields<'_>) -> Result<()> {
    let is_series = collection.is_some_and(|collection| collection.time_series().is_some());
    if is_series || fields.get(MIXED_BUCKETS).is_none() {
        return Ok(());
    }
    let text = format!("option only supported on a time-series collection: {MIXED_BUCKETS}");
    Err(invalid(text))
}

/// `cappedSize` and `cappedMax`.
///
/// # Errors
/// 72 InvalidOptions for a collection that is not capped. As in the reference, an empty change of a
/// time series hides both options.
fn capped_limits(
    fields: &Fields<'_>,
    collection: Option<&Collection>,
) -> Result<(Option<i64>, Option<i64>)> {
    let limits = (fields.long("cappedSize")?, fields.long("cappedMax")?);
    let is_series = collection.is_some_and(|found| found.time_series().is_some());
    if is_series && fields.document("timeseries")?.is_some_and(RawDoc::is_empty) {
        return Ok((None, None));
    }
    let is_capped = collection.is_none_or(|collection| collection.capped().is_some());
    match limits {
        (None, None) => Ok(limits),
        _ if is_capped => Ok(limits),
        _ => Err(invalid("Collection must be capped.")),
    }
}

/// Appends the options for the log: the limits of a capped collection as they were given.
fn log_options(new: RawDoc<'_>, (size, max): (Option<i64>, Option<i64>), command: &mut DocBuilder) {
    for (name, limit) in [("cappedSize", size), ("cappedMax", max)] {
        if let Some(limit) = limit {
            command.append(name, limit);
        }
    }
    for option in new.iter().filter(|option| !matches!(option.name(), "size" | "max")) {
        command.append_element(option);
    }
}

/// Changes options of `create`; others keep their values.
fn change_options(
    ctx: &CommandContext<'_>,
    ns: &Namespace,
    fields: &Fields<'_>,
    expiry: Option<Expiry>,
) -> Result<()> {
    let collection = ctx.store.collection(ns);
    let (size, max) = capped_limits(fields, collection.as_deref())?;
    let mut new = DocBuilder::new();
    if let Some(size) = size {
        new.append("size", compact(capped_size(size)?));
    }
    if let Some(max) = max {
        new.append("max", compact(capped_max(max)?));
    }
    if fields.get("timeseries").is_some()
        && collection.as_ref().is_none_or(|collection| collection.time_series().is_none())
    {
        return Err(invalid("option only supported on a time-series collection: timeseries"));
    }
    let grown = fields.document("timeseries")?;
    let ttl = fields.document("ttl")?;
    if let Some(ttl) = ttl {
        let series = collection.as_ref().is_some_and(|found| found.time_series().is_some());
        let value = RawValue::Document(ttl);
        ctx.service.store.check_collection_policy(value, series)?;
    }
    images(fields, Images::AsGiven, &mut new)?;
    validation(fields, ns, &mut new)?;
    let new = new.finish();
    let mut command = DocBuilder::new();
    command.append("collMod", ns.collection());
    log_options(new.as_doc(), (size, max), &mut command);
    if let Some(grown) = grown {
        command.append("timeseries", grown);
    }
    if let Some(ttl) = ttl {
        command.append("ttl", ttl);
    }
    match expiry {
        None => {}
        Some(Expiry::Off) => {
            command.append("expireAfterSeconds", "off");
        }
        Some(Expiry::After(seconds)) => {
            command.append("expireAfterSeconds", seconds);
        }
    }
    let command = command.finish();
    let change = |old: RawDoc<'_>| {
        let mut changed = merged(old, with_validation(old, new.as_doc()).as_doc());
        if let (Some(grown), Some(series)) = (grown, TimeSeries::from_options(old)) {
            changed = time_series::changed(changed.as_doc(), &series, grown)?;
        }
        changed = match expiry {
            None => changed,
            Some(Expiry::Off) => with_expiry(changed.as_doc(), None),
            Some(Expiry::After(seconds)) => with_expiry(changed.as_doc(), Some(seconds)),
        };
        match ttl {
            None => Ok(changed),
            Some(ttl) => with_ttl(changed.as_doc(), ttl),
        }
    };
    ctx.service.store.modify_options(ns, command.as_doc(), change)
}

/// The new options with the level and the action of a new validator, which are stored with it.
fn with_validation(old: RawDoc<'_>, new: RawDoc<'_>) -> DocBuf {
    let mut complete = DocBuilder::new();
    complete.append_all(new);
    if new.get("validator").is_some() {
        for (name, default) in [("validationLevel", "strict"), ("validationAction", "error")] {
            if old.get(name).is_none() && new.get(name).is_none() {
                complete.append(name, default);
            }
        }
    }
    complete.finish()
}

/// Section 3.4: the only string of the top-level option.
fn check_expiry_text(body: &RawDoc<'_>) -> Result<()> {
    match body.get("expireAfterSeconds") {
        None | Some(RawValue::String("off")) => Ok(()),
        Some(RawValue::String(other)) => Err(invalid(format!(
            "Invalid string value for the 'clusteredIndex::expireAfterSeconds' option. Got: '{other}'. Accepted \
             value is 'off'"
        ))),
        Some(_) => Ok(()),
    }
}

/// The top-level option `expireAfterSeconds`.
#[derive(Clone, Copy)]
enum Expiry {
    /// `"off"`, which disables expiry.
    Off,
    /// A number of seconds.
    After(i64),
}

impl Expiry {
    fn parse(ctx: &CommandContext<'_>, ns: &Namespace, value: RawValue<'_>) -> Result<Expiry> {
        let store = &ctx.service.store;
        let options = store.collection(ctx.store.view, ns).map(|collection| collection.options());
        let by_date = options.is_some_and(|options| {
            let options = options.as_doc();
            options.get("clusteredIndex").is_some() || options.get("timeseries").is_some()
        });
        if !by_date {
            return Err(invalid(
                "'expireAfterSeconds' option is only supported on collections clustered by _id",
            ));
        }
        match value {
            RawValue::String(_) => Ok(Expiry::Off),
            number => {
                let rules = store.ttl_params().rules();
                expire_after_for_collection(number, ctx.op.now_ms(), rules).map(Expiry::After)
            }
        }
    }
}

/// `index: { name | keyPattern, expireAfterSeconds?, hidden?, prepareUnique?, unique? }`.
struct IndexChange<'a> {
    selector: IndexSelector<'a>,
    change: CollModChange<'a>,
}

impl<'a> IndexChange<'a> {
    fn parse(index: RawDoc<'a>, rules: TtlIndexRules) -> Result<IndexChange<'a>> {
        let fields = Fields::new(index, "collMod.index");
        let invalid = |text: &str| Err(Error::new(ErrorCode::InvalidOptions, text));
        let name = fields.string("name")?;
        let key = fields.document("keyPattern")?;
        let selector = match (name, key) {
            (Some(_), Some(_)) => return invalid("Cannot specify both key pattern and name."),
            (None, None) => return invalid("Must specify either index name or key pattern."),
            (Some(name), None) => IndexSelector::Name(name),
            (None, Some(key)) => IndexSelector::Key(key),
        };
        let expire_after = fields.get("expireAfterSeconds");
        let expire_after = match expire_after {
            None => None,
            Some(RawValue::String("off")) => Some(NewExpireAfter::Off),
            Some(value) => Some(NewExpireAfter::Seconds(expire_after_for_collmod(value, rules)?)),
        };
        let ttl = fields.document("ttl")?;
        if let Some(ttl) = ttl {
            TtlOptions::parse(RawValue::Document(ttl))?;
        }
        let hidden = fields.bool("hidden")?;
        let prepare_unique = fields.bool("prepareUnique")?;
        if fields.get("forceNonUnique").is_some() {
            return Err(Error::not_implemented("the option 'forceNonUnique' of 'collMod.index'"));
        }
        let unique = fields.bool("unique")?;
        if unique == Some(false) {
            return Err(Error::bad_value(
                "collMod does not support converting an index to non-unique",
            ));
        }
        let nothing = expire_after.is_none() && hidden.is_none() && ttl.is_none();
        if nothing && prepare_unique.is_none() && unique.is_none() {
            return invalid("no expireAfterSeconds, hidden, unique, or prepareUnique field");
        }
        let change =
            CollModChange { expire_after, ttl, hidden, prepare_unique, unique: unique.is_some() };
        Ok(IndexChange { selector, change })
    }
}

/// Checks whether the index could be unique, or reports what the changed policy would expire
/// (expiry contract, section 9), without a change.
fn dry_run(
    ctx: &CommandContext<'_>,
    ns: &Namespace,
    index: Option<&IndexChange<'_>>,
    reply: &mut DocBuilder,
) -> Result<()> {
    let store = &ctx.service.store;
    if let Some(index) = index.filter(|index| index.change.unique) {
        return store.dry_run_unique(ctx.op, ns, index.selector, index.change);
    }
    let changes = index.filter(|index| index.change.expire_after.is_some());
    let census = match changes {
        Some(index) => store.dry_run_change(ctx.op, ns, index.selector, index.change)?,
        None => None,
    };
    match census {
        Some(census) => census.append_to(reply),
        None => {
            return Err(invalid(
                "'dryRun' needs an index and its 'expireAfterSeconds' or 'unique: true'",
            ));
        }
    }
    Ok(())
}

fn apply(
    ctx: &CommandContext<'_>,
    ns: &Namespace,
    index: &IndexChange<'_>,
    reply: &mut DocBuilder,
) -> Result<()> {
    let store = &ctx.service.store;
    let result = match index.change.unique {
        true => store.make_index_unique(ctx.op, ns, index.selector, index.change)?,
        false => store.modify_index(ns, index.selector, index.change)?,
    };
    if let Some(old) = result.expire_after_old {
        reply.append("expireAfterSeconds_old", i64::from(old));
    }
    if let Some(new) = result.expire_after_new {
        reply.append("expireAfterSeconds_new", i64::from(new));
    }
    if let Some((old, new)) = result.hidden {
        reply.append("hidden_old", old).append("hidden_new", new);
    }
    if let Some((old, new)) = result.prepare_unique {
        reply.append("prepareUnique_old", old).append("prepareUnique_new", new);
    }
    if result.became_unique {
        reply.append("unique_new", true);
    }
    Ok(())
}
