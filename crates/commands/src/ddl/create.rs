//! `create`: creates a collection or a view.

use mayfly_base::{Error, ErrorCode, Namespace, Result};
use mayfly_buckets::TimeSeries;
use mayfly_value::DocBuilder;
use mayfly_value::arguments::Argument;
use mayfly_value::collation;
use mayfly_value::shell::Shell;

use super::id_options::{self, CLUSTERED_INDEX, clustered_index};
use super::options::{
    Defining, IMAGES, INDEX_DEFAULTS, VALIDATION_ACTION, VALIDATION_LEVEL, check_view_options,
    collection_options, invalid,
};
use super::{encrypted_fields, time_series, view};
use crate::context::{Command, CommandContext};
use crate::crud::{check_creatable, check_definable};
use crate::request::row::{InTransaction, LogForm, Reads, RowFlags, Writes};
use crate::request::{Fields, Needs, Request};
use crate::rules::rights::demands;

pub(crate) const ROW: Command = Command::new("create", "Creates a collection or view", run)
    .arguments(ARGUMENTS)
    .needs(Needs::Demands(demands::create))
    .flags(RowFlags::STABLE.union(RowFlags::CREATES))
    .writes(Writes::Settings)
    .reads(Reads::empty())
    .in_transaction(InTransaction::Definition)
    .replayed(LogForm::Buckets, &[ErrorCode::NamespaceExists]);

/// The options.
const ARGUMENTS: &[Argument] = &[
    Argument::document("timeseries").since("5.0"),
    CLUSTERED_INDEX,
    Argument::flag("capped").unstable(),
    Argument::whole("size").at_least(1).unstable(),
    Argument::whole("max").unstable(),
    Argument::string("viewOn").since("3.4"),
    Argument::array("pipeline").since("3.4"),
    Argument::document("validator").since("3.2"),
    VALIDATION_LEVEL,
    VALIDATION_ACTION,
    IMAGES,
    Argument::document("storageEngine").unstable(),
    INDEX_DEFAULTS,
    Argument::flag("autoIndexId").unstable(),
    Argument::number("expireAfterSeconds").since("5.0"),
    Argument::document("ttl").unstable(),
    Argument::document("idIndex").since("3.4"),
    Argument::whole("flags").unstable(),
    Argument::fields("collation", collation::FIELDS).since("3.4"),
    Argument::document("encryptedFields").since("6.0").parts(encrypted_fields::CONFIG),
    Argument::flag("temp").unstable(),
];

fn run(ctx: &CommandContext<'_>, request: &Request<'_>, _: &mut DocBuilder) -> Result<()> {
    let fields = request.arguments()?;
    let ns = request.namespace()?;
    let ns = created(ns, &fields)?;
    check_creatable(&ns)?;
    check_definable(ctx, &ns)?;
    let defining = Defining {
        ns: &ns,
        uuid: request.uuid,
        now_ms: ctx.op.now_ms(),
        rules: ctx.service.store.ttl_params().rules(),
    };
    encrypted_fields::check_with_others(&fields)?;
    if let Some(series) = fields.document("timeseries")? {
        check_ttl(&fields)?;
        if ctx.store.in_transaction() {
            let text = "Cannot create a time-series collection in a multi-document transaction.";
            return Err(Error::new(ErrorCode::OperationNotSupportedInTransaction, text));
        }
        time_series::create(ctx, &fields, series, &defining)?;
        return Ok(());
    }
    check_together(&fields)?;
    check_ttl(&fields)?;
    match fields.string("viewOn")? {
        Some(_) if ctx.store.in_transaction() => {
            let text = "Cannot create a view in a multi-document transaction.";
            return Err(Error::new(ErrorCode::OperationNotSupportedInTransaction, text));
        }
        Some(on) => {
            check_view_options(&fields)?;
            view::create(ctx, (request, &ns), on, &fields)?;
        }
        None => create_collection(ctx, &fields, &defining)?,
    }
    // Also waits for the log if nothing was created: a concurrent client may have created it
    // without waiting.
    Ok(())
}

/// The name of what is created. A time series may be named by its buckets.
///
/// # Errors
/// 20 IllegalOperation for buckets without a time series.
fn created(ns: Namespace, fields: &Fields<'_>) -> Result<Namespace> {
    match TimeSeries::name_of(&ns) {
        None => Ok(ns),
        Some(name) if fields.get("timeseries").is_some() => Namespace::new(ns.db(), name),
        Some(_) => {
            let text = format!("{ns} can only be created with the options of a time series");
            Err(Error::new(ErrorCode::IllegalOperation, text))
        }
    }
}

fn create_collection(
    ctx: &CommandContext<'_>,
    fields: &Fields<'_>,
    defining: &Defining<'_>,
) -> Result<()> {
    let ns = defining.ns;
    let options = collection_options(fields, defining)?;
    let store = &ctx.service.store;
    if let Some(ttl) = fields.get("ttl") {
        store.check_collection_policy(ttl, false)?;
    }
    let created = match defining.uuid {
        Some(uuid) => store.create_collection_as(ctx.store.view, ns, options.clone(), uuid),
        None => store.create_collection(ctx.store.view, ns, options.clone()),
    };
    match created {
        Err(error) if error.code() == ErrorCode::NamespaceExists => {
            let Some(existing) = store.collection(ctx.store.view, ns) else { return Err(error) };
            // A repeated definition has no effect, except that a transaction fails if the
            // collection exists.
            if ctx.store.in_transaction() {
                return Err(error);
            }
            if existing.options() == options {
                return Ok(());
            }
            let text = format!(
                "namespace {ns} already exists, but with different options: {}",
                Shell(existing.options().as_doc())
            );
            Err(Error::new(ErrorCode::NamespaceExists, text))
        }
        other => other.map(|_| ()),
    }
}

/// Checks options that depend on each other.
fn check_together(fields: &Fields<'_>) -> Result<()> {
    id_options::check_with_others(fields)?;
    let capped = fields.bool("capped")?.unwrap_or(false);
    let sized = fields.long("size")?.is_some();
    if !capped && (sized || fields.long("max")?.is_some()) {
        return Err(invalid(
            "the 'capped' field needs to be true when either the 'size' or 'max' fields are present",
        ));
    }
    if capped && !sized {
        return Err(invalid("the 'size' field is required when 'capped' is true"));
    }
    if fields.array("pipeline")?.is_some() && fields.get("viewOn").is_none() {
        return Err(invalid("'pipeline' requires 'viewOn' to also be specified"));
    }
    Ok(())
}

/// Checks where `expireAfterSeconds` is allowed. Expiry contract, section 1.4.
fn check_ttl(fields: &Fields<'_>) -> Result<()> {
    let expires = fields.get("expireAfterSeconds").is_some();
    if !expires || fields.get("timeseries").is_some() || clustered_index(fields).is_some() {
        return Ok(());
    }
    Err(invalid(
        "'expireAfterSeconds' can be used only for clustered collections or timeseries collections",
    ))
}
