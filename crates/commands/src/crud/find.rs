//! `find`.

use mayfly_auth::Action;
use mayfly_base::{Error, ErrorCode, Result};
use mayfly_query::{
    CanonicalQuery, Cursor, CursorSource, Executor, FindOptions, Hint, ResultShape, RunSettings,
    allowed_on, check_absent,
};
use mayfly_storage::ResolvedView;
use mayfly_value::arguments::Argument;
use mayfly_value::{DocBuilder, RawDoc, RawValue};

use super::explain;
use super::read::{Collating, FirstBatch, empty_cursor, first_batch, hint};
use super::settings::settings_to_run;
use super::view::{
    Source, Stages, budget, check_find, decide_collation, has_natural_order, reads_log,
    run_settings, source,
};
use crate::context::{COLLECTION_UUID, Command, CommandContext};
use crate::request::arguments::{HINT, INFORMATION};
use crate::request::row::{Encrypted, InTransaction, Reads, RowFlags};
use crate::request::{Fields, Needs, OpKind, Request};
use crate::rules::length::Work;
use mayfly_value::arguments::convert::whole_number;

pub(crate) const ROW: Command = Command::new("find", "Finds documents", run)
    .arguments(ARGUMENTS)
    .needs(Needs::Collection(&[Action::Find]))
    .since("3.2")
    .kind(OpKind::Query)
    .flags(RowFlags::STABLE.union(RowFlags::SHAPED))
    .reads(
        Reads::PREFERENCE
            .union(Reads::DEFAULTS)
            .union(Reads::COMMITTED)
            .union(Reads::LINEARIZABLE)
            .union(Reads::SNAPSHOT),
    )
    .in_transaction(InTransaction::Statement)
    .encrypted(Encrypted::Filter("filter"))
    .explained(explain::find);

/// Supported arguments, then those that are refused when they have an effect.
pub(crate) const ARGUMENTS: &[Argument] = &[
    Argument::document("filter").null_is_value(),
    Argument::document("sort"),
    Argument::document("projection"),
    HINT,
    Argument::whole("skip").at_least(0),
    Argument::whole("limit").at_least(0),
    Argument::whole("batchSize").at_least(0),
    Argument::flag("singleBatch"),
    Argument::flag("noCursorTimeout").unstable(),
    Argument::flag("allowPartialResults"),
    Argument::flag("allowDiskUse").since("4.4"),
    Argument::flag("oplogReplay").unstable(),
    Argument::flag("tailable").unstable(),
    Argument::flag("awaitData").unstable(),
    Argument::any("collation").since("3.4"),
    Argument::flag("returnKey").unstable(),
    Argument::flag("showRecordId").unstable(),
    Argument::document("min").unstable(),
    Argument::document("max").unstable(),
    Argument::document("let").since("5.0"),
    INFORMATION,
    COLLECTION_UUID,
];

fn run(ctx: &CommandContext<'_>, request: &Request<'_>, reply: &mut DocBuilder) -> Result<()> {
    let fields = request.arguments()?;
    let ns = request.namespace()?;
    ctx.check_uuid(&ns, &fields)?;
    let tailing = Tailing::parse(&fields)?;
    tailing.check_view(ctx)?;
    let skip = fields.long("skip")?.unwrap_or(0) as u64;
    let limit = fields.long("limit")?.unwrap_or(0) as u64;
    let (batch, shape) = (batch(&fields)?, shape(&fields)?);
    let collating = Collating::parse(&fields)?;
    let collection = ctx.store.collection(&ns);
    let options = FindOptions {
        sort: fields.document("sort")?,
        projection: fields.document("projection")?,
        skip,
        limit,
        hint: Hint::between(hint(&fields)?, fields.document("min")?, fields.document("max")?)?,
        variables: fields.document("let")?,
        time: Some(ctx.time()),
        collation: collating.over(collection.as_deref()),
        allows_key_metadata: true,
        scripts: Some(ctx.service.settings.script_limits()),
    };
    let filter = fields.document("filter")?.unwrap_or(RawDoc::EMPTY);
    let mut query = CanonicalQuery::parse(filter, options)?;
    let setting = settings_to_run(ctx, request.row.name, &ns, request.body)?;
    let hints = setting.and_then(|it| it.hints.clone());
    let collection = match source(ctx, &ns)? {
        Source::Collection(collection) => collection,
        Source::View(mut view) => {
            decide_collation(&mut view, &collating)?;
            let hint = match natural_order(&fields, &view)? {
                Some(order) => order,
                None => hint(&fields)?,
            };
            let mut stages = on_view(&fields, &view)?;
            if tailing.tailable {
                tailing.check_order(&fields)?;
                stages.make_tailable();
            }
            let settings = RunSettings { hints, ..run_settings(ctx, fields.bool("allowDiskUse")?) };
            let stages = stages.parse((ctx, request), &view, fields.document("let")?)?;
            let run = stages.start(ctx, hint, settings)?;
            let mut cursor = Cursor::new(ns, CursorSource::Pipeline(Box::new(run)));
            cursor.await_data = tailing.await_data;
            return Work::Pipeline.length().run(|| first_batch(ctx, cursor, batch, reply));
        }
        Source::Nothing => {
            check_absent(&query, &ns)?;
            empty_cursor(ctx, ns.as_str(), reply);
            return Ok(());
        }
    };
    query.allowed = hints.and_then(|hints| allowed_on(&hints, &collection));
    let mut executor = Executor::new(ctx.store.view, collection, query)?;
    if tailing.tailable {
        tailing.check_order(&fields)?;
        executor.make_tailable()?;
    }
    executor.set_shape(shape);
    prepare(ctx, (request, &fields), &mut executor, batch)?;
    let length = Work::Plan(&executor).length();
    let mut cursor = Cursor::new(ns, CursorSource::Find(Box::new(executor)));
    cursor.await_data = tailing.await_data;
    length.run(|| first_batch(ctx, cursor, batch, reply))
}

/// The options of the first batch and the cursor.
fn batch(fields: &Fields<'_>) -> Result<FirstBatch> {
    Ok(FirstBatch {
        size: fields.long("batchSize")?,
        single: fields.bool("singleBatch")?.unwrap_or(false),
        no_timeout: fields.bool("noCursorTimeout")?.unwrap_or(false),
    })
}

/// Options that replace documents in the reply, or add to them.
fn shape(fields: &Fields<'_>) -> Result<ResultShape> {
    Ok(ResultShape {
        key_only: fields.bool("returnKey")?.unwrap_or(false),
        record_id: fields.bool("showRecordId")?.unwrap_or(false),
    })
}

/// Sets the memory budget and the expected batch size of the executor, and the plan summary of the
/// operation.
fn prepare(
    ctx: &CommandContext<'_>,
    (request, fields): (&Request<'_>, &Fields<'_>),
    executor: &mut Executor,
    batch: FirstBatch,
) -> Result<()> {
    executor.name_failures(request.row.name);
    // The type of the argument is checked in any case.
    if executor.buffers_between_batches() || fields.bool("allowDiskUse")?.is_some() {
        executor.use_budget(budget(ctx, fields.bool("allowDiskUse")?));
    }
    ctx.op.update_info(|info| info.plan_summary = executor.plan().summary());
    // With a snapshot, the rest of the results is read at once, too.
    if ctx.store.view.cluster_time().is_none() {
        executor.expect(batch.documents());
    }
    Ok(())
}

/// `tailable` and `awaitData`.
struct Tailing {
    tailable: bool,
    await_data: bool,
}

impl Tailing {
    /// Refuses a tailable cursor in a transaction and over a pinned snapshot.
    ///
    /// # Errors
    /// 72 InvalidOptions.
    fn check_view(&self, ctx: &CommandContext<'_>) -> Result<()> {
        let text = if ctx.store.in_transaction() {
            "It is illegal to open a tailable cursor in a transaction"
        } else if ctx.store.view.cluster_time().is_some() {
            "A tailable cursor cannot be opened with read concern 'snapshot'"
        } else {
            return Ok(());
        };
        if self.tailable { Err(Error::new(ErrorCode::InvalidOptions, text)) } else { Ok(()) }
    }

    fn parse(fields: &Fields<'_>) -> Result<Tailing> {
        let flag = |name: &str| fields.bool(name).map(|flag| flag.unwrap_or(false));
        let (tailable, await_data) = (flag("tailable")?, flag("awaitData")?);
        if await_data && !tailable {
            let text = "Cannot set 'awaitData' without also setting 'tailable'";
            return Err(Error::failed_to_parse(text));
        }
        if tailable && flag("singleBatch")? {
            let text = "cannot use tailable option with the 'singleBatch' option";
            return Err(Error::bad_value(text));
        }
        Ok(Tailing { tailable, await_data })
    }

    /// Checks that a tailable cursor follows the log in natural order.
    ///
    /// # Errors
    /// 2 BadValue.
    fn check_order(&self, fields: &Fields<'_>) -> Result<()> {
        let sort = fields.document("sort")?.filter(|sort| !sort.is_empty());
        let natural = |sort: RawDoc<'_>| {
            sort.get("$natural").and_then(whole_number) == Some(1) && sort.iter().count() == 1
        };
        if sort.is_some_and(|sort| !natural(sort)) {
            let text = "cannot use tailable option with a sort other than {$natural: 1}";
            return Err(Error::bad_value(text));
        }
        Ok(())
    }
}

/// The order of a sort that a namespace with a natural order provides itself, if the sort consists
/// of nothing else: `$natural`, or in the log the timestamp.
fn natural_order(fields: &Fields<'_>, view: &ResolvedView) -> Result<Option<Option<Hint>>> {
    let sort = fields.document("sort")?.filter(|_| has_natural_order(view));
    let Some(sort) = sort else { return Ok(None) };
    if sort.get("$natural").is_some() {
        return Hint::parse(RawValue::Document(sort)).map(Some);
    }
    let mut parts = sort.iter();
    let by_time = match (parts.next(), parts.next()) {
        (Some(only), None) if reads_log(view) && only.name() == "ts" => whole_number(only.value()),
        _ => None,
    };
    Ok(match by_time {
        Some(1) => Some(None),
        Some(-1) => Some(Some(Hint::Natural { backward: true })),
        _ => None,
    })
}

/// The find as stages after those of a view.
///
/// # Errors
/// 168 InvalidPipelineOperator for options that only collections support.
pub(crate) fn on_view(fields: &Fields<'_>, view: &ResolvedView) -> Result<Stages> {
    let sort = match natural_order(fields, view)? {
        Some(_) => None,
        None => fields.document("sort")?,
    };
    check_find(&[
        ("$natural", sort.is_some_and(|sort| sort.get("$natural").is_some())),
        ("tailable", fields.bool("tailable")?.unwrap_or(false) && !reads_log(view)),
        ("returnKey", fields.bool("returnKey")?.unwrap_or(false)),
        ("showRecordId", fields.bool("showRecordId")?.unwrap_or(false)),
        ("min", fields.document("min")?.is_some()),
        ("max", fields.document("max")?.is_some()),
    ])?;
    let mut stages = Stages::new(view);
    stages.push_document("$match", fields.document("filter")?);
    stages.push_document("$sort", sort);
    match fields.long("skip")? {
        Some(skip) if skip > 0 => {
            stages.push("$skip", skip);
        }
        _ => {}
    }
    match fields.long("limit")? {
        Some(limit) if limit > 0 => {
            stages.push("$limit", limit);
        }
        _ => {}
    }
    stages.push_document("$project", fields.document("projection")?);
    Ok(stages)
}
