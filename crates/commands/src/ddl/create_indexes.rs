//! `createIndexes`.

use mayfly_base::{Error, ErrorCode, Namespace, Result};
use mayfly_buckets::TimeSeries;
use mayfly_storage::CreateIndexesOptions;
use mayfly_value::arguments::{Argument, Form};
use mayfly_value::{DocBuf, DocBuilder, RawDoc, RawValue};

use super::encrypted_fields::check_indexes;
use super::time_series::on_measurements;
use crate::context::{COLLECTION_UUID, Command, CommandContext};
use crate::crud::{check_definable, check_writable};
use crate::request::row::{Expected, InTransaction, LogForm, RowFlags, Writes};
use crate::request::{Fields, Needs, Request};
use crate::rules::rights::demands;

pub(crate) const ROW: Command = Command::new("createIndexes", "Creates indexes", run)
    .arguments(ARGUMENTS)
    .needs(Needs::Demands(demands::create_indexes))
    .flags(RowFlags::STABLE)
    .writes(Writes::Settings)
    .in_transaction(InTransaction::Definition)
    .expected(Expected::Long)
    .replayed(LogForm::OneIndex, &[ErrorCode::IndexAlreadyExists, ErrorCode::NamespaceNotFound]);
const ARGUMENTS: &[Argument] = &[
    Argument::array("indexes").required(),
    Argument::flag("ignoreUnknownIndexOptions").unstable(),
    Argument::one_of("commitQuorum", &[Form::String, Form::Whole]).since("4.4"),
    Argument::whole("v"),
    Argument::flag("dryRun").unstable(),
    Argument::string("onConflict").unstable(),
    COLLECTION_UUID,
];

/// The options of an index that do not belong to the stable API. Manual: "Stable API", "Stable API
/// Commands", "createIndexes".
const UNSTABLE: &[Argument] = &[
    Argument::any("background").unstable(),
    Argument::any("bucketSize").unstable(),
    Argument::any("dropDups").unstable(),
    Argument::any("prepareUnique").unstable(),
    Argument::any("sparse").unstable(),
    Argument::document("storageEngine").unstable(),
    Argument::any("ttl").unstable(),
];

/// Checks that an index belongs to the stable API, which has no text search.
///
/// # Errors
/// 323 APIStrictError.
fn check_stable(spec: RawDoc<'_>) -> Result<()> {
    Fields::new(spec, "createIndexes.indexes").check_stable(UNSTABLE)?;
    let key = spec.get("key").and_then(RawValue::as_document).unwrap_or(RawDoc::EMPTY);
    if key.iter().any(|field| field.value() == RawValue::String("text")) {
        let text = "text indexes cannot be created with apiStrict: true";
        return Err(Error::new(ErrorCode::APIStrictError, text));
    }
    Ok(())
}

fn run(ctx: &CommandContext<'_>, request: &Request<'_>, reply: &mut DocBuilder) -> Result<()> {
    let fields = request.arguments()?;
    let ns = request.namespace()?;
    ctx.check_uuid(&ns, &fields)?;
    let options = CreateIndexesOptions {
        ignore_unknown: fields.bool("ignoreUnknownIndexOptions")?.unwrap_or(false),
        update_policies: match fields.string("onConflict")? {
            None | Some("error") => false,
            Some("update") => true,
            Some(other) => {
                return Err(Error::bad_value(format!(
                    "'onConflict' must be 'error' or 'update', but is '{other}'"
                )));
            }
        },
    };
    let Some(specs) = request.documents("indexes")? else {
        return Err(fields.missing("indexes"));
    };
    let specs: Vec<RawDoc<'_>> = specs.collect();
    if request.generic.api_strict {
        for spec in &specs {
            check_stable(*spec)?;
        }
    }
    if specs.is_empty() {
        return Err(Error::bad_value("Must specify at least one index to create"));
    }
    if ns.db() == "config" && ns.collection() == "transactions" {
        let text = "not allowed to create index on config.transactions";
        return Err(Error::new(ErrorCode::IllegalOperation, text));
    }
    let on_measurements = indexes_of_buckets(ctx, &ns, &specs)?;
    let (ns, specs) = match &on_measurements {
        Some((ns, specs)) => (ns.clone(), specs.iter().map(DocBuf::as_doc).collect()),
        None => (ns, specs),
    };
    check_writable(&ns)?;
    check_definable(ctx, &ns)?;
    if let Some(collection) = ctx.store.collection(&ns) {
        check_indexes(collection.options().as_doc(), &specs)?;
    }
    if fields.bool("dryRun")?.unwrap_or(false) {
        return dry_run(ctx, &ns, &specs, reply);
    }
    let result =
        ctx.service.store.create_indexes((ctx.op, ctx.store.view), &ns, &specs, options)?;
    if result.last_modified {
        // As the servers answer that introduced these policies; their clients read the field.
        reply.append("_t", "CreateIndexesResponse");
    }
    reply.append("numIndexesBefore", result.before).append("numIndexesAfter", result.after);
    reply.append("createdCollectionAutomatically", result.created_collection);
    if !result.notes.is_empty() {
        for note in &result.notes {
            tracing::debug!(namespace = %ns, note, "createIndexes");
        }
        reply.append("note", result.notes.join("\n\n").as_str());
    }
    if options.update_policies {
        reply.start_array("updatedIndexes");
        result.updated.iter().for_each(|name| {
            reply.push(name.as_str());
        });
        reply.end();
    }
    Ok(())
}

/// Translates indexes on the bucket collection to indexes on measurements.
fn indexes_of_buckets(
    ctx: &CommandContext<'_>,
    ns: &Namespace,
    specs: &[RawDoc<'_>],
) -> Result<Option<(Namespace, Vec<DocBuf>)>> {
    let Some(name) = TimeSeries::name_of(ns) else { return Ok(None) };
    let buckets = ctx.store.collection(ns);
    let Some(series) = buckets.and_then(|buckets| buckets.time_series()) else { return Ok(None) };
    let specs = specs.iter().map(|spec| on_measurements(*spec, &series.fields));
    Ok(Some((Namespace::new(ns.db(), name)?, specs.collect::<Result<_>>()?)))
}

/// Reports what the policy of the index would expire, without creating it (expiry contract, section
/// 9).
fn dry_run(
    ctx: &CommandContext<'_>,
    ns: &Namespace,
    specs: &[RawDoc<'_>],
    reply: &mut DocBuilder,
) -> Result<()> {
    let store = &ctx.service.store;
    store.check_no_view(ctx.store.view, ns)?;
    let census = match specs {
        [spec] => store.dry_run_index(ctx.op, ns, *spec)?,
        _ => None,
    };
    let Some(census) = census else {
        return Err(Error::new(
            ErrorCode::InvalidOptions,
            "'dryRun' needs exactly one index, with 'expireAfterSeconds'",
        ));
    };
    census.append_to(reply);
    Ok(())
}
